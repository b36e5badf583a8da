//! Secrets at rest: one sealed file for each, and the key that seals them in a file of its own.
//!
//! ```text
//! $XDG_STATE_HOME/stockade/secrets/   0700, ours
//!   key            0600, made with the first secret
//!   NAME.secret    0600, sealed (see `seal`), replaced whole
//!   lock           held by writers
//!   NAME.turn      held by who has a value replaced by somebody else, from reading it to writing the new one
//! ```
//!
//! Names are plain in the directory; values and their lengths' exact bytes are not. Who can read the key file can read everything: the
//! file protects against other users, backups of single entries and careless copies, not against programs of the same user.
//!
//! Where the key is held is the one thing that differs from machine to machine ([`Keeper`]). A keychain of the operating system would hold
//! the key, not the secrets. On Linux there is none that works on a server: the kernel's keyring forgets at logout, and
//! the Secret Service needs a desktop session, so there the key is a file.

pub mod error;
mod place;
mod seal;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use error::StoreError;

use crate::{SecretName, SecretValue};
use place::{Lock, Place};
use seal::{KEY_FILE, Key, MAX_ENTRY, Unusable};

/// The most secrets in a store.
pub const MAX_SECRETS: usize = 1000;
const KEY: &str = "key";
const ENDING: &str = ".secret";
const TURN: &str = ".turn";
/// How long one waits for a turn: for the few who were there first, each with a slow server.
const TURN_WAIT: Duration = Duration::from_mins(2);

/// A secret store. Nothing is read or made until it is asked.
#[derive(Debug, Clone)]
pub struct Store {
    path: PathBuf,
}

/// A turn at one secret; it ends when this is dropped, and with the process.
pub(crate) struct Turn {
    _lock: Lock,
}

/// Who holds the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeper {
    /// A file of mode 0600 beside the entries.
    KeyFile,
}

/// What `set` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// There was none of that name.
    New,
    /// There was, and it is gone.
    Replaced,
}

/// What `remove` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// It is gone.
    Gone,
    /// There was none of that name.
    NotThere,
}

/// One secret of the store, without its value.
#[derive(Debug)]
pub struct Listed {
    /// Its name.
    pub name: SecretName,
    /// When it was set, or why its file cannot be used.
    pub created: Result<SystemTime, StoreError>,
}

impl Store {
    /// The store beneath a state directory.
    pub fn beneath(state: &Path) -> Self {
        Self { path: state.join("secrets") }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Who holds its key.
    pub fn keeper(&self) -> Keeper {
        Keeper::KeyFile
    }

    /// Keeps a value under a name.
    pub fn set(&self, name: &SecretName, value: &SecretValue, now: SystemTime) -> Result<Kept, StoreError> {
        let place = Place::create(&self.path)?;
        let lock = place.lock()?;
        let names = entries(&place)?;
        let there = names.contains(name);
        if !there && names.len() >= MAX_SECRETS {
            return Err(StoreError::Full(names.len()));
        }
        let key = match read_key(&place)? {
            Some(key) => key,
            None if names.is_empty() => make_key(&place, &lock)?,
            None => return Err(StoreError::NoKey(place.path_of(KEY))),
        };
        let created = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let entry = key.seal(name, created, value).ok_or(StoreError::Crypto)?;
        place.replace(&file_of(name), &entry, &lock)?;
        Ok(if there { Kept::Replaced } else { Kept::New })
    }

    /// Waits until nobody else, of any process, has a turn at this secret: a value that is good once is read and replaced by one at a time.
    /// Anybody may still read and write it.
    pub(crate) fn turn(&self, name: &SecretName) -> Result<Turn, StoreError> {
        Place::create(&self.path)?.lock_at(&format!("{name}{TURN}"), TURN_WAIT).map(|lock| Turn { _lock: lock })
    }

    /// The value kept under a name.
    pub fn get(&self, name: &SecretName) -> Result<Option<SecretValue>, StoreError> {
        let Some(place) = Place::open(&self.path)? else { return Ok(None) };
        let Some(entry) = place.read(&file_of(name), MAX_ENTRY)? else { return Ok(None) };
        let key = read_key(&place)?.ok_or_else(|| StoreError::NoKey(place.path_of(KEY)))?;
        let path = place.path_of(&file_of(name));
        let bytes = key.open(name, &entry).map_err(|unusable| explain(unusable, path, place.path_of(KEY)))?;
        SecretValue::new(bytes).map(Some).map_err(|source| StoreError::Value { name: name.clone(), source })
    }

    /// Forgets what is kept under a name. Needs no key, so that a store whose key is gone can be cleared.
    pub fn remove(&self, name: &SecretName) -> Result<Removed, StoreError> {
        let Some(place) = Place::open(&self.path)? else { return Ok(Removed::NotThere) };
        let lock = place.lock()?;
        Ok(if place.remove(&file_of(name), &lock)? { Removed::Gone } else { Removed::NotThere })
    }

    /// Every secret, sorted by name. No value is opened.
    pub fn list(&self) -> Result<Vec<Listed>, StoreError> {
        let Some(place) = Place::open(&self.path)? else { return Ok(Vec::new()) };
        let mut listed = Vec::new();
        for name in entries(&place)? {
            let created = match place.read(&file_of(&name), MAX_ENTRY) {
                // Removed since it was listed.
                Ok(None) => continue,
                Ok(Some(entry)) => seal::created(&entry)
                    .map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds.min(u64::from(u32::MAX))))
                    .map_err(|unusable| explain(unusable, place.path_of(&file_of(&name)), place.path_of(KEY))),
                Err(error) => Err(error),
            };
            listed.push(Listed { name, created });
        }
        Ok(listed)
    }

    /// Opens every secret and says how many there are, or what is wrong with the first that does not open.
    pub fn check(&self) -> Result<usize, StoreError> {
        let listed = self.list()?;
        for secret in &listed {
            self.get(&secret.name)?;
        }
        Ok(listed.len())
    }
}

fn file_of(name: &SecretName) -> String {
    format!("{name}{ENDING}")
}

fn entries(place: &Place) -> Result<Vec<SecretName>, StoreError> {
    Ok(place.names()?.iter().filter_map(|file| file.strip_suffix(ENDING)?.parse().ok()).collect())
}

fn read_key(place: &Place) -> Result<Option<Key>, StoreError> {
    let Some(file) = place.read(KEY, KEY_FILE)? else { return Ok(None) };
    Key::from_file(&file).map(Some).map_err(|unusable| explain(unusable, place.path_of(KEY), place.path_of(KEY)))
}

fn make_key(place: &Place, lock: &Lock) -> Result<Key, StoreError> {
    let key = Key::generate().ok_or(StoreError::Crypto)?;
    place.replace(KEY, &key.to_file(), lock)?;
    Ok(key)
}

fn explain(unusable: Unusable, path: PathBuf, key: PathBuf) -> StoreError {
    match unusable {
        Unusable::Format(why) => StoreError::Damaged { path, why },
        Unusable::Newer(version) => StoreError::Newer { path, version },
        Unusable::OtherKey => StoreError::OtherKey { path, key },
        Unusable::Changed => StoreError::Damaged { path, why: "it was changed, or moved from another name, since it was written" },
    }
}
