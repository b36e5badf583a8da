//! Frames: how messages are cut out of a byte stream.
//!
//! A frame is an eight-byte header (payload length, request id; little-endian) and the payload.
//! The request id ties replies, data and credit to the request that caused them. Ids chosen by the
//! host have the top bit clear, ids chosen by the guest (accepted connections) have it set.

/// The longest payload either side accepts.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// The most bytes of file or stream data that one frame carries.
pub const DATA_CHUNK: usize = 256 << 10;
/// How many bytes of one stream may be under way before the receiver grants more credit.
pub const WINDOW: u32 = 1 << 20;
/// How long the guest may keep the news that a program started, so that a short program costs the host one message and not two.
pub const START_DELAY: std::time::Duration = std::time::Duration::from_millis(2);
/// Length of the frame header.
pub const HEADER: usize = 8;
/// Set in ids that the guest made up.
pub const GUEST_ID_BIT: u32 = 1 << 31;

/// A frame header announced a payload longer than [`MAX_PAYLOAD`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameTooLong(pub usize);

impl std::fmt::Display for FrameTooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "frame of {} bytes is longer than {MAX_PAYLOAD}", self.0)
    }
}

impl std::error::Error for FrameTooLong {}

/// Appends one frame to `out`.
pub fn push_frame(out: &mut Vec<u8>, id: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&id.to_le_bytes());
    out.extend_from_slice(payload);
}

/// Collects bytes from a stream and hands out whole frames.
///
/// Holds at most one incomplete frame plus what the last read brought.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl FrameBuffer {
    /// Adds bytes that were read from the stream.
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.start > 0 && self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        } else if self.start > MAX_PAYLOAD {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next whole frame as (id, payload), or `None` until more bytes arrive.
    pub fn next_frame(&mut self) -> Result<Option<(u32, &[u8])>, FrameTooLong> {
        let Some(rest) = self.bytes.get(self.start..) else { return Ok(None) };
        let Some((header, tail)) = rest.split_first_chunk::<HEADER>() else { return Ok(None) };
        let [l0, l1, l2, l3, i0, i1, i2, i3] = *header;
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if len > MAX_PAYLOAD {
            return Err(FrameTooLong(len));
        }
        let Some(payload) = tail.get(..len) else { return Ok(None) };
        self.start += HEADER + len;
        Ok(Some((u32::from_le_bytes([i0, i1, i2, i3]), payload)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_cut() {
        let mut stream = Vec::new();
        push_frame(&mut stream, 7, b"hello");
        push_frame(&mut stream, 8, b"");
        push_frame(&mut stream, 9, &[1; 3000]);
        for cut in 1..40 {
            let mut buffer = FrameBuffer::default();
            let mut seen = Vec::new();
            for chunk in stream.chunks(cut) {
                buffer.extend(chunk);
                while let Some((id, payload)) = buffer.next_frame().expect("no frame is too long") {
                    seen.push((id, payload.to_vec()));
                }
            }
            assert_eq!(seen, [(7, b"hello".to_vec()), (8, vec![]), (9, vec![1; 3000])]);
        }
    }

    #[test]
    fn oversized_frame_is_refused_before_it_is_read() {
        let mut buffer = FrameBuffer::default();
        buffer.extend(&((MAX_PAYLOAD as u32) + 1).to_le_bytes());
        buffer.extend(&0u32.to_le_bytes());
        assert_eq!(buffer.next_frame(), Err(FrameTooLong(MAX_PAYLOAD + 1)));
    }
}
