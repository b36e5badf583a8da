//! SSH's own encoding of data (RFC 4251, section 5): a strict reader, and the few things that are written.

/// Reads from the front; `None` where something else stands there, or not all of it.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// One byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A truth value; other numbers than 0 and 1 are none, though the RFC lets them pass for true.
    pub fn boolean(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// A number.
    pub fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*number))
    }

    /// Bytes after their length.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (string, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(string)
    }

    /// A string that is printable ASCII, as all names of the protocol are.
    pub fn name(&mut self) -> Option<&'a str> {
        let bytes = self.string()?;
        if bytes.iter().all(u8::is_ascii_graphic) { std::str::from_utf8(bytes).ok() } else { None }
    }

    /// That nothing is left.
    pub fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Writes bytes after their length.
pub fn push_string(bytes: &mut Vec<u8>, string: &[u8]) {
    // Nothing that is written here comes near four gigabytes.
    bytes.extend_from_slice(&u32::try_from(string.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(string);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_read_and_nothing_else() {
        let mut bytes = vec![7, 1];
        push_string(&mut bytes, b"name");
        bytes.extend_from_slice(&[0, 0, 1, 0, 2]);
        let mut reader = Reader::new(&bytes);
        assert_eq!((reader.byte(), reader.boolean(), reader.name()), (Some(7), Some(true), Some("name")));
        assert_eq!(reader.number(), Some(256));
        assert!(reader.end().is_none());
        assert_eq!((reader.boolean(), reader.byte()), (None, None));
        assert!(reader.end().is_some());
    }

    #[test]
    fn lengths_beyond_the_end_and_odd_names_are_refused() {
        assert_eq!(Reader::new(&[0, 0, 0, 2, 1]).string(), None);
        assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xff]).string(), None);
        assert_eq!(Reader::new(&[0, 0, 0]).number(), None);
        for odd in [&b"a b"[..], b"a\0", "ä".as_bytes()] {
            let mut bytes = Vec::new();
            push_string(&mut bytes, odd);
            assert_eq!(Reader::new(&bytes).name(), None, "{odd:?}");
        }
    }
}
