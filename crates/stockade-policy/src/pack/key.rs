//! Publishers' keys: Ed25519, written as PEM (SPKI) or 64 hexadecimal digits, called by the first eight bytes of their SHA-256.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, VerifyingKey};
use sha2::{Digest, Sha256};
use stockade_core::secret::Secret;

/// What stands before the 32 bytes of an Ed25519 key in a `SubjectPublicKeyInfo` (RFC 8410).
const PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const END: &str = "-----END PUBLIC KEY-----";

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

/// A publisher's public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    key: VerifyingKey,
    id: String,
}

impl PublicKey {
    /// From the 32 bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<Self, BadKey> {
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| BadKey::Point)?;
        if key.is_weak() {
            return Err(BadKey::Point);
        }
        Ok(Self { id: hex(Sha256::digest(bytes).first_chunk::<8>().unwrap_or(&[0; 8])), key })
    }

    /// From PEM, or from 64 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, BadKey> {
        let text = text.trim();
        if let Some(bytes) = from_hex(text) {
            return Self::from_bytes(bytes);
        }
        let inner = text.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END)).ok_or(BadKey::Form)?;
        let base64: String = inner.split_ascii_whitespace().collect();
        let der = STANDARD.decode(base64).map_err(|_| BadKey::Form)?;
        let bytes = der.strip_prefix(&PREFIX).and_then(|rest| <[u8; 32]>::try_from(rest).ok()).ok_or(BadKey::Form)?;
        Self::from_bytes(bytes)
    }

    /// As PEM.
    pub fn to_pem(&self) -> String {
        format!("{BEGIN}\n{}\n{END}\n", STANDARD.encode([PREFIX.as_slice(), self.key.as_bytes()].concat()))
    }

    /// As 64 hexadecimal digits.
    pub fn to_hex(&self) -> String {
        hex(self.key.as_bytes())
    }

    /// What it is called.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether this key signed these bytes. Strict: no signature has a second form that passes too.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        Signature::from_slice(signature).is_ok_and(|signature| self.key.verify_strict(message, &signature).is_ok())
    }
}

/// A publisher's private key. It is wiped when it goes away.
#[derive(Debug)]
pub struct SigningKey(Secret<[u8; 32]>);

impl SigningKey {
    /// From the 32 bytes of its seed.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(Secret::new(seed))
    }

    /// Its seed, to be kept encrypted.
    pub fn seed(&self) -> &[u8; 32] {
        self.0.expose()
    }

    /// Its public half.
    pub fn public(&self) -> Result<PublicKey, BadKey> {
        PublicKey::from_bytes(ed25519_dalek::SigningKey::from_bytes(self.0.expose()).verifying_key().to_bytes())
    }

    /// Signs these bytes.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        ed25519_dalek::SigningKey::from_bytes(self.0.expose()).sign(message).to_bytes()
    }
}

/// Lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut digits, byte| {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back() {
        let public = SigningKey::from_seed([7; 32]).public().unwrap();
        assert_eq!(PublicKey::parse(&public.to_pem()), Ok(public.clone()));
        assert_eq!(PublicKey::parse(&format!(" {}\n", public.to_hex())), Ok(public.clone()));
        for bad in ["", "x", &public.to_pem().replace("PUBLIC", "PRIVATE"), &"g".repeat(64)] {
            assert_eq!(PublicKey::parse(bad), Err(BadKey::Form), "{bad}");
        }
        assert_eq!(PublicKey::from_bytes([0; 32]), Err(BadKey::Point), "a point of small order");
        assert!(!format!("{:?}", SigningKey::from_seed([7; 32])).contains('7'));
    }
}
