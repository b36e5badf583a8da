//! Keys: reading one out of a secret's value, what is shown of it, and its signatures; the signatures of hosts.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use russh::keys::signature::{Signer as _, Verifier as _};
use russh::keys::ssh_key::Signature;
use russh::keys::{Algorithm, Certificate, PrivateKey, PublicKey};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::wire::Reader;
use crate::secrets::SecretValue;

const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const END: &str = "-----END OPENSSH PRIVATE KEY-----";

/// A key, and a certificate for it where there is one.
pub struct Key {
    private: PrivateKey,
    /// As SSH writes it.
    public: Vec<u8>,
    certificate: Option<Vec<u8>>,
    ends: Option<SystemTime>,
}

/// A value that is no key; says nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// It is none.
    #[error("it is no private key of OpenSSH")]
    Form,
    /// Nobody could type the passphrase.
    #[error("it has a passphrase; use one without, which never leaves its store")]
    Passphrase,
    /// Of another kind.
    #[error("it is neither of the kind ed25519 nor ecdsa")]
    Kind,
    /// What follows is no certificate, or another key's.
    #[error("what follows it is no certificate of this key")]
    Certificate,
}

impl Key {
    /// Reads a value: a key in PEM without line breaks and, after a blank, perhaps its certificate.
    pub fn parse(value: &SecretValue) -> Result<Self, BadKey> {
        let text = std::str::from_utf8(value.expose()).map_err(|_| BadKey::Form)?;
        let (body, rest) = text.strip_prefix(BEGIN).and_then(|text| text.split_once(END)).ok_or(BadKey::Form)?;
        let decoded = Zeroizing::new(STANDARD.decode(body).map_err(|_| BadKey::Form)?);
        let private = PrivateKey::from_bytes(&decoded).map_err(|_| BadKey::Form)?;
        if private.is_encrypted() {
            return Err(BadKey::Passphrase);
        }
        if !matches!(private.algorithm(), Algorithm::Ed25519 | Algorithm::Ecdsa { .. }) {
            return Err(BadKey::Kind);
        }
        let public = private.public_key().to_bytes().map_err(|_| BadKey::Form)?;
        let certificate = match rest.trim() {
            "" => None,
            text => Some(certificate(text, &private).ok_or(BadKey::Certificate)?),
        };
        let ends = certificate.as_ref().and_then(Certificate::valid_before_time);
        let certificate = certificate.map(|certificate| certificate.to_bytes().map_err(|_| BadKey::Certificate)).transpose()?;
        Ok(Self { private, public, certificate, ends })
    }

    /// What programs may know of it.
    pub fn shown(&self) -> impl Iterator<Item = &[u8]> {
        // A host that wants a certificate takes no bare key, so the certificate comes first.
        self.certificate.as_deref().into_iter().chain([self.public.as_slice()])
    }

    /// When its certificate ends.
    pub fn ends(&self) -> Option<SystemTime> {
        self.ends
    }

    /// Its signature, as SSH writes it.
    pub fn sign(&self, data: &[u8]) -> Option<Vec<u8>> {
        let signature: Signature = self.private.try_sign(data).ok()?;
        Vec::try_from(signature).ok()
    }
}

/// A certificate of this key, for a user.
fn certificate(text: &str, private: &PrivateKey) -> Option<Certificate> {
    let certificate = Certificate::from_openssh(text).ok()?;
    let is_its = certificate.public_key() == private.public_key().key_data() && certificate.cert_type().is_user();
    is_its.then_some(certificate)
}

/// Whether a host's key made a signature over these bytes.
pub fn is_signed(host_key: &[u8], data: &[u8], signature: &[u8]) -> bool {
    let Ok(key) = PublicKey::from_bytes(host_key) else { return false };
    // Nothing behind it: what a host said is looked for by these bytes.
    let mut reader = Reader::new(signature);
    let whole = reader.string().is_some() && reader.string().is_some() && reader.end().is_some();
    let Ok(signature) = Signature::try_from(signature) else { return false };
    whole && key.algorithm() == signature.algorithm() && key.key_data().verify(data, &signature).is_ok()
}

/// A key as people compare it.
pub fn fingerprint(key: &[u8]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(key)))
}

/// The kind of a key or certificate.
pub fn kind(key: &[u8]) -> Option<&str> {
    Reader::new(key).name()
}
