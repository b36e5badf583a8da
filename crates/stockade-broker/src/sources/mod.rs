//! Where a value comes from: the store, the caller's variable, a file, what a program prints, or a provider (see [`crate::mint`]).
//!
//! Without a setting for a secret: the store, else the caller's variable of that name. With one: that source alone. Nothing is guessed, and a
//! source that fails is a failure, never a step to the next one.

pub(crate) mod command;
mod file;
mod keys;
mod output;
mod slot;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use stockade_core::escape::escape_bytes;
use stockade_store::settings::SecretSource;
use zeroize::Zeroizing;

use crate::mint::{self, Asking, MintError, Minted, Revoke, Verdict};
use crate::store::{Store, StoreError};
use crate::{BadSecretValue, SecretName, SecretValue};
pub(crate) use slot::Slot;

/// After this long a value that names no end is asked for again, so that a changed one is noticed.
const FRESH: Duration = Duration::from_mins(1);
/// The same for what a program printed, which costs more.
const FRESH_COMMAND: Duration = Duration::from_mins(5);
/// A value is asked for again this long before its end, or after four fifths of its time where that is shorter.
const AHEAD: Duration = Duration::from_mins(1);

/// A value and for how long it is good.
pub struct Lease {
    /// The value.
    pub value: SecretValue,
    /// Parts of it that must not be written down either.
    pub parts: Vec<SecretValue>,
    /// What a placeholder is to look like, where that is not the value itself.
    pub face: Option<SecretValue>,
    /// Whom it speaks for and what it is good for, where a provider minted it.
    pub scope: Option<String>,
    /// After this it is worthless.
    pub expires: Option<SystemTime>,
    /// After this it is asked for again.
    pub fresh_until: SystemTime,
    /// Gives it back.
    pub(crate) revoke: Mutex<Option<Revoke>>,
    /// What went wrong on the way, until somebody was told.
    pub(crate) note: Mutex<Option<String>>,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("expires", &self.expires).field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl Lease {
    /// What a placeholder is to look like.
    pub(crate) fn face(&self) -> &SecretValue {
        self.face.as_ref().unwrap_or(&self.value)
    }

    /// Of what a provider gave.
    fn minted(minted: Minted, now: SystemTime) -> Self {
        let Minted { value, parts, face, expires, scope, revoke, note } = minted;
        let (revoke, note) = (Mutex::new(revoke), Mutex::new(note));
        Self { parts, face, scope: Some(scope), revoke, note, ..Self::new(value, expires, now, FRESH_COMMAND) }
    }

    /// Whether it may still be used at all.
    pub(crate) fn is_usable(&self, now: SystemTime) -> bool {
        now < self.expires.unwrap_or(self.fresh_until)
    }

    /// Whether it may be used without asking again.
    pub(crate) fn is_fresh(&self, now: SystemTime) -> bool {
        now < self.fresh_until && self.is_usable(now)
    }

    fn new(value: SecretValue, expires: Option<SystemTime>, now: SystemTime, fresh: Duration) -> Self {
        let fresh_until = expires.map_or(now + fresh, |end| {
            let left = end.duration_since(now).unwrap_or_default();
            now + left.saturating_sub(AHEAD.min(left / 5))
        });
        let (face, parts) = keys::read(&value).map_or((None, Vec::new()), |(face, parts)| (Some(face), parts));
        Self { value, parts, face, scope: None, expires, fresh_until, revoke: Mutex::default(), note: Mutex::default() }
    }
}

/// Where sources look.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The secret store.
    pub store: Store,
    /// Where programs are found; only absolute directories count.
    pub path: OsString,
    /// Where programs are started.
    pub home: PathBuf,
}

