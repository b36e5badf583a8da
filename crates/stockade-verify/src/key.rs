//! Public keys: how they are written, what they are called, and the one way a signature is checked.

use ed25519_dalek::{Signature, VerifyingKey};
use sha2::{Digest, Sha256};

use crate::text::{from_base64, from_hex, to_base64, to_hex};

/// What stands before the 32 bytes of an Ed25519 key in a `SubjectPublicKeyInfo` (RFC 8410).
const PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const END: &str = "-----END PUBLIC KEY-----";
/// The longest text that is looked at as a key.
pub const MAX_KEY_TEXT: usize = 4096;

/// A public key that signatures are checked with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    key: VerifyingKey,
    id: String,
}

/// Text or bytes that are no usable key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// Neither PEM nor hexadecimal.
    #[error("it is neither a `PUBLIC KEY` in PEM nor 64 hexadecimal digits")]
    Form,
    /// Not a point of the curve, or one whose signatures prove nothing.
    #[error("it is not a sound Ed25519 key")]
    Point,
}

impl PublicKey {
    /// From the 32 bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<Self, BadKey> {
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| BadKey::Point)?;
        if key.is_weak() {
            return Err(BadKey::Point);
        }
        Ok(Self { id: to_hex(Sha256::digest(bytes).first_chunk::<8>().unwrap_or(&[0; 8])), key })
    }

    /// From PEM, or from 64 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, BadKey> {
        let text = text.trim();
        if let Some(bytes) = from_hex::<32>(text) {
            return Self::from_bytes(bytes);
        }
        let inner = text.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END)).ok_or(BadKey::Form)?;
        let base64: String = inner.split_ascii_whitespace().collect();
        let der = from_base64(&base64).ok_or(BadKey::Form)?;
        let bytes = der.strip_prefix(&PREFIX).and_then(|rest| <[u8; 32]>::try_from(rest).ok()).ok_or(BadKey::Form)?;
        Self::from_bytes(bytes)
    }

    /// As PEM.
    pub fn to_pem(&self) -> String {
        format!("{BEGIN}\n{}\n{END}\n", to_base64(&[PREFIX.as_slice(), self.key.as_bytes()].concat()))
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.key.as_bytes()
    }

    /// What receipts call it: the first eight bytes of its SHA-256, in hexadecimal.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether this key signed these bytes. Strict: no signature has a second form that passes too.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        Signature::from_slice(signature).is_ok_and(|signature| self.key.verify_strict(message, &signature).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer, SigningKey};

    use super::*;

    fn key() -> SigningKey {
        SigningKey::from_bytes(&[7; 32])
    }

    #[test]
    fn keys_read_back_from_pem_and_hexadecimal() {
        let public = PublicKey::from_bytes(key().verifying_key().to_bytes()).unwrap();
        assert_eq!(PublicKey::parse(&public.to_pem()), Ok(public.clone()));
        assert_eq!(PublicKey::parse(&to_hex(public.as_bytes())), Ok(public.clone()));
        assert_eq!(public.id().len(), 16);
        for bad in ["", "x", &public.to_pem().replace("PUBLIC", "PRIVATE"), &public.to_pem().replace("MCow", "MCo")] {
            assert_eq!(PublicKey::parse(bad), Err(BadKey::Form), "{bad}");
        }
        assert_eq!(PublicKey::from_bytes([0; 32]), Err(BadKey::Point), "a point of small order");
    }

    #[test]
    fn only_its_own_signatures_pass() {
        let public = PublicKey::from_bytes(key().verifying_key().to_bytes()).unwrap();
        let signature = key().sign(b"message").to_bytes();
        assert!(public.verifies(b"message", &signature));
        assert!(!public.verifies(b"massage", &signature));
        assert!(!public.verifies(b"message", &signature[..63]));
        let other = SigningKey::from_bytes(&[8; 32]).sign(b"message").to_bytes();
        assert!(!public.verifies(b"message", &other));
    }
}
