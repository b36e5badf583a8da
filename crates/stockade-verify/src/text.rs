//! Digests and signatures as text: lower-case hexadecimal and padded base64, each with exactly one spelling.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Lower-case hexadecimal.
pub fn to_hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes of exactly `N` pairs of lower-case hexadecimal digits.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != N * 2 {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = value_of(*high)? << 4 | value_of(*low)?;
    }
    Some(bytes)
}

fn value_of(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// Standard base64 with padding.
pub fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes of standard base64; padding must be there and unused bits must be zero, so that no second text means the same bytes.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_spelling() {
        assert_eq!(to_hex(&[0, 0x9f, 0xff]), "009fff");
        assert_eq!(from_hex::<3>("009fff"), Some([0, 0x9f, 0xff]));
        for bad in ["009FFF", "009ff", "009ff ", "009fff0", "009ffg", ""] {
            assert_eq!(from_hex::<3>(bad), None, "{bad}");
        }
        assert_eq!(from_base64("AA=="), Some(vec![0]));
        for bad in ["AA", "AB==", "AA= =", "A-==", "AA==\n"] {
            assert_eq!(from_base64(bad), None, "{bad}");
        }
    }
}
