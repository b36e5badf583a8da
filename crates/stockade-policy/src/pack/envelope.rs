//! The signature of a pack: a DSSE envelope. What is signed are the exact bytes of the payload with their type, never values that were
//! written out again.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::key::{PublicKey, SigningKey};

/// What the payload is; part of what is signed.
pub const PAYLOAD_TYPE: &str = "application/vnd.stockade.pack.v1+json";
/// Bytes of an envelope at most.
const MAX_ENVELOPE: usize = 1 << 20;
/// Signatures of one envelope at most.
const MAX_SIGNATURES: usize = 8;

/// Why an envelope is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Not an envelope.
    #[error("it is not a DSSE envelope: {0}")]
    Form(String),
    /// Another kind of payload.
    #[error("its payload is `{0}`, not a pack")]
    Type(String),
    /// Longer than any.
    #[error("it has more than {MAX_ENVELOPE} bytes or {MAX_SIGNATURES} signatures")]
    Large,
}

/// A payload and who signed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    payload: Vec<u8>,
    signatures: Vec<(String, Vec<u8>)>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(rename = "payloadType")]
    payload_type: String,
    payload: String,
    signatures: Vec<RawSignature>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSignature {
    keyid: String,
    sig: String,
}

impl Envelope {
    /// Reads an envelope. Nothing in it is believed yet.
    pub fn parse(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        if bytes.len() > MAX_ENVELOPE {
            return Err(EnvelopeError::Large);
        }
        let raw: Raw = serde_json::from_slice(bytes).map_err(|error| EnvelopeError::Form(error.to_string()))?;
        if raw.signatures.len() > MAX_SIGNATURES {
            return Err(EnvelopeError::Large);
        }
        if raw.payload_type != PAYLOAD_TYPE {
            return Err(EnvelopeError::Type(stockade_core::escape::escape(&raw.payload_type.chars().take(80).collect::<String>())));
        }
        let decode = |text: &str| STANDARD.decode(text).map_err(|error| EnvelopeError::Form(error.to_string()));
        let signatures = raw.signatures.iter().map(|one| Ok((one.keyid.clone(), decode(&one.sig)?))).collect::<Result<_, _>>()?;
        Ok(Self { payload: decode(&raw.payload)?, signatures })
    }

    /// Signs a payload.
    pub fn sign(payload: Vec<u8>, key: &SigningKey, key_id: &str) -> Self {
        let signature = key.sign(&authenticated(&payload)).to_vec();
        Self { payload, signatures: vec![(key_id.to_owned(), signature)] }
    }

    /// The ids of the keys that claim to have signed; a hint, and no more.
    pub fn key_ids(&self) -> impl Iterator<Item = &str> {
        self.signatures.iter().map(|(id, _)| id.as_str())
    }

    /// The payload, if this key signed it.
    pub fn verified_by(&self, key: &PublicKey) -> Option<&[u8]> {
        let message = authenticated(&self.payload);
        let signed = self.signatures.iter().any(|(id, signature)| id == key.id() && key.verifies(&message, signature));
        signed.then_some(self.payload.as_slice())
    }

    /// The payload, whoever signed it: only to tell people what it claims.
    pub fn unverified(&self) -> &[u8] {
        &self.payload
    }

    /// As JSON.
    pub fn to_bytes(&self) -> Vec<u8> {
        let signatures = self.signatures.iter().map(|(keyid, sig)| RawSignature { keyid: keyid.clone(), sig: STANDARD.encode(sig) });
        let raw = Raw { payload_type: PAYLOAD_TYPE.to_owned(), payload: STANDARD.encode(&self.payload), signatures: signatures.collect() };
        // Strings and lists always have a form in JSON.
        let mut bytes = serde_json::to_vec_pretty(&raw).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }
}

/// The pre-authentication encoding of DSSE version 1: lengths go in, so that no two pairs of type and payload look alike.
fn authenticated(payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {PAYLOAD_TYPE} {} ", PAYLOAD_TYPE.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed([seed; 32])
    }

    #[test]
    fn the_encoding_is_that_of_the_specification() {
        let expected = b"DSSEv1 37 application/vnd.stockade.pack.v1+json 11 hello world";
        assert_eq!(authenticated(b"hello world"), expected);
    }

    #[test]
    fn every_bit_counts() {
        let (signer, public) = (key(1), key(1).public().unwrap());
        let envelope = Envelope::sign(b"payload".to_vec(), &signer, public.id());
        let bytes = envelope.to_bytes();
        assert_eq!(Envelope::parse(&bytes).as_ref(), Ok(&envelope));
        assert_eq!(envelope.verified_by(&public), Some(&b"payload"[..]));
        assert_eq!(envelope.verified_by(&key(2).public().unwrap()), None);
        for index in 0..bytes.len() {
            let mut other = bytes.clone();
            other[index] ^= 1;
            let passes = Envelope::parse(&other).is_ok_and(|found| found.verified_by(&public).is_some() && found != envelope);
            assert!(!passes, "byte {index}");
        }
    }

    #[test]
    fn a_key_id_is_no_proof() {
        let public = key(1).public().unwrap();
        let forged = Envelope::sign(b"payload".to_vec(), &key(2), public.id());
        assert_eq!(forged.verified_by(&public), None);
    }

    #[test]
    fn other_shapes_are_refused() {
        let good = Envelope::sign(b"x".to_vec(), &key(1), "k").to_bytes();
        let text = String::from_utf8(good).unwrap();
        for bad in [
            String::new(),
            "{}".to_owned(),
            text.replace("signatures", "signature"),
            text.replace("keyid", "id"),
            text.replacen('{', "{\"more\": 1,", 1),
            text.replace("pack.v1", "pack.v2"),
            text.replace("eA==", "eA="),
            format!("{text}{text}"),
        ] {
            assert!(Envelope::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert_eq!(Envelope::parse(&vec![b' '; MAX_ENVELOPE + 1]), Err(EnvelopeError::Large));
    }
}
