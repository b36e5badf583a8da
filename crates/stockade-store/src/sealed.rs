//! The 32 bytes of a private key, sealed under a passphrase, so that a copied file signs nothing.
//!
//! PBKDF2-HMAC-SHA-512 makes a key of the passphrase, AES-256-GCM seals the seed. What else stands in the file is bound as associated data by
//! whoever seals. A wrong passphrase is noticed by the cipher's tag, which is compared in constant time. No file is touched here.

use std::num::NonZeroU32;

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::pbkdf2;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// How often the passphrase is stirred; more than twice what is advised today for this hash.
const ITERATIONS: u32 = 600_000;
/// More than any file says; what says more is refused, so that reading one never takes minutes.
const MAX_ITERATIONS: u32 = 10_000_000;
/// The shortest passphrase that is taken for a new key.
pub const MIN_PASSPHRASE: usize = 8;

/// Why a seed cannot be sealed or opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Not what was sealed.
    #[error("{0}")]
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

/// A sealed seed, as files have it; all but the count in base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSeed {
    /// How often the passphrase is stirred.
    pub iterations: u32,
    /// What makes equal passphrases differ.
    pub salt: String,
    /// What makes equal seeds differ.
    pub nonce: String,
    /// The seed and the tag.
    pub sealed: String,
}

/// A new seed.
pub fn generate() -> Result<Zeroizing<[u8; 32]>, SealError> {
    let mut seed = Zeroizing::new([0; 32]);
    aws_lc_rs::rand::fill(seed.as_mut_slice()).map_err(|_| SealError::NoRandom)?;
    Ok(seed)
}

/// Seals a seed; `bound` is what else stands in the file.
pub fn seal(seed: &[u8; 32], passphrase: &[u8], bound: &str) -> Result<SealedSeed, SealError> {
    if String::from_utf8_lossy(passphrase).chars().count() < MIN_PASSPHRASE {
        return Err(SealError::Short);
    }
    let mut salt = [0; 32];
    aws_lc_rs::rand::fill(&mut salt).map_err(|_| SealError::NoRandom)?;
    let mut sealed = Zeroizing::new(Vec::with_capacity(48));
    sealed.extend_from_slice(seed);
    let cipher = cipher(passphrase, &salt, ITERATIONS)?;
    let nonce = cipher.seal_in_place_append_tag(associated(bound, ITERATIONS), &mut *sealed).map_err(|_| SealError::NoRandom)?;
    let (salt, nonce, sealed) = (STANDARD.encode(salt), STANDARD.encode(nonce.as_ref()), STANDARD.encode(&*sealed));
    Ok(SealedSeed { iterations: ITERATIONS, salt, nonce, sealed })
}

/// Opens it again.
pub fn open(sealed: &SealedSeed, passphrase: &[u8], bound: &str) -> Result<Zeroizing<[u8; 32]>, SealError> {
    let SealedSeed { iterations, salt, nonce, sealed } = sealed;
    if *iterations > MAX_ITERATIONS {
        return Err(SealError::Form(format!("it has {iterations} iterations")));
    }
    let decode = |text: &str| STANDARD.decode(text).map_err(|error| SealError::Form(error.to_string()));
    let (salt, nonce, sealed) = (decode(salt)?, decode(nonce)?, decode(sealed)?);
    let nonce = Nonce::try_assume_unique_for_key(&nonce).map_err(|_| SealError::Form("its nonce is cut".to_owned()))?;
    let mut opened = Zeroizing::new(sealed);
    let cipher = cipher(passphrase, &salt, *iterations)?;
    let seed = cipher.open_in_place(nonce, associated(bound, *iterations), &mut opened).map_err(|_| SealError::Wrong)?;
    Ok(Zeroizing::new(<[u8; 32]>::try_from(&*seed).map_err(|_| SealError::Wrong)?))
}

fn cipher(passphrase: &[u8], salt: &[u8], iterations: u32) -> Result<RandomizedNonceKey, SealError> {
    let iterations = NonZeroU32::new(iterations).ok_or_else(|| SealError::Form("it has no iterations".to_owned()))?;
    let mut key = Zeroizing::new([0; 32]);
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA512, iterations, salt, passphrase, key.as_mut_slice());
    RandomizedNonceKey::new(&AES_256_GCM, key.as_slice()).map_err(|_| SealError::NoRandom)
}

fn associated(bound: &str, iterations: u32) -> Aad<Vec<u8>> {
    Aad::from(format!("{bound}\n{iterations}").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_opens_with_its_passphrase_and_what_it_is_bound_to() {
        let seed = generate().unwrap();
        assert_eq!(seal(&seed, b"short", "x").unwrap_err(), SealError::Short);
        let sealed = seal(&seed, b"correct horse", "x").unwrap();
        assert_eq!(*open(&sealed, b"correct horse", "x").unwrap(), *seed);
        assert_eq!(open(&sealed, b"wrong horse", "x").unwrap_err(), SealError::Wrong);
        assert_eq!(open(&sealed, b"correct horse", "y").unwrap_err(), SealError::Wrong);
        let slow = SealedSeed { iterations: 4_000_000_000, ..sealed.clone() };
        assert!(matches!(open(&slow, b"correct horse", "x"), Err(SealError::Form(_))));
        let none = SealedSeed { iterations: 0, ..sealed };
        assert!(matches!(open(&none, b"correct horse", "x"), Err(SealError::Form(_))));
    }
}
