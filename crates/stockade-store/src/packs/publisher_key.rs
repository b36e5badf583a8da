//! A publisher's private key on disk: encrypted under a passphrase, so that a copied file signs nothing.
//!
//! ```json
//! { "version": 1, "publisher": "acme", "public": "<64 hex>", "iterations": 600000, "salt": "…", "nonce": "…", "sealed": "…" }
//! ```
//!
//! How it is encrypted is `sealed`'s. Everything else in the file is bound as associated data. No file is touched here.

use serde::{Deserialize, Serialize};
use stockade_policy::pack::{PublicKey, PublisherName, SigningKey};

use crate::sealed::{self, MIN_PASSPHRASE, SealError, SealedSeed};

/// The form of the file.
const VERSION: u32 = 1;
/// Bytes of a key file at most.
const MAX_KEY_FILE: usize = 16 << 10;

/// Why a key file cannot be made or opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyFileError {
    /// Not a key file.
    #[error("it is not a publisher's key: {0}")]
    Form(String),
    /// A passphrase that is guessed at once.
    #[error("the passphrase has fewer than {MIN_PASSPHRASE} characters")]
    Short,
    /// Not this passphrase, or a changed file.
    #[error("the passphrase does not fit, or the file was changed")]
    Wrong,
    /// The system gives no random numbers, or the cipher fails.
    #[error("the key cannot be made: the system gives no random numbers")]
    NoRandom,
}

/// A publisher's key, opened.
#[derive(Debug)]
pub struct PublisherKey {
    /// Whose.
    pub publisher: PublisherName,
    /// The private half.
    pub signing: SigningKey,
    /// The public half.
    pub public: PublicKey,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    version: u32,
    publisher: PublisherName,
    public: String,
    iterations: u32,
    salt: String,
    nonce: String,
    sealed: String,
}

/// A new key.
pub fn generate_key(publisher: PublisherName) -> Result<PublisherKey, KeyFileError> {
    let signing = SigningKey::from_seed(*sealed::generate()?);
    let public = signing.public().map_err(|_| KeyFileError::NoRandom)?;
    Ok(PublisherKey { publisher, signing, public })
}

/// The bytes of a key file.
pub fn seal_key(key: &PublisherKey, passphrase: &[u8]) -> Result<Vec<u8>, KeyFileError> {
    let (publisher, public) = (key.publisher.clone(), key.public.to_hex());
    let SealedSeed { iterations, salt, nonce, sealed } = sealed::seal(key.signing.seed(), passphrase, &bound(&publisher, &public))?;
    let kept = Kept { version: VERSION, publisher, public, iterations, salt, nonce, sealed };
    let mut bytes = serde_json::to_vec_pretty(&kept).map_err(|error| KeyFileError::Form(error.to_string()))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Opens a key file.
pub fn open_key(bytes: &[u8], passphrase: &[u8]) -> Result<PublisherKey, KeyFileError> {
    if bytes.len() > MAX_KEY_FILE {
        return Err(KeyFileError::Form("it is too long".to_owned()));
    }
    let kept: Kept = serde_json::from_slice(bytes).map_err(|error| KeyFileError::Form(error.to_string()))?;
    let Kept { version, publisher, public, iterations, salt, nonce, sealed } = kept;
    if version != VERSION {
        return Err(KeyFileError::Form(format!("its version is {version}")));
    }
    let bound = bound(&publisher, &public);
    let seed = sealed::open(&SealedSeed { iterations, salt, nonce, sealed }, passphrase, &bound)?;
    let signing = SigningKey::from_seed(*seed);
    let public = signing.public().map_err(|_| KeyFileError::Wrong)?;
    Ok(PublisherKey { publisher, signing, public })
}

/// Lengths are fixed or separated by what no name holds.
fn bound(publisher: &PublisherName, public: &str) -> String {
    format!("stockade publisher key {VERSION}\n{publisher}\n{public}")
}

impl From<SealError> for KeyFileError {
    fn from(error: SealError) -> Self {
        match error {
            SealError::Form(why) => Self::Form(why),
            SealError::Short => Self::Short,
            SealError::Wrong => Self::Wrong,
            SealError::NoRandom => Self::NoRandom,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_opens_with_its_passphrase_alone() {
        let key = generate_key("acme".parse().unwrap()).unwrap();
        assert_eq!(seal_key(&key, b"short").unwrap_err(), KeyFileError::Short);
        let file = seal_key(&key, b"correct horse").unwrap();
        let opened = open_key(&file, b"correct horse").unwrap();
        assert_eq!((opened.public, opened.publisher.as_str()), (key.public.clone(), "acme"));
        assert_eq!(open_key(&file, b"wrong horse").unwrap_err(), KeyFileError::Wrong);
        let text = String::from_utf8(file).unwrap();
        assert_eq!(open_key(text.replace("acme", "evil").as_bytes(), b"correct horse").unwrap_err(), KeyFileError::Wrong);
        let slow = text.replace("600000", "4000000000");
        assert!(matches!(open_key(slow.as_bytes(), b"correct horse"), Err(KeyFileError::Form(_))));
        assert!(!text.contains(&super::super::file::hex(key.signing.seed())));
    }
}
