//! The value of a secret for SSH: a private key as OpenSSH writes it, on one line, and a certificate behind it where there is one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use russh::keys::{Certificate, PrivateKey};
use zeroize::Zeroizing;

use crate::secrets::SecretValue;

const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const END: &str = "-----END OPENSSH PRIVATE KEY-----";
/// What a key of RSA begins with, inside.
const RSA: &[u8] = b"\x00\x00\x00\x07ssh-rsa";
const NO_RSA: &str = "it is a key of RSA, which is not used here; make another with `ssh-keygen -t ed25519` and register it at the host";

/// What one logs in with. The key wipes itself when it is dropped.
pub(super) struct Identity {
    pub(super) key: PrivateKey,
    pub(super) certificate: Option<Certificate>,
}

impl Identity {
    /// Reads a value. The error says nothing of it but what is wrong.
    pub(super) fn parse(value: &SecretValue) -> Result<Self, &'static str> {
        let form = "it is no private key as OpenSSH writes it (`-----BEGIN OPENSSH PRIVATE KEY-----`); make one with `ssh-keygen -t ed25519 -N ''`";
        let text = std::str::from_utf8(value.expose()).map_err(|_| form)?;
        let (body, rest) = text.strip_prefix(BEGIN).and_then(|text| text.split_once(END)).ok_or(form)?;
        let body: Zeroizing<Vec<u8>> = Zeroizing::new(body.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect());
        let bytes = Zeroizing::new(STANDARD.decode(&*body).map_err(|_| form)?);
        if bytes.windows(RSA.len()).any(|part| part == RSA) {
            return Err(NO_RSA);
        }
        let key = PrivateKey::from_bytes(&bytes).map_err(|_| form)?;
        if key.is_encrypted() {
            return Err("it is locked with a passphrase, which nobody is there to type; keep it without (`ssh-keygen -p -N ''` on a copy)");
        }
        let rest = rest.trim();
        if rest.is_empty() {
            return Ok(Self { key, certificate: None });
        }
        let certificate = Certificate::from_openssh(rest).map_err(|_| "what follows the key is no certificate of OpenSSH")?;
        if certificate.public_key() != key.public_key().key_data() {
            return Err("the certificate is of another key");
        }
        Ok(Self { key, certificate: Some(certificate) })
    }
}
