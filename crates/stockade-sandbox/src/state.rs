//! Sandboxes on disk: one private directory each, a lock that says whether its owner lives, a record that says what it is.
//!
//! ```text
//! <state>/guest/             the guest program, one file per build of it
//! <state>/sandboxes/<id>/   0700
//!     lock                  held (flock) by the owner for as long as the sandbox runs
//!     record.json           what it is; written once complete, by rename
//!     layer/{upper,work}    what the workspace's overlay collected
//!     mounts/<n>/…          the same for further overlays
//!     quarantine/           protected files that appeared in a `rw` workspace
//! ```
//!
//! A directory whose lock is free belongs to nobody: the next start removes it, unless its record says that its overlay is kept.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use stockade_core::id::{SandboxId, SandboxName};
use stockade_core::limits::Limit;
use stockade_core::result::Change;
use stockade_core::spec::MountMode;

use crate::guard::Guard;
use crate::killed::{self, Left};
use crate::workspace::change::{Moment, Stamp};
use crate::workspace::{remove, strays};

/// Version of the record's format.
const RECORD_VERSION: u32 = 1;
/// Before the name of a directory that is being removed.
const DEAD: &str = ".dead-";
/// What of a sandbox's directory lasts longer than one job.
const LASTING: [&str; 3] = ["lock", "record.json", "layer"];
/// A record larger than this is damaged.
const MAX_RECORD: u64 = 64 << 20;
/// Quarantines of one sandbox.
const MAX_QUARANTINES: usize = 100;
/// How long a changed overlay is kept.
pub const KEEP: Duration = Duration::from_hours(7 * 24);

/// What went wrong with the state directory.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// An operation failed.
    #[error("{what} `{path}`: {error}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// To what.
        path: String,
        /// The kernel's answer.
        error: std::io::Error,
    },
    /// A record cannot be read.
    #[error("the record of sandbox {id} is damaged: {why}")]
    Damaged {
        /// Which.
        id: String,
        /// How.
        why: String,
    },
    /// The beginning of more than one id.
    #[error("more than one sandbox has an id that begins with `{0}`")]
    Ambiguous(String),
    /// Nothing by that name.
    #[error("there is no sandbox `{0}`")]
    Unknown(String),
    /// The name is in use.
    #[error("a sandbox named `{0}` exists already")]
    NameTaken(String),
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StateError {
    let path = stockade_core::escape::escape(&path.to_string_lossy());
    move |error| StateError::Io { what, path, error }
}

/// Whether a sandbox belongs to one command or lives on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Of one `run`.
    Run,
    /// Made by `sandbox create`.
    Created,
}

/// What a sandbox is, for those who did not start it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Format version.
    pub version: u32,
    /// Its id.
    pub id: SandboxId,
    /// The name a person gave it.
    pub name: Option<SandboxName>,
    /// Whose.
    pub kind: Kind,
    /// The agent that made it, `client/name`; nobody where a person did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The wall.
    pub backend: String,
    /// The workspace (bytes that are not UTF-8 are lossy here; `workspace_hex` has them all).
    pub workspace: String,
    /// The workspace's path, exactly.
    pub workspace_hex: String,
    /// Which directory that was: device and inode. Another in its place is not the workspace.
    #[serde(default)]
    pub workspace_inode: Option<(u64, u64)>,
    /// What could be done to it.
    pub mode: MountMode,
    /// When it began, by the clock that file times use.
    pub started: Moment,
    /// What was applied already, so that our own writes are no conflicts later.
    #[serde(default)]
    pub applied: Vec<(std::ffi::OsString, Stamp)>,
    /// Changes are being brought back. Said by one whose owner is gone: that was killed on the way.
    #[serde(default)]
    pub applying: bool,
    /// The command, for people.
    pub command: Vec<String>,
    /// The overlay is kept after the sandbox ended: what changed.
    pub kept: Option<Vec<Change>>,
    /// How long one program may take, for `exec` in a created sandbox.
    #[serde(default)]
    pub time: Option<Duration>,
    /// How much output of one program is taken, likewise.
    #[serde(default)]
    pub output: Option<Limit<u64>>,
    /// Environment of programs, likewise.
    #[serde(default)]
    pub environment: Vec<(String, std::ffi::OsString)>,
    /// Working directory of programs.
    #[serde(default)]
    pub cwd: Option<stockade_core::path::SafePath>,
}

