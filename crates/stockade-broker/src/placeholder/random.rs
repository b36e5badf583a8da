//! Random choices from the system's random numbers.

use super::PlaceholderError;

/// Random bytes, fetched a block at a time.
pub(super) struct Random {
    block: [u8; 256],
    used: usize,
}

impl Random {
    /// Nothing is fetched yet.
    pub(super) fn new() -> Self {
        Self { block: [0; 256], used: 256 }
    }

    /// A random byte.
    pub(super) fn byte(&mut self) -> Result<u8, PlaceholderError> {
        if self.used >= self.block.len() {
            aws_lc_rs::rand::fill(&mut self.block).map_err(|_| PlaceholderError::NoRandom)?;
            self.used = 0;
        }
        let byte = self.block.get(self.used).copied().unwrap_or_default();
        self.used += 1;
        Ok(byte)
    }

    /// A number below `bound`, each as likely as the others. `bound` is at most 256.
    pub(super) fn below(&mut self, bound: usize) -> Result<usize, PlaceholderError> {
        // Bytes beyond the last whole multiple would favour small numbers.
        let fair = 256 - 256 % bound.clamp(1, 256);
        loop {
            let byte = usize::from(self.byte()?);
            if byte < fair {
                return Ok(byte % bound.clamp(1, 256));
            }
        }
    }

    /// One of these characters.
    pub(super) fn of(&mut self, characters: &str) -> Result<char, PlaceholderError> {
        let at = self.below(characters.len())?;
        Ok(characters.as_bytes().get(at).map_or('x', |byte| char::from(*byte)))
    }
}
