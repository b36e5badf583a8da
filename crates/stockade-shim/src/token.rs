//! The token that proves the host: read from the environment, compared without telling how much of it fits.

/// Name of the environment variable with the token's 64 hexadecimal digits.
pub(crate) const VARIABLE: &str = "STOCKADE_TOKEN";

/// The secret shared with the host.
pub(crate) struct Token([u8; 32]);

impl Token {
    /// Reads 64 hexadecimal digits.
    pub(crate) fn parse(digits: &[u8]) -> Option<Self> {
        if digits.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = *pair.first_chunk::<2>()?;
            *byte = (digit(high)? << 4) | digit(low)?;
        }
        Some(Self(bytes))
    }

    /// Compares in a time that depends on the length only.
    pub(crate) fn matches(&self, other: &[u8; 32]) -> bool {
        let difference = self.0.iter().zip(other).fold(0, |difference, (a, b)| std::hint::black_box(difference | (a ^ b)));
        difference == 0
    }
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_token_matches() {
        let token = Token::parse("0a".repeat(32).as_bytes()).unwrap();
        assert!(token.matches(&[10; 32]));
        for position in 0..32 {
            let mut other = [10; 32];
            other[position] ^= 0x80;
            assert!(!token.matches(&other), "{position}");
        }
    }

    #[test]
    fn anything_but_64_digits_is_refused() {
        for bad in ["", "0a", &"0g".repeat(32), &"0a".repeat(33)] {
            assert!(Token::parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}
