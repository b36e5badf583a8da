//! Reading a fuzzed input from its front: small numbers, choices and pieces. At the end everything is zero or empty, never an error, so
//! that every input means something.

/// What is left of an input.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// The next two bytes as a number.
    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// The next four bytes as a number.
    pub fn word(&mut self) -> u32 {
        u32::from(self.short()) | u32::from(self.short()) << 16
    }

    /// The next eight bytes as a number.
    pub fn long(&mut self) -> u64 {
        u64::from(self.word()) | u64::from(self.word()) << 32
    }

    /// Up to `most` bytes.
    pub fn piece(&mut self, most: usize) -> &'a [u8] {
        let (piece, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        piece
    }

    /// A piece with its length before it.
    pub fn counted(&mut self) -> &'a [u8] {
        let length = usize::from(self.short());
        self.piece(length)
    }

    /// Everything up to the next `separator`, which is taken too.
    pub fn until(&mut self, separator: u8) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == separator);
        let piece = self.piece(end.unwrap_or(self.0.len()));
        self.byte();
        piece
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
