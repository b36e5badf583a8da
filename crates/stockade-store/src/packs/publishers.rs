//! Whose signatures count: keys of publishers that a person trusts, and keys that must never count again.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stockade_core::escape::escape_bytes;
use stockade_policy::pack::{PublicKey, PublisherName};

use super::file::{self, Stamp};
use crate::places::Places;
use crate::private_dir::ensure_private_dir;

/// The file beneath the state directory.
const FILE: &str = "publishers.json";
/// The form of the file.
const VERSION: u32 = 1;
/// Longer than any list of keys.
const MAX_BYTES: usize = 1 << 20;

/// Why keys of publishers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PublishersError {
    /// They cannot be read.
    #[error("cannot read `{}`", shown(.0))]
    Read(PathBuf, #[source] io::Error),
    /// They cannot be written.
    #[error("cannot write `{}`", shown(.0))]
    Write(PathBuf, #[source] io::Error),
    /// They make no sense.
    #[error("`{}` is damaged: {}", shown(.0), .1)]
    Damaged(PathBuf, String),
    /// A key that was revoked.
    #[error("the key {0} was revoked, and never counts again")]
    Revoked(String),
    /// A key that is another publisher's.
    #[error("the key {id} is `{owner}`'s already")]
    OtherOwner {
        /// The key.
        id: String,
        /// Whose.
        owner: PublisherName,
    },
    /// A name or key that is not there.
    #[error("`{0}` is neither a publisher nor the id of a key here")]
    Unknown(String),
}

impl PublishersError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Unknown(_) => "see `stockade trust list`".to_owned(),
            Self::Revoked(_) => "get the publisher's new key".to_owned(),
            Self::OtherOwner { owner, .. } => format!("`stockade trust remove {owner}` first, if that was a mistake"),
            Self::Damaged(..) => "put it right, or remove it and trust your publishers' keys again; revoked keys are in it too".to_owned(),
            Self::Read(..) | Self::Write(..) => return None,
        })
    }
}

/// Whether a key's signatures count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyState {
    /// They count.
    Trusted,
    /// They never count again.
    Revoked,
}

impl KeyState {
    /// The word that people see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::Revoked => "revoked",
        }
    }
}

/// One key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publisher {
    /// Whose it is.
    pub name: PublisherName,
    /// The key.
    pub key: PublicKey,
    /// Whether its signatures count.
    pub state: KeyState,
}

/// All keys, by id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Publishers {
    keys: BTreeMap<String, Publisher>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    version: u32,
    keys: Vec<KeptKey>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptKey {
    publisher: PublisherName,
    key: String,
    state: KeyState,
}

impl Publishers {
    /// Reads them. A file that makes no sense is an error, never an empty list: a revoked key must not come back.
    pub fn load(places: &Places) -> Result<Self, PublishersError> {
        let path = path(places);
        let bytes = file::read(&path, MAX_BYTES).map_err(|error| PublishersError::Read(path.clone(), error))?;
        let Some(bytes) = bytes else { return Ok(Self::default()) };
        let damaged = |why: String| PublishersError::Damaged(path.clone(), why);
        let kept: Kept = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if kept.version != VERSION {
            return Err(damaged(format!("its version is {}", kept.version)));
        }
        let mut keys = BTreeMap::new();
        for KeptKey { publisher, key, state } in kept.keys {
            let key = PublicKey::parse(&key).map_err(|error| damaged(format!("a key of `{publisher}`: {error}")))?;
            keys.insert(key.id().to_owned(), Publisher { name: publisher, key, state });
        }
        Ok(Self { keys })
    }

    /// The key of this id.
    pub fn find(&self, id: &str) -> Option<&Publisher> {
        self.keys.get(id)
    }

    /// All keys, with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Publisher)> {
        self.keys.iter().map(|(id, publisher)| (id.as_str(), publisher))
    }

    /// Trusts a key.
    pub fn add(&mut self, name: PublisherName, key: PublicKey) -> Result<(), PublishersError> {
        let id = key.id().to_owned();
        match self.keys.get(&id) {
            Some(Publisher { state: KeyState::Revoked, .. }) => return Err(PublishersError::Revoked(id)),
            Some(found) if found.name != name => return Err(PublishersError::OtherOwner { id, owner: found.name.clone() }),
            Some(_) | None => {}
        }
        self.keys.insert(id, Publisher { name, key, state: KeyState::Trusted });
        Ok(())
    }

    /// Forgets trusted keys, by their id or by their publisher's name; gives back which. Revoked ones stay revoked.
    pub fn remove(&mut self, which: &str) -> Result<Vec<String>, PublishersError> {
        let ids = self.matching(which, |publisher| publisher.state == KeyState::Trusted)?;
        self.keys.retain(|id, _| !ids.contains(id));
        Ok(ids)
    }

    /// Revokes keys, by their id or by their publisher's name: what they signed does not load any more, and they cannot be added again.
    pub fn revoke(&mut self, which: &str) -> Result<Vec<String>, PublishersError> {
        let ids = self.matching(which, |_| true)?;
        for (id, publisher) in &mut self.keys {
            if ids.contains(id) {
                publisher.state = KeyState::Revoked;
            }
        }
        Ok(ids)
    }

    /// Writes them.
    pub fn store(&self, places: &Places) -> Result<(), PublishersError> {
        let path = path(places);
        let failed = |error: io::Error| PublishersError::Write(path.clone(), error);
        ensure_private_dir(&places.state).map_err(|error| failed(io::Error::other(error)))?;
        let keys = self.keys.values();
        let keys = keys.map(|one| KeptKey { publisher: one.name.clone(), key: one.key.to_hex(), state: one.state }).collect();
        let bytes = serde_json::to_vec_pretty(&Kept { version: VERSION, keys }).map_err(|error| failed(error.into()))?;
        file::write(&path, &bytes).map_err(failed)
    }

    /// What changes whenever they do.
    pub(super) fn stamp(places: &Places) -> Option<Stamp> {
        Stamp::at(&path(places))
    }

    fn matching(&self, which: &str, fits: impl Fn(&Publisher) -> bool) -> Result<Vec<String>, PublishersError> {
        let found = self.keys.iter().filter(|(id, publisher)| (*id == which || publisher.name.as_str() == which) && fits(publisher));
        let ids: Vec<String> = found.map(|(id, _)| id.clone()).collect();
        if ids.is_empty() { Err(PublishersError::Unknown(escape_bytes(which.as_bytes()))) } else { Ok(ids) }
    }
}

fn path(places: &Places) -> PathBuf {
    places.state.join(FILE)
}

fn shown(path: &Path) -> String {
    escape_bytes(path.as_os_str().as_encoded_bytes())
}
