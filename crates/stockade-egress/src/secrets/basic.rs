//! HTTP Basic credentials: decoded, changed, encoded again. This is how `git` sends a token over HTTPS.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

/// Some clients leave the padding out.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent).with_decode_allow_trailing_bits(true),
);

/// The `user:password` of a `Basic …` header value; `None` where it is something else.
pub(crate) fn decode(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, rest) = value.split_at_checked(6)?;
    scheme.eq_ignore_ascii_case(b"basic ").then(|| LENIENT.decode(rest.trim_ascii()).ok()).flatten()
}

/// The header value for `user:password`.
pub(crate) fn encode(credentials: &[u8]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(format!("Basic {}", STANDARD.encode(credentials)).into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_is_decoded_whatever_its_padding() {
        for text in ["Basic dXNlcjp0b2tlbg==", "basic dXNlcjp0b2tlbg", "BASIC  dXNlcjp0b2tlbg== "] {
            assert_eq!(decode(text.as_bytes()).unwrap(), b"user:token", "{text}");
        }
        for text in ["Bearer dXNlcg==", "Basic", "Basic \u{1}", ""] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
        assert_eq!(encode(b"user:token").as_slice(), b"Basic dXNlcjp0b2tlbg==");
    }
}
