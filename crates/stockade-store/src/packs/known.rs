//! Which packs verified before, so that the next load need only look whether anything changed.
//!
//! What is kept are stamps (device, inode, size, time of change) of every directory and file of a pack, of its record and of the publishers'
//! keys, with a summary. Anything that is another than it was, or too young to tell, is verified from the beginning. It lies in the person's
//! private state: whoever can write there could install packs as well.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use stockade_policy::pack::PackName;

use super::builtin;
use super::file::{self, Stamp};
use super::load::{LoadedPack, Summary};
use super::publishers::Publishers;
use super::signature::Standing;
use crate::places::Places;
use crate::private_dir::ensure_private_dir;

/// The file beneath the state directory.
const FILE: &str = "packs-known.json";
/// Longer than any.
const MAX_BYTES: usize = 32 << 20;

/// The stamp of a pack's record, and those of its directories and files.
type Stamps = (Stamp, Vec<(String, Stamp)>);

/// What is known of one installed pack.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    stamps: Stamps,
    summary: Summary,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// Which program wrote it, with which built-in packs.
    program: String,
    publishers: Option<Stamp>,
    built_in: BTreeMap<String, Summary>,
    installed: BTreeMap<String, Entry>,
}

/// The file as a process read it last, so that it is read again only when it changed.
#[derive(Debug, Default)]
pub struct Remembered {
    last: Mutex<Option<(Stamp, Kept)>>,
}

impl Remembered {
    /// What the file says.
    fn kept(&self, path: &Path) -> Option<Kept> {
        let stamp = Stamp::at(path)?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, kept)) = last.as_ref().filter(|(known, _)| *known == stamp) {
            return Some(kept.clone());
        }
        let bytes = file::read(path, MAX_BYTES).ok().flatten()?;
        let kept: Kept = serde_json::from_slice(&bytes).ok()?;
        // One that is too young could change once more within the same instant.
        *last = (!stamp.is_young(now()) && Stamp::at(path) == Some(stamp)).then(|| (stamp, kept.clone()));
        Some(kept)
    }
}

/// What was known, and what is found out.
#[derive(Debug)]
pub(super) struct Known {
    before: Kept,
    program: String,
    publishers: Option<Stamp>,
    /// Of packs that verified, now or before.
    stamps: BTreeMap<String, Stamps>,
    is_changed: bool,
}

impl Known {
    /// What is known. Nothing, where the file is missing, damaged, of another program, or older than the keys.
    pub(super) fn load(places: &Places, remembered: &Remembered) -> Self {
        let program = format!("stockade {} {}", env!("CARGO_PKG_VERSION"), builtin::NUMBER);
        let publishers = Publishers::stamp(places);
        let mut before = remembered.kept(&path(places)).filter(|kept| kept.program == program).unwrap_or_default();
        let is_changed = before.publishers != publishers;
        if is_changed {
            before.installed.clear();
        }
        Self { before, program, publishers, stamps: BTreeMap::new(), is_changed }
    }

    /// A built-in pack of this very program.
    pub(super) fn built_in(&mut self, name: &str) -> Option<Summary> {
        let summary = self.before.built_in.remove(name);
        self.is_changed |= summary.is_none();
        summary
    }

    /// An installed pack of which nothing changed.
    pub(super) fn installed(&mut self, name: &PackName, directory: &Path, record: &Path) -> Option<Summary> {
        let Entry { stamps, summary } = self.before.installed.remove(name.as_str())?;
        let is_same = Stamp::at(record) == Some(stamps.0)
            && file::open_directory(directory)
                .is_some_and(|directory| stamps.1.iter().all(|(path, stamp)| Stamp::beneath(&directory, path) == Some(*stamp)));
        if !is_same {
            self.is_changed = true;
            return None;
        }
        self.stamps.insert(name.to_string(), stamps);
        Some(summary)
    }

    /// Keeps an installed pack that verified, unless it changed so recently that another change would not show.
    pub(super) fn remember(&mut self, name: &str, record: Stamp, stamps: Vec<(String, Stamp)>) {
        let now = now();
        if !record.is_young(now) && !stamps.iter().any(|(_, stamp)| stamp.is_young(now)) {
            self.stamps.insert(name.to_owned(), (record, stamps));
            self.is_changed = true;
        }
    }

    /// Writes it down where anything is new. Where it cannot be written everything is verified again, which does no harm.
    pub(super) fn store(mut self, places: &Places, packs: &[LoadedPack]) {
        // What is left was removed since.
        if !self.is_changed && self.before.installed.is_empty() {
            return;
        }
        let mut kept = Kept { program: self.program, publishers: self.publishers, ..Kept::default() };
        for pack in packs {
            let name = pack.name.to_string();
            if pack.standing == Standing::BuiltIn {
                kept.built_in.insert(name, pack.summary());
            } else if let Some(stamps) = self.stamps.remove(&name) {
                kept.installed.insert(name, Entry { stamps, summary: pack.summary() });
            }
        }
        if ensure_private_dir(&places.state).is_ok()
            && let Ok(bytes) = serde_json::to_vec(&kept)
        {
            let _ = file::write_lightly(&path(places), &bytes);
        }
    }
}

/// The time in seconds, as stamps have it.
fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(0))
}

fn path(places: &Places) -> PathBuf {
    places.state.join(FILE)
}