impl Record {
    /// A record for a new sandbox.
    pub fn new(id: SandboxId, kind: Kind, backend: &str, workspace: &Path, mode: MountMode) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let bytes = workspace.as_os_str().as_bytes();
        Self {
            version: RECORD_VERSION,
            id,
            name: None,
            kind,
            agent: None,
            backend: backend.to_owned(),
            workspace: workspace.to_string_lossy().into_owned(),
            workspace_hex: hex(bytes),
            workspace_inode: fs::metadata(workspace).ok().map(|found| (found.dev(), found.ino())),
            mode,
            started: Moment::now(),
            command: Vec::new(),
            applied: Vec::new(),
            applying: false,
            kept: None,
            time: None,
            output: None,
            environment: Vec::new(),
            cwd: None,
        }
    }

    /// Whether an open directory is the one that the sandbox began with. Where that was not written down, it is.
    pub fn is_workspace(&self, open: &File) -> bool {
        let found = open.metadata().ok().map(|found| (found.dev(), found.ino()));
        self.workspace_inode.is_none() || found == self.workspace_inode
    }

    /// The workspace's path.
    pub fn workspace_path(&self) -> PathBuf {
        use std::os::unix::ffi::OsStringExt;
        let bytes: Option<Vec<u8>> = (0..self.workspace_hex.len())
            .step_by(2)
            .map(|i| self.workspace_hex.get(i..i + 2).and_then(|h| u8::from_str_radix(h, 16).ok()))
            .collect();
        bytes.map_or_else(|| PathBuf::from(&self.workspace), |b| PathBuf::from(std::ffi::OsString::from_vec(b)))
    }
}

/// The directory that holds all sandboxes of a person.
#[derive(Debug, Clone)]
pub struct Sandboxes {
    root: PathBuf,
}

/// A sandbox's directory, owned for as long as this value lives.
#[derive(Debug)]
pub struct Owned {
    /// Its directory.
    pub directory: PathBuf,
    /// Its id.
    pub id: SandboxId,
    lock: OwnedFd,
}

/// A sandbox as others see it.
#[derive(Debug)]
pub struct Found {
    /// Its directory.
    pub directory: PathBuf,
    /// Its record.
    pub record: Record,
    /// Its owner lives.
    pub alive: bool,
}

/// What a sweep did.
#[derive(Debug, Default)]
pub struct Swept {
    /// What is gone.
    pub removed: Vec<SandboxId>,
    /// What was being removed by somebody else already, and is gone now.
    pub finished: Vec<SandboxId>,
    /// Of which owner was killed, and of which is written down by now what it left.
    pub settled: Vec<SandboxId>,
    /// What could not be removed, and why.
    pub failed: Vec<StateError>,
}

/// Whether the directories that were listed all have, or had, an owner with their lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Births {
    Complete,
    UnderWay,
}

impl Sandboxes {
    /// Uses (and makes) `<state>/sandboxes`.
    pub fn open(state: &Path) -> Result<Self, StateError> {
        let root = state.join("sandboxes");
        private_directory(&root).map_err(io("making the state directory", &root))?;
        Ok(Self { root })
    }

    /// Makes a directory for a new sandbox and takes its lock.
    pub fn create(&self) -> Result<Owned, StateError> {
        // Held until the sandbox's own lock is: whoever has all births to itself sees nothing half-made that is not dead.
        let _birth = self.births(FlockOperation::LockShared).map_err(io("locking", &self.root))?;
        loop {
            let millis = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
            let id = SandboxId::from_parts(millis, random_u32().map_err(|e| io("reading random bytes for", &self.root)(e.into()))?);
            let directory = self.root.join(id.as_str());
            match fs::DirBuilder::new().mode(0o700).create(&directory) {
                Ok(()) => {
                    let path = directory.join("lock");
                    let lock = File::options().write(true).create_new(true).mode(0o600).open(&path).map_err(io("making", &path))?;
                    // A sweeper may be looking at the lock this very moment; it lets go at once.
                    rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(|e| io("locking", &path)(e.into()))?;
                    return Ok(Owned { directory, id, lock: lock.into() });
                }
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(io("making", &directory)(e)),
            }
        }
    }

    /// Takes over a directory from the process that started this one, with the lock it passed on.
    pub fn adopt(&self, id: &SandboxId, lock: OwnedFd) -> Owned {
        Owned { directory: self.root.join(id.as_str()), id: id.clone(), lock }
    }

