//! Fields of a message, one after another.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use zeroize::Zeroizing;

use super::frame::FrameError;

/// Builds a body.
pub(super) struct Writer(Zeroizing<Vec<u8>>);

impl Writer {
    /// A message of a kind, with room for `room` bytes so that it does not move.
    pub(super) fn new(kind: u8, room: usize) -> Self {
        let mut body = Zeroizing::new(Vec::with_capacity(room + 256));
        body.push(kind);
        Self(body)
    }

    pub(super) fn byte(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(super) fn short(mut self, value: u16) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn word(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Longer than a length can say is cut: nothing that is checked is that long.
    pub(super) fn bytes(self, value: &[u8]) -> Self {
        let value = value.get(..value.len().min(usize::from(u16::MAX))).unwrap_or_default();
        let mut this = self.short(value.len() as u16);
        this.0.extend_from_slice(value);
        this
    }

    /// As [`Self::bytes`], for what may fill a frame.
    pub(super) fn long_bytes(self, value: &[u8]) -> Self {
        let mut this = self.word(u32::try_from(value.len()).unwrap_or(u32::MAX));
        this.0.extend_from_slice(value);
        this
    }

    pub(super) fn time(self, value: Option<SystemTime>) -> Self {
        let millis = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        match value {
            None => self.byte(0),
            Some(time) => self.byte(1).long(millis(time)),
        }
    }

    pub(super) fn end(self) -> Zeroizing<Vec<u8>> {
        self.0
    }
}

/// Takes a body apart.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

/// The latest time that is taken: the year 9999.
const MAX_MILLIS: u64 = 253_402_300_799_000;

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], FrameError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(FrameError::Malformed("it is cut short"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn long_bytes(&mut self) -> Result<&'a [u8], FrameError> {
        let length = self.word()?;
        self.take(length as usize)
    }

    pub(super) fn byte(&mut self) -> Result<u8, FrameError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn short(&mut self) -> Result<u16, FrameError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn word(&mut self) -> Result<u32, FrameError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Result<u64, FrameError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], FrameError> {
        let length = self.short()?;
        self.take(usize::from(length))
    }

    pub(super) fn text(&mut self) -> Result<&'a str, FrameError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| FrameError::Malformed("text that is not UTF-8"))
    }

    pub(super) fn time(&mut self) -> Result<Option<SystemTime>, FrameError> {
        match self.byte()? {
            0 => Ok(None),
            1 => match self.long()? {
                millis @ 0..=MAX_MILLIS => Ok(Some(UNIX_EPOCH + Duration::from_millis(millis))),
                _ => Err(FrameError::Malformed("a time that no calendar has")),
            },
            _ => Err(FrameError::Malformed("neither a time nor none")),
        }
    }

    /// Nothing may be left.
    pub(super) fn end(self) -> Result<(), FrameError> {
        if self.0.is_empty() { Ok(()) } else { Err(FrameError::Malformed("something follows it")) }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        self.take(N)?.try_into().map_err(|_| FrameError::Malformed("it is cut short"))
    }
}