/// Why a source gave no value.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Nobody has one.
    #[error(
        "there is no value for the secret `{0}`: it is not in the secret store, and the caller's environment has no variable of that name"
    )]
    Nowhere(SecretName),
    /// The store has none.
    #[error("the secret `{0}` is not in the secret store")]
    NotKept(SecretName),
    /// The variable is not set.
    #[error("the caller's environment has no variable `{variable}`, where the settings say the secret `{name}` is")]
    NoVariable {
        /// Which secret.
        name: SecretName,
        /// Which variable.
        variable: SecretName,
    },
    /// The store failed.
    #[error("the secret store failed")]
    Store(#[from] StoreError),
    /// A file cannot be read.
    #[error("cannot read the file of the secret `{name}`, `{}`", shown(.path))]
    File {
        /// Which secret.
        name: SecretName,
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file that others may change, or that is no file.
    #[error("the file of the secret `{name}`, `{}`, is not used: {why}", shown(.path))]
    FileRefused {
        /// Which secret.
        name: SecretName,
        /// Which file.
        path: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// A program failed.
    #[error("the command of the secret `{name}` gave no value: {why}")]
    Command {
        /// Which secret.
        name: SecretName,
        /// Why.
        why: String,
    },
    /// What was found is no value.
    #[error("what is there for the secret `{name}` cannot be used")]
    Value {
        /// Which secret.
        name: SecretName,
        /// Why.
        #[source]
        source: BadSecretValue,
    },
    /// A provider gave none.
    #[error("`{adapter}` gave no value for the secret `{name}`")]
    Mint {
        /// Which secret.
        name: SecretName,
        /// Which provider.
        adapter: &'static str,
        /// At which step, and why.
        #[source]
        source: MintError,
    },
    /// It would be asked for with itself.
    #[error("the secret `{name}` cannot be had: it is needed to ask for itself ({way})")]
    Circle {
        /// Which secret.
        name: SecretName,
        /// From it back to where that began.
        way: String,
    },
    /// It is over.
    #[error("the value of the secret `{0}` is past its end already")]
    Expired(SecretName),
}

impl SourceError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Nowhere(name) | Self::NotKept(name) => Some(format!("keep it once: stockade secret set {name}")),
            Self::NoVariable { variable, .. } => Some(format!("export {variable} before you start")),
            Self::Store(error) => error.hint(),
            Self::FileRefused { path, .. } => Some(format!("chmod go-w '{}'", shown(path))),
            Self::Command { .. } => Some("run the command by hand to see what it says".to_owned()),
            Self::Value { name, .. } => Some(format!("see where it comes from: stockade secret list; or stockade secret set {name}")),
            Self::Mint { name, source, .. } => {
                Some(source.hint.clone().unwrap_or_else(|| format!("see what `secrets.{name}` says: stockade config get secrets")))
            }
            Self::Circle { name, .. } => Some(format!("see which secret `secrets.{name}` names: stockade config get secrets")),
            Self::File { .. } | Self::Expired(_) => None,
        }
    }

    /// Whether a provider has looked at what it was asked with, and refuses it.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Mint { source: MintError { verdict: Verdict::Refused, .. }, .. })
    }
}

/// Runs a program of the person's own that knows a login (`gh auth token`, `docker-credential-…`), as the program of a setting is run; what it printed.
pub fn ask_program(argv: &[String], input: &[u8], around: &Surroundings) -> Result<Zeroizing<Vec<u8>>, String> {
    command::run_with(argv, input, around).map_err(|error| error.to_string())
}

/// Asks a source that does not depend on the caller. `None`: the store was asked without a setting, and has none.
pub(crate) fn fetch(name: &SecretName, source: Option<&SecretSource>, asking: &Asking<'_>) -> Result<Option<Lease>, SourceError> {
    let (around, now) = (asking.around, asking.now);
    match source {
        None => Ok(around.store.get(name)?.map(|value| Lease::new(value, None, now, FRESH))),
        Some(SecretSource::Store) => match around.store.get(name)? {
            Some(value) => Ok(Some(Lease::new(value, None, now, FRESH))),
            None => Err(SourceError::NotKept(name.clone())),
        },
        // The caller's own value came with the sandbox; there is nothing to ask.
        Some(SecretSource::Env { .. }) => Ok(None),
        Some(SecretSource::File { path }) => file::read(name, path).map(|value| Some(Lease::new(value, None, now, FRESH))),
        Some(SecretSource::Command { argv }) => {
            let printed = command::run(argv, around).map_err(|why| SourceError::Command { name: name.clone(), why: why.to_string() })?;
            output::read(name, printed, now).map(|(value, expires)| Some(Lease::new(value, expires, now, FRESH_COMMAND)))
        }
        Some(SecretSource::Provider(provider)) => {
            let failed = |source| SourceError::Mint { name: name.clone(), adapter: provider.word(), source };
            let minted = mint::mint(provider, asking).map_err(failed)?;
            if minted.expires.is_some_and(|end| end <= now) {
                return Err(SourceError::Expired(name.clone()));
            }
            Ok(Some(Lease::minted(minted, now)))
        }
    }
}

/// The caller's own value as a lease: it cannot change, so only the asking is repeated.
pub(crate) fn of_caller(value: &SecretValue, now: SystemTime) -> Lease {
    Lease::new(value.duplicate(), None, now, FRESH)
}

fn shown(path: &std::path::Path) -> String {
    escape_bytes(path.as_os_str().as_encoded_bytes())
}