    /// Every sandbox there is. A directory without a readable record is left out (see [`Sandboxes::damaged`]).
    pub fn list(&self) -> Result<Vec<Found>, StateError> {
        let mut found = Vec::new();
        for id in self.ids()? {
            let directory = self.root.join(id.as_str());
            let alive = is_locked(&directory.join("lock"));
            let Ok(record) = read_record(&directory, &id) else { continue };
            let record = match if alive { Left::AsSaid } else { killed::look(&directory, &record) } {
                Left::AsSaid => record,
                Left::Changes(settled) => *settled,
                Left::Nothing => continue,
            };
            // A run that ended without keeping anything is on its way out.
            if alive || record.kept.is_some() {
                found.push(Found { directory, record, alive });
            }
        }
        found.sort_by(|a, b| a.record.id.cmp(&b.record.id));
        Ok(found)
    }

    /// Sandboxes whose record cannot be read, and why. One that is just being made has none yet and is left out.
    pub fn damaged(&self) -> Result<Vec<(SandboxId, StateError)>, StateError> {
        let unreadable = |id: SandboxId| {
            let directory = self.root.join(id.as_str());
            match read_record(&directory, &id) {
                Err(StateError::Io { error, .. }) if error.kind() == std::io::ErrorKind::NotFound && is_young(&directory) => None,
                Err(error) => Some((id, error)),
                Ok(_) => None,
            }
        };
        Ok(self.ids()?.into_iter().filter_map(unreadable).collect())
    }

    /// Finds one by id, unique prefix of an id, or name.
    pub fn find(&self, text: &str) -> Result<Found, StateError> {
        let all = self.list()?;
        let unknown = || StateError::Unknown(stockade_core::escape::escape(text));
        let exact = |f: &Found| f.record.id.as_str() == text || f.record.name.as_ref().is_some_and(|n| n.as_str() == text);
        let mut all = all;
        if let Some(at) = all.iter().position(exact) {
            return Ok(all.swap_remove(at));
        }
        let matching: Vec<usize> =
            all.iter().enumerate().filter(|(_, f)| text.len() >= 4 && f.record.id.as_str().starts_with(text)).map(|(i, _)| i).collect();
        match matching.as_slice() {
            [at] => Ok(all.swap_remove(*at)),
            [] => Err(self.damaged()?.into_iter().find(|(id, _)| id.as_str() == text).map_or_else(unknown, |(_, error)| error)),
            _ => Err(StateError::Ambiguous(stockade_core::escape::escape(text))),
        }
    }

    /// Whether the owner of a sandbox lives.
    pub fn is_alive(&self, id: &str) -> bool {
        id.parse::<SandboxId>().is_ok_and(|id| is_locked(&self.root.join(id.as_str()).join("lock")))
    }

    /// Where a sandbox of this id is, whatever can be read of it.
    pub fn directory_of(&self, id: &SandboxId) -> PathBuf {
        self.root.join(id.as_str())
    }

