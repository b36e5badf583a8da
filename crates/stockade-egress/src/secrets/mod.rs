//! Secrets on their way out and back: bindings, values, substitution in requests, scrubbing of answers.
//!
//! Inside the sandbox there is only a placeholder. The value is asked for when a request to a bound host carries it, put in here,
//! and taken out of whatever comes back. Where values are kept and how placeholders are made is the broker's.

pub mod basic;
pub mod binding;
pub mod needles;
pub mod scrub;
pub mod substitute;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use stockade_core::id::SandboxId;
use zeroize::Zeroizing;

/// Values shorter than this cannot be told from ordinary text in an answer, so they are refused.
pub const MIN_VALUE: usize = 16;
/// The longest value: a key file, not an archive.
pub const MAX_VALUE: usize = 16 << 10;

/// A value, wiped from memory when it is dropped; never shown.
#[derive(Clone)]
pub struct SecretValue(Arc<Zeroizing<Vec<u8>>>);

impl SecretValue {
    /// Takes a value that can travel in a header and can be found again.
    pub fn new(bytes: Vec<u8>) -> Result<Self, BadValue> {
        let bytes = Zeroizing::new(bytes);
        match bytes.len() {
            0..MIN_VALUE => return Err(BadValue::Short),
            MIN_VALUE..=MAX_VALUE => {}
            _ => return Err(BadValue::Long),
        }
        if bytes.iter().any(|byte| *byte < 0x20 || *byte >= 0x7f) {
            return Err(BadValue::NotText);
        }
        Ok(Self(Arc::new(bytes)))
    }

    /// The value. Whoever asks must not keep, print or log it.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Whether this is the same value object as before: then what was computed from it still holds.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A value that is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadValue {
    /// Too short.
    #[error("it is shorter than {MIN_VALUE} bytes, so it cannot be found again in answers")]
    Short,
    /// Too long.
    #[error("it is longer than {MAX_VALUE} bytes")]
    Long,
    /// Control characters or bytes outside ASCII.
    #[error("it has characters that no header can carry")]
    NotText,
}

/// What a look-up gives: a value, or why there is none (shown to the sandbox, so without the value).
pub type LookUp<'a> = Pin<Box<dyn Future<Output = Result<SecretValue, String>> + Send + 'a>>;

/// Where values come from. Asked once for each request that carries a placeholder, so it answers from memory as a rule; it fails
/// rather than give a value that has expired.
pub trait Secrets: Send + Sync + 'static {
    /// The value of this secret for this sandbox, now.
    fn value<'a>(&'a self, sandbox: &'a SandboxId, name: &'a str) -> LookUp<'a>;

    /// Keeps values that a server handed out in the place of those known. Where they cannot be kept the answer is not passed on.
    fn renew(&self, _sandbox: &SandboxId, _renewed: Renewed) -> Result<(), String> {
        Err("nobody keeps new values".to_owned())
    }
}

/// Values that a server handed out.
#[derive(Debug)]
pub struct Renewed {
    /// By the names of their secrets.
    pub tokens: Vec<(String, SecretValue)>,
    /// For how many seconds the first is good, where the server says.
    pub lasts: Option<u64>,
}

/// No secrets at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSecrets;

impl Secrets for NoSecrets {
    fn value<'a>(&'a self, _sandbox: &'a SandboxId, _name: &'a str) -> LookUp<'a> {
        Box::pin(std::future::ready(Err("there is no store of secrets".to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_and_never_shown() {
        assert_eq!(SecretValue::new(b"short".to_vec()).err(), Some(BadValue::Short));
        assert_eq!(SecretValue::new(vec![b'a'; MAX_VALUE + 1]).err(), Some(BadValue::Long));
        assert_eq!(SecretValue::new(b"0123456789abcdef\r\nx: y".to_vec()).err(), Some(BadValue::NotText));
        let value = SecretValue::new(b"0123456789abcdef".to_vec()).unwrap();
        assert_eq!(format!("{value:?}"), "***");
    }
}
