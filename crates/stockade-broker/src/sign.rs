//! Signing with a secret that nobody but the broker sees: whoever speaks for the gateway has messages signed one by one, and never has the key.
//!
//! HMAC-SHA-256, as receivers of webhooks check it. A value that begins with `whsec_` is a key in base64, as Standard Webhooks writes it; any other is
//! the key itself.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::SecretValue;

/// Bytes of a signature.
pub const SIGNATURE: usize = 32;
/// Bytes of a message that is signed.
pub const MAX_MESSAGE: usize = 64 << 10;
/// How a key in base64 begins.
const PREFIX: &[u8] = b"whsec_";
/// Bytes of a key at least: what is shorter could be guessed.
const MIN_KEY: usize = 16;

/// The signature; `None` where the value is no key.
pub(crate) fn sign(value: &SecretValue, message: &[u8]) -> Option<[u8; SIGNATURE]> {
    let bytes = value.expose();
    let decoded = match bytes.strip_prefix(PREFIX) {
        Some(text) => Some(Zeroizing::new(STANDARD.decode(text).ok().filter(|key| key.len() >= MIN_KEY)?)),
        None => None,
    };
    let key = hmac::Key::new(hmac::HMAC_SHA256, decoded.as_ref().map_or(bytes, |key| key.as_slice()));
    hmac::sign(&key, message).as_ref().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str, message: &str) -> Option<String> {
        let value = SecretValue::new(value.as_bytes().to_vec()).unwrap();
        sign(&value, message.as_bytes()).map(|bytes| STANDARD.encode(bytes))
    }

    /// From `openssl dgst -sha256 -hmac`.
    #[test]
    fn signatures_are_those_of_others() {
        let plain = of("0123456789abcdef", "msg_1.1700000000.{}").unwrap();
        assert_eq!(plain, "3uojc/2kvL+KpJkw4ZNrA/5YjEs9cdfKdc3lXIvRjkk=");
        // The same key, written in base64.
        assert_eq!(of("whsec_MDEyMzQ1Njc4OWFiY2RlZg==", "msg_1.1700000000.{}").unwrap(), plain);
    }

    #[test]
    fn what_is_no_key_signs_nothing() {
        for bad in ["whsec_not base64 at all", "whsec_MDEyMzQ1Njc4OWFi", "whsec_!!!!!!!!!!!!!!!!"] {
            assert_eq!(of(bad, "x"), None, "{bad}");
        }
    }
}