    /// Keeps others from taking a name until the value is dropped: between looking whether it is free and writing it down.
    pub fn lock_names(&self) -> Result<OwnedFd, StateError> {
        let path = self.root.with_file_name("names.lock");
        let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(io("opening", &path))?;
        rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))
            .map_err(|e| io("locking", &path)(e.into()))?;
        Ok(file.into())
    }

    /// Refuses a name that is in use.
    pub fn check_name(&self, name: &SandboxName) -> Result<(), StateError> {
        if self.list()?.iter().any(|f| f.record.name.as_ref() == Some(name)) {
            Err(StateError::NameTaken(name.to_string()))
        } else {
            Ok(())
        }
    }

    /// Removes what dead owners left: directories without a kept overlay, and kept ones older than `keep`. One that cannot be removed
    /// does not keep the others.
    pub fn sweep(&self, keep: Duration) -> Result<Swept, StateError> {
        let mut swept = Swept::default();
        for grave in self.graves()? {
            match remove::remove_tree(&grave) {
                Ok(()) => swept.finished.extend(id_of_grave(&grave)),
                Err(error) => swept.failed.push(io("removing", &grave)(told(&error))),
            }
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
        let (ids, births) = self.ids_and_births()?;
        for id in ids {
            let directory = self.root.join(id.as_str());
            let Some(_lock) = try_lock(&directory.join("lock")) else { continue };
            let may_be_half_made = births == Births::UnderWay && is_young(&directory);
            // Without a lock file its owner is about to make it.
            if may_be_half_made && !directory.join("lock").exists() {
                continue;
            }
            let keep_it = match read_record(&directory, &id) {
                // A beginning that lies ahead is one from before the clock was put back: as good as now.
                Ok(record) => {
                    let is_recent = now.saturating_sub(record.started.seconds).max(0) < keep.as_secs() as i64;
                    record.kept.is_some() && is_recent && settle(&directory, record, &mut swept)
                }
                // Too young to judge: its owner may be between making the directory and taking the lock.
                Err(StateError::Io { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => may_be_half_made,
                // What cannot be read this time may be somebody's work.
                Err(error @ StateError::Io { .. }) => {
                    swept.failed.push(error);
                    true
                }
                // Somebody may be at it by hand; one that stays so is of no use to anybody.
                Err(_) => is_young(&directory),
            };
            if keep_it {
                swept.failed.extend(finish_apply(&directory, &id).err());
            } else {
                match self.remove_dead(&id) {
                    Ok(()) => swept.removed.push(id),
                    Err(error) => swept.failed.push(error),
                }
            }
        }
        Ok(swept)
    }

    /// Removes the directory of a sandbox whose owner is gone, whatever can be read of it.
    pub fn remove_dead(&self, id: &SandboxId) -> Result<(), StateError> {
        let directory = self.root.join(id.as_str());
        // One that was killed may have left protected files in a directory that it wrote through. One that ended had that looked at; what
        // appeared since is not its own.
        let ended = read_record(&directory, id).is_ok_and(|record| record.kept.is_some());
        if let Some(guard) = Guard::read(&directory).filter(|_| !ended) {
            guard.quarantine(&directory.join("quarantine"));
        }
        if let Some(state) = self.root.parent() {
            save_quarantine(&directory, id, state)?;
        }
        finish_apply(&directory, id)?;
        bury(&directory)?.clear()
    }

    /// Keeps sweepers away from a kept sandbox while the value lives; `None` when somebody else is at it.
    pub fn take_over(&self, kept: &Found) -> Option<OwnedFd> {
        try_lock(&kept.directory.join("lock")).map(OwnedFd::from)
    }

    /// Forgets a sandbox that ended and was kept, with everything that was kept: a person decided.
    pub fn forget(&self, kept: &Found) -> Result<(), StateError> {
        finish_apply(&kept.directory, &kept.record.id)?;
        bury(&kept.directory)?.clear()
    }

    /// Finishes the removal of a sandbox that was begun, for those who are to say that it is gone. Its owner may be at it as well.
    pub fn finish_removal(&self, id: &SandboxId) -> Result<(), StateError> {
        let grave = self.root.join(format!("{DEAD}{id}"));
        remove::remove_tree(&grave).map_err(|e| io("removing", &grave)(told(&e)))
    }

    /// Directories whose removal was begun.
    fn graves(&self) -> Result<Vec<PathBuf>, StateError> {
        let entries = fs::read_dir(&self.root).map_err(io("reading", &self.root))?;
        let is_grave = |e: &fs::DirEntry| e.file_name().to_str().is_some_and(|n| n.starts_with(DEAD));
        Ok(entries.flatten().filter(is_grave).map(|e| e.path()).collect())
    }

    /// Every directory there is, and whether some of them may not have their lock yet.
    fn ids_and_births(&self) -> Result<(Vec<SandboxId>, Births), StateError> {
        // Whoever makes one holds this for a moment; there is no point in keeping them waiting longer than for a list.
        let alone = self.births(FlockOperation::NonBlockingLockExclusive);
        let ids = self.ids()?;
        Ok((ids, if alone.is_ok() { Births::Complete } else { Births::UnderWay }))
    }

    fn births(&self, operation: FlockOperation) -> std::io::Result<File> {
        let root = File::open(&self.root)?;
        rustix::io::retry_on_intr(|| rustix::fs::flock(&root, operation))?;
        Ok(root)
    }

    /// Whether any directory is there at all, without looking further (the fast path of `run`).
    pub fn ids(&self) -> Result<Vec<SandboxId>, StateError> {
        let entries = fs::read_dir(&self.root).map_err(io("reading", &self.root))?;
        Ok(entries.flatten().filter_map(|e| e.file_name().to_str().and_then(|n| n.parse().ok())).collect())
    }
}

impl Owned {
    /// Writes the record, whole or not at all.
    pub fn write_record(&self, record: &Record) -> Result<(), StateError> {
        write_record(&self.directory, record)
    }

    /// Removes the directory and everything in it.
    pub fn remove(self) -> Result<(), StateError> {
        self.bury().and_then(Grave::clear)
    }

    /// Takes the directory away from where sandboxes are; what is in it is removed by [`Grave::clear`] or the next sweep.
    pub fn bury(self) -> Result<Grave, StateError> {
        bury(&self.directory)
    }

    /// Reads the record back.
    pub fn record(&self) -> Result<Record, StateError> {
        read_record(&self.directory, &self.id)
    }

    /// The same directory once more, for one of several jobs in it. It is owned for as long as any of these values lives.
    pub fn share(&self) -> Result<Self, StateError> {
        let lock = self.lock.try_clone().map_err(io("keeping the lock of", &self.directory))?;
        Ok(Self { directory: self.directory.clone(), id: self.id.clone(), lock })
    }

    /// Removes what a job left that is of no use to the next: everything but the lock, the record and the workspace's layer.
    pub fn clear_job(&self, state: &Path) -> Result<(), StateError> {
        save_quarantine(&self.directory, &self.id, state)?;
        for entry in fs::read_dir(&self.directory).map_err(io("reading", &self.directory))?.flatten() {
            if LASTING.iter().any(|name| entry.file_name() == *name) {
                continue;
            }
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove::remove_tree(&path).map_err(|e| io("removing", &path)(told(&e)))?;
            } else {
                fs::remove_file(&path).map_err(io("removing", &path))?;
            }
        }
        Ok(())
    }

    /// The lock, to be passed on to a process that takes over.
    pub fn lock(&self) -> &OwnedFd {
        &self.lock
    }
}

/// Says what an owner that was killed left of its overlay; whether anything is to be kept.
fn settle(directory: &Path, record: Record, swept: &mut Swept) -> bool {
    let (settled, stays) = match killed::look(directory, &record) {
        Left::AsSaid => return true,
        Left::Changes(settled) => (*settled, true),
        // It did not end, so what it wrote elsewhere is still to be looked at.
        Left::Nothing => (Record { kept: None, ..record }, false),
    };
    match write_record(directory, &settled) {
        Ok(()) => swept.settled.push(settled.id),
        Err(error) => {
            swept.failed.push(error);
            return true;
        }
    }
    stays
}

/// Writes a record into a sandbox's directory by rename.
pub fn write_record(directory: &Path, record: &Record) -> Result<(), StateError> {
    let (path, temporary) = (directory.join("record.json"), directory.join(".record.json.new"));
    let text = serde_json::to_vec(record).map_err(|e| StateError::Damaged { id: record.id.to_string(), why: e.to_string() })?;
    let mut file =
        File::options().write(true).create(true).truncate(true).mode(0o600).open(&temporary).map_err(io("writing", &temporary))?;
    file.write_all(&text).map_err(io("writing", &temporary))?;
    fs::rename(&temporary, &path).map_err(io("writing", &path))
}

fn read_record(directory: &Path, id: &SandboxId) -> Result<Record, StateError> {
    let path = directory.join("record.json");
    let size = fs::symlink_metadata(&path).map_err(io("reading", &path))?.len();
    let damaged = |why: String| StateError::Damaged { id: id.to_string(), why };
    if size > MAX_RECORD {
        return Err(damaged(format!("{size} bytes")));
    }
    let text = fs::read(&path).map_err(io("reading", &path))?;
    // The parser quotes what it did not expect.
    let record: Record = serde_json::from_slice(&text).map_err(|e| damaged(stockade_core::escape::escape(&e.to_string())))?;
    if record.version != RECORD_VERSION || record.id != *id {
        return Err(damaged("it belongs to another version or sandbox".into()));
    }
    Ok(record)
}

/// Removes from the workspace what an apply left that was killed on the way. What it had brought back stays, the rest can be.
pub fn finish_apply(directory: &Path, id: &SandboxId) -> Result<(), StateError> {
    let Some(mut record) = read_record(directory, id).ok().filter(|record| record.applying) else { return Ok(()) };
    let path = record.workspace_path();
    // Gone, or another in its place: then nothing of ours is there.
    if let Some(workspace) = File::open(&path).ok().filter(|open| record.is_workspace(open)) {
        strays::remove(workspace.as_fd(), &directory.join("layer/upper"), &strays::prefix(id))
            .map_err(|e| io("removing what an apply left in", &path)(e.into()))?;
    }
    record.applying = false;
    write_record(directory, &record)
}

/// Moves a sandbox's quarantine, if it has one, to where it outlives the sandbox: `<state>/quarantine/<id>`. After an error the sandbox's
/// directory must stay: it holds the only copy of what was taken out of the workspace.
pub fn save_quarantine(directory: &Path, id: &SandboxId, state: &Path) -> Result<(), StateError> {
    let from = directory.join("quarantine");
    match fs::symlink_metadata(&from) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(io("keeping the quarantine", &from)(std::io::Error::other("it is not a directory"))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(io("keeping the quarantine", &from)(e)),
    }
    let place = state.join("quarantine");
    private_directory(&place).map_err(io("making", &place))?;
    // An owner that was killed between keeping its quarantine and its end has one there already.
    let names = std::iter::once(id.to_string()).chain((1..MAX_QUARANTINES).map(|n| format!("{id}-{n}")));
    let mut result = Ok(());
    for name in names {
        result = fs::rename(&from, place.join(name));
        if !result.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::DirectoryNotEmpty) {
            break;
        }
    }
    result.map_err(io("keeping the quarantine", &from))
}

