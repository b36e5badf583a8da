//! Which packs verified before, so that the next load need only look whether anything changed.
//!
//! What is kept are stamps (device, inode, size, time of change) of every directory and file of a pack, of its record and of the publishers'
//! keys, with a summary. Anything that is another than it was, or too young to tell, is verified from the beginning. It lies in the person's
//! private state: whoever can write there could install packs as well.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use stockade_policy::pack::PackName;

use super::builtin;
use super::file::{self, Stamp};
use super::install::{files_directory, packs_directory, record_path};
use super::load::{LoadedPack, Packs, Summary};
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

/// What a process found last: the file, so that it is read again only when it changed, and all packs, so that they are put together again only when
/// anything of them did.
#[derive(Debug, Default)]
pub struct Remembered {
    last: Mutex<Option<(Stamp, Kept)>>,
    packs: Mutex<Option<(Proof, Arc<Packs>)>>,
}

/// Everything that packs were put together from, as it was then.
#[derive(Debug, Clone)]
pub(super) struct Proof {
    publishers: Option<Stamp>,
    /// Of the directory that holds them: it changes with each that comes or goes.
    directory: Option<Stamp>,
    installed: Vec<(PackName, Stamps)>,
}

impl Proof {
    fn still_holds(&self, places: &Places) -> bool {
        Publishers::stamp(places) == self.publishers
            && Stamp::at(&packs_directory(places)) == self.directory
            && self.installed.iter().all(|(name, stamps)| is_same(&files_directory(places, name), &record_path(places, name), stamps))
    }
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

    /// All packs, if nothing of them changed since they were put together.
    pub(super) fn packs(&self, places: &Places) -> Option<Arc<Packs>> {
        let (proof, packs) = self.packs.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        proof.still_holds(places).then_some(packs)
    }

    /// Keeps all packs with what they were put together from; `proof` is none where something is not known by its stamps alone.
    pub(super) fn keep(&self, proof: Option<Proof>, packs: &Arc<Packs>) {
        *self.packs.lock().unwrap_or_else(PoisonError::into_inner) = proof.map(|proof| (proof, Arc::clone(packs)));
    }
}

/// What was known, and what is found out.
#[derive(Debug)]
pub(super) struct Known {
    before: Kept,
    program: String,
    publishers: Option<Stamp>,
    directory: Option<Stamp>,
    /// Of packs that verified, now or before.
    stamps: BTreeMap<String, Stamps>,
    is_changed: bool,
}

impl Known {
    /// What is known. Nothing, where the file is missing, damaged, of another program, or older than the keys.
    pub(super) fn load(places: &Places, remembered: &Remembered) -> Self {
        let program = format!("stockade {} {}", env!("CARGO_PKG_VERSION"), builtin::NUMBER);
        let (publishers, directory) = (Publishers::stamp(places), Stamp::at(&packs_directory(places)));
        let mut before = remembered.kept(&path(places)).filter(|kept| kept.program == program).unwrap_or_default();
        let is_changed = before.publishers != publishers;
        if is_changed {
            before.installed.clear();
        }
        Self { before, program, publishers, directory, stamps: BTreeMap::new(), is_changed }
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
        if !is_same(directory, record, &stamps) {
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

    /// What these packs were put together from; none where one of them, or what is beside them, is too young to be known by its stamps.
    pub(super) fn proof(&self, packs: &[LoadedPack]) -> Option<Proof> {
        let now = now();
        let are_old = [self.publishers, self.directory].into_iter().flatten().all(|stamp| !stamp.is_young(now));
        let installed = packs.iter().filter(|pack| pack.standing != Standing::BuiltIn);
        let installed = installed.map(|pack| Some((pack.name.clone(), self.stamps.get(pack.name.as_str())?.clone())));
        let installed: Vec<_> = installed.collect::<Option<_>>()?;
        are_old.then_some(Proof { publishers: self.publishers, directory: self.directory, installed })
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

/// Whether nothing of a pack changed.
fn is_same(directory: &Path, record: &Path, stamps: &Stamps) -> bool {
    Stamp::at(record) == Some(stamps.0)
        && file::open_directory(directory)
            .is_some_and(|directory| stamps.1.iter().all(|(path, stamp)| Stamp::beneath(&directory, path) == Some(*stamp)))
}

/// The time in seconds, as stamps have it.
fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(0))
}

fn path(places: &Places) -> PathBuf {
    places.state.join(FILE)
}
