//! Rules that wait for a person: one file each beneath the state directory, named by a digest of what it proposes.
//!
//! Whoever is denied may propose; a proposal changes nothing until a person allows it. The same proposal made twice is one. There is a limit to how
//! many wait, so that nobody can bury one among others.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{PolicyError, digits, read};
use crate::places::Places;
use crate::private_dir::ensure_private_dir;

/// The directory beneath the state directory.
const DIRECTORY: &str = "proposals";
/// The form of a file.
const VERSION: u32 = 1;
/// Proposals that may wait.
pub const MAX_PROPOSALS: usize = 100;
/// Bytes of one proposal.
pub const MAX_PROPOSAL: usize = 64 << 10;
/// Digits of an id.
const ID: usize = 12;

/// A rule that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    /// See [`VERSION`].
    version: u32,
    /// Its name.
    pub id: String,
    /// When it was first made, in seconds since 1970.
    pub time: i64,
    /// Who would be allowed, as Cedar writes it.
    pub principal: String,
    /// What was asked for, as it was written.
    pub asked: String,
    /// Why, in the words of whoever proposes.
    pub reason: Option<String>,
    /// The rules that would be added.
    pub rules: Vec<String>,
}

/// A proposal before it has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Who would be allowed.
    pub principal: String,
    /// What was asked for.
    pub asked: String,
    /// Why.
    pub reason: Option<String>,
    /// The rules.
    pub rules: Vec<String>,
}

/// Puts a proposal where a person will find it.
pub fn propose(places: &Places, draft: Draft) -> Result<Proposal, PolicyError> {
    let directory = directory(places);
    let failed = |error: std::io::Error| PolicyError::Write(directory.clone(), error);
    ensure_private_dir(&directory).map_err(|error| failed(std::io::Error::other(error)))?;
    let id = id(&draft);
    let path = directory.join(format!("{id}.json"));
    if path.symlink_metadata().is_ok() {
        return proposal(places, &id);
    }
    if names(&directory)?.len() >= MAX_PROPOSALS {
        return Err(PolicyError::TooManyProposals);
    }
    let Draft { principal, asked, reason, rules } = draft;
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
    let proposal = Proposal { version: VERSION, id, time, principal, asked, reason, rules };
    let text = serde_json::to_vec_pretty(&proposal).map_err(|error| failed(error.into()))?;
    if text.len() > MAX_PROPOSAL {
        return Err(PolicyError::LongProposal);
    }
    let draft = path.with_extension(std::process::id().to_string());
    std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, &path)).map_err(failed)?;
    Ok(proposal)
}

/// All that wait, oldest first.
pub fn proposals(places: &Places) -> Result<Vec<Proposal>, PolicyError> {
    let directory = directory(places);
    let mut found = names(&directory)?.iter().map(|id| proposal(places, id)).collect::<Result<Vec<_>, _>>()?;
    found.sort_by(|one, other| (one.time, &one.id).cmp(&(other.time, &other.id)));
    Ok(found)
}

/// One that waits, by its id.
pub fn proposal(places: &Places, id: &str) -> Result<Proposal, PolicyError> {
    let unknown = || PolicyError::NoProposal(stockade_core::escape::escape(id));
    if !is_id(id) {
        return Err(unknown());
    }
    let path = directory(places).join(format!("{id}.json"));
    let text = match read::one(&path) {
        Ok(text) => text,
        Err(PolicyError::Read(_, error)) if error.kind() == std::io::ErrorKind::NotFound => return Err(unknown()),
        Err(error) => return Err(error),
    };
    let damaged = |why: String| PolicyError::TrustFile(path.clone(), why);
    let found: Proposal = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
    if found.version != VERSION {
        return Err(damaged(format!("its version is {}", found.version)));
    }
    // What a person was shown under this id is what they get.
    let Proposal { principal, asked, reason, rules, .. } = found.clone();
    if found.id != id || self::id(&Draft { principal, asked, reason, rules }) != id {
        return Err(damaged("its name is not that of its contents".to_owned()));
    }
    Ok(found)
}

/// Takes a proposal away; says whether there was one.
pub fn withdraw(places: &Places, id: &str) -> Result<bool, PolicyError> {
    if !is_id(id) {
        return Ok(false);
    }
    let path = directory(places).join(format!("{id}.json"));
    match std::fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(PolicyError::Write(path, error)),
    }
}

fn directory(places: &Places) -> PathBuf {
    places.state.join(DIRECTORY)
}

fn names(directory: &Path) -> Result<Vec<String>, PolicyError> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(PolicyError::Read(directory.to_owned(), error)),
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.strip_suffix(".json").filter(|id| is_id(id)).map(str::to_owned)).take(MAX_PROPOSALS).collect())
}

fn is_id(text: &str) -> bool {
    text.len() == ID && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Lengths go in as well, so that no two proposals look alike. The reason is left out: another one does not make another proposal.
fn id(draft: &Draft) -> String {
    let mut hash = Sha256::new();
    for part in [&draft.principal, &draft.asked].into_iter().chain(&draft.rules) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    digits(&hash.finalize()).chars().take(ID).collect()
}