/// Where the guest program is kept between sandboxes.
pub fn programs(state: &Path) -> PathBuf {
    state.join("guest")
}

/// Makes a directory (and its parents) that only we can enter.
pub fn private_directory(path: &Path) -> std::io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => Err(std::io::Error::other("it is not a directory")),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => fs::DirBuilder::new().recursive(true).mode(0o700).create(path),
        Err(e) => Err(e),
    }
}

/// The directory of a sandbox that is no more.
#[derive(Debug)]
#[must_use = "what is in it stays until the next sweep"]
pub struct Grave(Option<PathBuf>);

impl Grave {
    /// Removes what is in it.
    pub fn clear(self) -> Result<(), StateError> {
        let Some(grave) = &self.0 else { return Ok(()) };
        remove::remove_tree(grave).map_err(|e| io("removing", grave)(told(&e)))
    }
}

/// Gives a sandbox's directory a name that says that it is being removed: a removal that is killed half-way leaves nothing that looks
/// like a sandbox, and any later start finishes it.
fn bury(directory: &Path) -> Result<Grave, StateError> {
    let Some(grave) = grave_of(directory) else { return Ok(Grave(None)) };
    match fs::rename(directory, &grave) {
        Ok(()) => Ok(Grave(Some(grave))),
        // Somebody else was quicker.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Grave(None)),
        Err(e) => Err(io("removing", directory)(e)),
    }
}

/// Where a sandbox's directory is while it is being removed.
fn grave_of(directory: &Path) -> Option<PathBuf> {
    let mut name = OsString::from(DEAD);
    name.push(directory.file_name()?);
    Some(directory.with_file_name(name))
}

/// Whose grave a directory is.
fn id_of_grave(grave: &Path) -> Option<SandboxId> {
    grave.file_name()?.to_str()?.strip_prefix(DEAD)?.parse().ok()
}

/// An error with its cause on one line.
fn told(error: &dyn std::error::Error) -> std::io::Error {
    std::io::Error::other(error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}")))
}

fn is_locked(path: &Path) -> bool {
    File::options()
        .write(true)
        .open(path)
        .is_ok_and(|file| rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
}

fn try_lock(path: &Path) -> Option<File> {
    match File::options().write(true).open(path) {
        Ok(file) => rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok().then_some(file),
        // No lock file: the owner died before making it, or state is damaged; the directory is judged by its age.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => File::open(path.parent()?).ok(),
        Err(_) => None,
    }
}

/// Made or changed a moment ago. A time far ahead is no moment ago: the clock was put back.
fn is_young(directory: &Path) -> bool {
    let age = |modified: SystemTime| modified.elapsed().unwrap_or_else(|ahead| ahead.duration());
    fs::symlink_metadata(directory).and_then(|m| m.modified()).ok().is_none_or(|modified| age(modified) < Duration::from_mins(1))
}

/// Bytes as lowercase hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('?');
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
}

/// Four random bytes from the kernel.
pub fn random_u32() -> Result<u32, Errno> {
    let mut bytes = [0u8; 4];
    random_bytes(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// Fills a buffer with random bytes from the kernel.
pub fn random_bytes(bytes: &mut [u8]) -> Result<(), Errno> {
    let n = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())?;
    if n == bytes.len() { Ok(()) } else { Err(Errno::IO) }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
