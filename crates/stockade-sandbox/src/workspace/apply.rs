//! Bringing changes back to the workspace.
//!
//! Promises, per path: only what was listed is applied (contents are copied while they are hashed, and kept only if the
//! digest is the listed one); nothing that the host changed since the sandbox began is overwritten; the old file is swapped
//! for the new one in one step, what was swapped out is verified, and a mismatch is swapped back. Everything happens beneath
//! the workspace without following links. `setuid`, `setgid`, sticky bits and extended attributes are dropped, hard links
//! become files of their own, special files never get here (see [`super::plan`]).
//!
//! The caller freezes the sandbox first. Different paths are independent: one that fails does not stop the others.
//!
//! ```text
//! add, replace ─▶ delete (children first) ─▶ replace directories by files ─▶ modes of directories (children first)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use stockade_core::result::ChangeKind;

use super::beneath::{self, Directory, Locked};
use super::change::{Entry, EntryType, LayerChange, Moment, Origin, Stamp};
use super::digest::{self, BUFFER, ContentDigest};
use super::layer::Layer;
use super::plan::{Plan, Refused, Skipped};
use super::shown;

/// How the names of half-made files begin. They live for a moment beside the file they will replace.
pub const TEMPORARY: &str = ".stockade-apply-";
/// How the names of files begin that were saved for a person to look at.
const SAVED: &str = ".stockade-saved-";

/// What the host's files are held against.
#[derive(Debug, Clone)]
pub struct Baseline {
    /// When the sandbox began ([`Moment::now`], taken before its mounts are made).
    pub started: Moment,
    /// What earlier applies of the same sandbox wrote, from their reports: our own changes are no conflicts.
    pub applied: BTreeMap<PathBuf, Stamp>,
    /// How the names of half-made files begin: with [`TEMPORARY`], and with what tells one sandbox's from another's.
    pub temporary: String,
}

impl Baseline {
    /// A baseline without earlier applies.
    pub fn new(started: Moment) -> Self {
        Self { started, applied: BTreeMap::new(), temporary: TEMPORARY.to_owned() }
    }

    fn holds(&self, path: &Path, stat: &Stat) -> bool {
        Moment::changed(stat) <= self.started || self.applied.get(path) == Some(&Stamp::of(stat))
    }
}

/// Whether contents are forced to the disk before they replace anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When the kernel likes.
    Lazy,
    /// Before the swap: a crash leaves the old file or the new one, never an empty one.
    Synced,
}

/// A path that was brought back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The path.
    pub path: PathBuf,
    /// What happened to it.
    pub kind: ChangeKind,
    /// What is there now; for [`Baseline::applied`] of the next time.
    pub stamp: Option<Stamp>,
}

/// A path that was left alone because the two sides disagree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The path.
    pub path: PathBuf,
    /// Why.
    pub why: ConflictReason,
}

/// How the two sides disagree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConflictReason {
    /// The host's file is not what it was.
    #[error("it changed on the host since the sandbox began")]
    HostChanged,
    /// The host's file is gone.
    #[error("it was removed on the host since the sandbox began")]
    HostRemoved,
    /// The host has something where there was nothing.
    #[error("it appeared on the host since the sandbox began")]
    HostAppeared,
    /// A directory on the way is missing, a link or a file.
    #[error("the directory it belongs in is missing, or is no directory, on the host")]
    NoParent,
    /// A directory to be removed still has something in it.
    #[error("the directory is not empty on the host")]
    NotEmpty,
    /// The sandbox's file is not what was shown.
    #[error("it changed in the sandbox since it was shown")]
    ChangedSinceShown,
    /// Somebody put something at the path while ours was being swapped back; the host's file was saved beside it.
    #[error("it changed on the host at that very moment; the host's file was saved as `{0}` beside it")]
    Saved(String),
}

/// A path at which the system failed us.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} `{}`", shown(path))]
pub struct ApplyFailure {
    /// The path.
    pub path: PathBuf,
    /// What was tried.
    pub step: &'static str,
    /// What the system said.
    #[source]
    pub source: Errno,
}

/// What came of it; every step of the plan is in exactly one of these lists (a rename may be in two).
#[derive(Debug, Default)]
pub struct Report {
    /// Brought back.
    pub applied: Vec<Applied>,
    /// Protected and not named.
    pub skipped_protected: Vec<Skipped>,
    /// Left alone.
    pub conflicts: Vec<Conflict>,
    /// Never applied.
    pub refused: Vec<Refused>,
    /// Failed.
    pub errors: Vec<ApplyFailure>,
}

/// Applies a plan to the workspace.
pub fn apply(plan: &Plan, layer: &Layer, workspace: BorrowedFd<'_>, baseline: &Baseline, durability: Durability) -> Report {
    let mut report = Report { skipped_protected: plan.skipped.clone(), refused: plan.refused.clone(), ..Report::default() };
    let prepared = beneath::open_root(&layer.upper)
        .map_err(|source| ("open the changes of", source))
        .and_then(|upper| Ok((upper, rustix::fs::fstat(workspace).map_err(|source| ("look at the workspace of", source))?)));
    let (upper, around) = match prepared {
        Ok(prepared) => prepared,
        Err((step, source)) => {
            let errors = plan.steps.iter().map(|change| ApplyFailure { path: change.path.clone(), step, source });
            report.errors = errors.collect();
            return report;
        }
    };
    let mut applier = Applier {
        workspace,
        upper,
        around,
        baseline,
        durability,
        touched: BTreeSet::new(),
        made: BTreeSet::new(),
        removed: BTreeSet::new(),
        report,
    };
    applier.find_removed(&plan.steps);
    applier.run(&plan.steps);
    applier.report.applied.sort_by(|one, other| one.path.cmp(&other.path));
    applier.report
}

enum Trouble {
    Conflict(ConflictReason),
    Failed(&'static str, Errno),
}

impl From<ConflictReason> for Trouble {
    fn from(why: ConflictReason) -> Self {
        Self::Conflict(why)
    }
}

fn failed(step: &'static str) -> impl Fn(Errno) -> Trouble {
    move |source| Trouble::Failed(step, source)
}

struct Applier<'a> {
    workspace: BorrowedFd<'a>,
    upper: Directory,
    around: Stat,
    baseline: &'a Baseline,
    durability: Durability,
    /// Inodes of the host with several names whose time of change we moved ourselves.
    touched: BTreeSet<(u64, u64)>,
    /// Directories we made; they are writable to us until the end.
    made: BTreeSet<PathBuf>,
    /// New files that were the host's own, which seems to have removed them since.
    removed: BTreeSet<PathBuf>,
    report: Report,
}

impl Applier<'_> {
    /// Finds files that overlayfs copied up from the host and that are not there any more. A file renamed inside carries the
    /// mark as well, so the mark alone does not tell: its directory must have changed on the host too. Looked up before we
    /// write to those directories ourselves.
    fn find_removed(&mut self, steps: &[LayerChange]) {
        for change in steps.iter().filter(|change| change.kind == ChangeKind::Added && change.origin == Origin::Host) {
            let changed = |parent: OwnedFd| rustix::fs::fstat(parent).is_ok_and(|stat| Moment::modified(&stat) > self.baseline.started);
            if self.parent(&change.path).is_ok_and(|(parent, _)| changed(parent)) {
                self.removed.insert(change.path.clone());
            }
        }
    }

    fn run(&mut self, steps: &[LayerChange]) {
        let is_directory = |entry: &Option<Entry>| entry.as_ref().is_some_and(|entry| entry.kind == EntryType::Directory);
        let (mut deletions, mut replacements, mut modes) = (Vec::new(), Vec::new(), Vec::new());
        for change in steps {
            let (old_directory, new_directory) = (is_directory(&change.old), is_directory(&change.new));
            match change.kind {
                ChangeKind::Deleted => deletions.push((change.path.as_path(), change)),
                ChangeKind::Mode if new_directory => modes.push(change),
                ChangeKind::Mode => {
                    let done = self.set_mode(change);
                    self.record(change, &change.path, done);
                }
                ChangeKind::Modified if old_directory => replacements.push(change),
                ChangeKind::Added | ChangeKind::Modified | ChangeKind::Renamed => {
                    let done = self.put(change);
                    let placed = done.is_ok();
                    self.record(change, &change.path, done);
                    if let (true, Some(from)) = (placed, &change.from) {
                        deletions.push((from.as_path(), change));
                    }
                    if placed && new_directory {
                        modes.push(change);
                    }
                }
            }
        }
        deletions.sort_by(|one, other| other.0.cmp(one.0));
        for (path, change) in deletions {
            let done = self.remove(path, change);
            // A rename was recorded when its new name was placed.
            if change.kind == ChangeKind::Deleted || done.is_err() {
                self.record(change, path, done);
            }
        }
        for change in replacements {
            let done = self.put(change);
            self.record(change, &change.path, done);
        }
        for change in modes.into_iter().rev() {
            let done = self.set_mode(change);
            if change.kind == ChangeKind::Mode || done.is_err() {
                self.record(change, &change.path, done);
            }
        }
    }

    fn record(&mut self, change: &LayerChange, path: &Path, done: Result<Option<Stamp>, Trouble>) {
        let path = path.to_path_buf();
        match done {
            Ok(stamp) => self.report.applied.push(Applied { path, kind: change.kind, stamp }),
            Err(Trouble::Conflict(why)) => self.report.conflicts.push(Conflict { path, why }),
            Err(Trouble::Failed(step, source)) => self.report.errors.push(ApplyFailure { path, step, source }),
        }
    }

    /// Opens the directory of the workspace that a path is in.
    fn parent<'p>(&self, path: &'p Path) -> Result<(OwnedFd, &'p OsStr), Trouble> {
        let (parent, name) = beneath::split(path).ok_or(Trouble::Failed("resolve", Errno::INVAL))?;
        match beneath::resolve_dir(self.workspace, parent) {
            Ok(fd) => Ok((fd, name)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Err(ConflictReason::NoParent.into()),
            Err(source) => Err(Trouble::Failed("open the directory of", source)),
        }
    }

    /// Makes or replaces one path.
    fn put(&mut self, change: &LayerChange) -> Result<Option<Stamp>, Trouble> {
        let new = change.new.as_ref().ok_or(Trouble::Failed("read", Errno::NOENT))?;
        let (parent, name) = self.parent(&change.path)?;
        let old = if change.kind == ChangeKind::Modified { change.old.as_ref() } else { None };
        let before = old.map(|old| self.check(&parent, name, &change.path, old)).transpose()?;
        if before.is_none() {
            self.check_absent(&parent, name, change)?;
        }
        if old.is_none() && new.kind == EntryType::Directory {
            return self.make_directory(&parent, name, &change.path);
        }
        let owner = self.owner(before.as_ref());
        let temporary = Temporary::new(&parent, &self.baseline.temporary);
        match new.kind {
            EntryType::File => self.copy(change, new, &temporary, owner)?,
            EntryType::Symlink => self.link(change, new, &temporary, owner)?,
            EntryType::Directory => {
                rustix::fs::mkdirat(&parent, &temporary.name, Mode::RWXU).map_err(failed("create"))?;
                own(parent.as_fd(), &temporary.name, owner)?;
                self.made.insert(change.path.clone());
            }
            EntryType::Special => return Err(Trouble::Failed("create", Errno::INVAL)),
        }
        match (old, before) {
            (Some(old), Some(before)) => self.exchange(&parent, name, temporary, old, &before)?,
            _ => temporary.place(name)?,
        }
        Ok(stamp(&parent, name))
    }

    fn make_directory(&mut self, parent: &OwnedFd, name: &OsStr, path: &Path) -> Result<Option<Stamp>, Trouble> {
        match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
            Ok(()) => {
                self.made.insert(path.to_path_buf());
                own(parent.as_fd(), name, self.owner(None))?;
                Ok(stamp(parent, name))
            }
            // Both sides made the directory: nothing is lost by putting files in it.
            Err(Errno::EXIST) if beneath::stat(parent, name).is_ok_and(|stat| beneath::is_dir(&stat)) => Ok(None),
            Err(Errno::EXIST) => Err(ConflictReason::HostAppeared.into()),
            Err(source) => Err(Trouble::Failed("create", source)),
        }
    }

    /// Swaps the new entry in, verifies what came out, and swaps back if it is not what was expected.
    fn exchange(&mut self, parent: &OwnedFd, name: &OsStr, temporary: Temporary<'_>, old: &Entry, before: &Stat) -> Result<(), Trouble> {
        match rustix::fs::renameat_with(parent, &temporary.name, parent, name, RenameFlags::EXCHANGE) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(ConflictReason::HostRemoved.into()),
            Err(source) => return Err(Trouble::Failed("exchange", source)),
        }
        // From here the temporary name holds the host's own file, which must not be removed unless it is what we expect.
        let name_of_old = temporary.keep();
        let verdict = if old.kind == EntryType::Directory {
            remove_directory(parent, &name_of_old)
        } else {
            self.discard(parent, &name_of_old, old, before)
        };
        let Err(trouble) = verdict else { return Ok(()) };
        match rustix::fs::renameat_with(parent, &name_of_old, parent, name, RenameFlags::EXCHANGE) {
            Ok(()) => {
                // What is at the temporary name now is ours again.
                drop(Temporary { parent: parent.as_fd(), name: name_of_old, armed: true });
                Err(trouble)
            }
            Err(_) => Err(saved(parent, name_of_old)),
        }
    }

    /// Removes one path.
    fn remove(&mut self, path: &Path, change: &LayerChange) -> Result<Option<Stamp>, Trouble> {
        let old = change.old.as_ref().ok_or(Trouble::Failed("remove", Errno::NOENT))?;
        let (parent, name) = self.parent(path)?;
        let before = self.check(&parent, name, path, old)?;
        if old.kind == EntryType::Directory {
            return remove_directory(&parent, name).map(|()| None);
        }
        let aside = beneath::fresh_name(&self.baseline.temporary);
        match rustix::fs::renameat_with(&parent, name, &parent, &aside, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(ConflictReason::HostRemoved.into()),
            Err(source) => return Err(Trouble::Failed("move aside", source)),
        }
        let Err(trouble) = self.discard(&parent, &aside, old, &before) else { return Ok(None) };
        match rustix::fs::renameat_with(&parent, &aside, &parent, name, RenameFlags::NOREPLACE) {
            Ok(()) => Err(trouble),
            Err(_) => Err(saved(&parent, aside)),
        }
    }

    /// Verifies that what was moved aside is exactly the listed file of the host, then removes it.
    fn discard(&mut self, parent: &OwnedFd, aside: &OsStr, old: &Entry, before: &Stat) -> Result<(), Trouble> {
        let now = beneath::stat(parent, aside).map_err(failed("look at the old"))?;
        let same = (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino)
            && EntryType::of(&now) == old.kind
            && beneath::size(&now) == beneath::size(before)
            // A rename moves the time of change, so the time of the last write stands in for it.
            && Moment::modified(&now) == Moment::modified(before);
        if !same || !has_contents(parent, aside, old)? {
            return Err(ConflictReason::HostChanged.into());
        }
        if now.st_nlink > 1 {
            self.touched.insert((now.st_dev, now.st_ino));
        }
        rustix::fs::unlinkat(parent, aside, AtFlags::empty()).map_err(failed("remove the old"))
    }

    /// The host's entry must be the listed one, untouched since the sandbox began.
    fn check(&self, parent: &OwnedFd, name: &OsStr, path: &Path, old: &Entry) -> Result<Stat, Trouble> {
        let stat = match beneath::stat_if_there(parent, name) {
            Ok(Some(stat)) => stat,
            Ok(None) => return Err(ConflictReason::HostRemoved.into()),
            Err(source) => return Err(Trouble::Failed("look at", source)),
        };
        if EntryType::of(&stat) != old.kind {
            return Err(ConflictReason::HostChanged.into());
        }
        let now = Stamp::of(&stat);
        let same_inode = (now.device, now.inode) == (old.stamp.device, old.stamp.inode);
        // A directory's time of change moves with what is in it, ours included; that it is empty is checked when it goes.
        let untouched = old.kind == EntryType::Directory
            || self.touched.contains(&(now.device, now.inode))
            || (now.changed == old.stamp.changed && self.baseline.holds(path, &stat));
        if same_inode && untouched { Ok(stat) } else { Err(ConflictReason::HostChanged.into()) }
    }

    /// Nothing may be there; and what overlayfs copied up from the host must not have been removed there since.
    fn check_absent(&self, parent: &OwnedFd, name: &OsStr, change: &LayerChange) -> Result<(), Trouble> {
        match beneath::stat_if_there(parent, name) {
            Ok(None) => {}
            Ok(Some(stat)) if beneath::is_dir(&stat) && change.new.as_ref().is_some_and(|new| new.kind == EntryType::Directory) => {}
            Ok(Some(_)) => return Err(ConflictReason::HostAppeared.into()),
            Err(source) => return Err(Trouble::Failed("look at", source)),
        }
        if self.removed.contains(&change.path) { Err(ConflictReason::HostRemoved.into()) } else { Ok(()) }
    }

    /// Copies contents to a temporary file, holding them to the listed digest.
    fn copy(&self, change: &LayerChange, new: &Entry, temporary: &Temporary<'_>, owner: Option<(Uid, Gid)>) -> Result<(), Trouble> {
        let (parent, name) = self.source(&change.path)?;
        let (from, stat) = match beneath::open_file(&parent, name, Locked::Lift) {
            Ok(opened) => opened,
            Err(Errno::NOENT | Errno::INVAL | Errno::LOOP | Errno::NXIO) => return Err(ConflictReason::ChangedSinceShown.into()),
            Err(source) => return Err(Trouble::Failed("open the new", source)),
        };
        if stat.st_mode & 0o7777 != new.mode {
            return Err(ConflictReason::ChangedSinceShown.into());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let to = rustix::fs::openat(temporary.parent, &temporary.name, flags, Mode::RUSR | Mode::WUSR).map_err(failed("create"))?;
        if copy_contents(&from, &to, new.size)? != new.digest {
            return Err(ConflictReason::ChangedSinceShown.into());
        }
        if let Some((uid, gid)) = owner {
            rustix::fs::fchown(&to, Some(uid), Some(gid)).map_err(failed("give away"))?;
        }
        rustix::fs::fchmod(&to, Mode::from_raw_mode(new.mode & 0o777)).map_err(failed("set the mode of"))?;
        match self.durability {
            Durability::Lazy => Ok(()),
            Durability::Synced => rustix::fs::fsync(&to).map_err(failed("write to the disk")),
        }
    }

    fn link(&self, change: &LayerChange, new: &Entry, temporary: &Temporary<'_>, owner: Option<(Uid, Gid)>) -> Result<(), Trouble> {
        let (parent, name) = self.source(&change.path)?;
        let text = match beneath::read_link(&parent, name) {
            Ok(text) => text,
            Err(Errno::NOENT | Errno::INVAL) => return Err(ConflictReason::ChangedSinceShown.into()),
            Err(source) => return Err(Trouble::Failed("read the new link", source)),
        };
        if Some(ContentDigest::of(&text)) != new.digest {
            return Err(ConflictReason::ChangedSinceShown.into());
        }
        rustix::fs::symlinkat(text.as_slice(), temporary.parent, &temporary.name).map_err(failed("create"))?;
        own(temporary.parent, &temporary.name, owner)
    }

    /// Opens the directory of the sandbox's tree that a path is in.
    fn source<'p>(&self, path: &'p Path) -> Result<(beneath::Chain, &'p OsStr), Trouble> {
        let (parent, name) = beneath::split(path).ok_or(Trouble::Failed("resolve", Errno::INVAL))?;
        match beneath::descend(self.upper.as_fd(), parent, Locked::Lift) {
            Ok(chain) => Ok((chain, name)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(ConflictReason::ChangedSinceShown.into()),
            Err(source) => Err(Trouble::Failed("open the new", source)),
        }
    }

    /// Sets permissions: of a file or directory whose mode changed, and of directories we made.
    fn set_mode(&mut self, change: &LayerChange) -> Result<Option<Stamp>, Trouble> {
        let new = change.new.as_ref().ok_or(Trouble::Failed("read", Errno::NOENT))?;
        let (parent, name) = self.parent(&change.path)?;
        let ours = self.made.contains(&change.path);
        if change.kind != ChangeKind::Mode && !ours {
            return Ok(None);
        }
        let handle = match beneath::open_handle(&parent, name) {
            Ok(handle) => handle,
            Err(Errno::NOENT) => return Err(ConflictReason::HostRemoved.into()),
            Err(source) => return Err(Trouble::Failed("open", source)),
        };
        let stat = rustix::fs::fstat(&handle).map_err(failed("look at"))?;
        if let (false, Some(old)) = (ours, &change.old) {
            let before = self.check(&parent, name, &change.path, old)?;
            let same = (stat.st_dev, stat.st_ino) == (before.st_dev, before.st_ino);
            if !same || stat.st_mode & 0o7777 != old.mode || !has_contents(&parent, name, old)? {
                return Err(ConflictReason::HostChanged.into());
            }
        }
        if EntryType::of(&stat) != new.kind || !matches!(new.kind, EntryType::File | EntryType::Directory) {
            return Err(ConflictReason::HostChanged.into());
        }
        beneath::chmod_handle(handle.as_fd(), Mode::from_raw_mode(new.mode & 0o777)).map_err(failed("set the mode of"))?;
        Ok(stamp(&parent, name))
    }

    /// Who shall own a new entry: whoever owned what it replaces, else the workspace's owner. Only root has a choice.
    fn owner(&self, before: Option<&Stat>) -> Option<(Uid, Gid)> {
        let model = before.unwrap_or(&self.around);
        rustix::process::geteuid().is_root().then(|| (Uid::from_raw(model.st_uid), Gid::from_raw(model.st_gid)))
    }
}

/// A name for something half made; removed unless it was placed.
struct Temporary<'a> {
    parent: BorrowedFd<'a>,
    name: OsString,
    armed: bool,
}

impl<'a> Temporary<'a> {
    fn new(parent: &'a OwnedFd, prefix: &str) -> Self {
        Self { parent: parent.as_fd(), name: beneath::fresh_name(prefix), armed: true }
    }

    /// Gives it its real name, if nobody has that yet.
    fn place(mut self, name: &OsStr) -> Result<(), Trouble> {
        match rustix::fs::renameat_with(self.parent, &self.name, self.parent, name, RenameFlags::NOREPLACE) {
            Ok(()) => {
                self.armed = false;
                Ok(())
            }
            Err(Errno::EXIST) => Err(ConflictReason::HostAppeared.into()),
            Err(source) => Err(Trouble::Failed("place", source)),
        }
    }

    /// Stops watching over the name.
    fn keep(mut self) -> OsString {
        self.armed = false;
        std::mem::take(&mut self.name)
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if self.armed && rustix::fs::unlinkat(self.parent, &self.name, AtFlags::empty()) == Err(Errno::ISDIR) {
            let _ = rustix::fs::unlinkat(self.parent, &self.name, AtFlags::REMOVEDIR);
        }
    }
}

/// Gives a file of the host that could not be put back a name that nobody takes for half made.
fn saved(parent: &OwnedFd, aside: OsString) -> Trouble {
    let name = beneath::fresh_name(SAVED);
    let renamed = rustix::fs::renameat_with(parent, &aside, parent, &name, RenameFlags::NOREPLACE);
    let name = if renamed.is_ok() { name } else { aside };
    ConflictReason::Saved(shown(Path::new(&name))).into()
}

/// Whether the entry has the listed contents; where none were listed, the inode has to do.
fn has_contents(parent: &OwnedFd, name: &OsStr, old: &Entry) -> Result<bool, Trouble> {
    let Some(listed) = old.digest else { return Ok(true) };
    let found = match old.kind {
        EntryType::File => {
            let (fd, _) = beneath::open_file(parent, name, Locked::Leave).map_err(failed("read the old"))?;
            digest::of_file(&fd, old.size).map_err(failed("read the old"))?
        }
        EntryType::Symlink => Some(ContentDigest::of(&beneath::read_link(parent, name).map_err(failed("read the old"))?)),
        EntryType::Directory | EntryType::Special => return Ok(true),
    };
    Ok(found == Some(listed))
}

/// Gives away what we just made. By descriptor, and only if it is still ours: whoever owns the directory may have put
/// something else at the name.
fn own(parent: BorrowedFd<'_>, name: &OsStr, owner: Option<(Uid, Gid)>) -> Result<(), Trouble> {
    let Some((uid, gid)) = owner else { return Ok(()) };
    let handle = beneath::open_handle(parent, name).map_err(failed("give away"))?;
    let stat = rustix::fs::fstat(&handle).map_err(failed("give away"))?;
    if stat.st_uid != rustix::process::geteuid().as_raw() || (stat.st_nlink > 1 && !beneath::is_dir(&stat)) {
        return Err(ConflictReason::HostChanged.into());
    }
    rustix::fs::chownat(&handle, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH).map_err(failed("give away"))
}

fn remove_directory(parent: &OwnedFd, name: &OsStr) -> Result<(), Trouble> {
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Err(ConflictReason::NotEmpty.into()),
        Err(Errno::NOTDIR) => Err(ConflictReason::HostChanged.into()),
        Err(Errno::NOENT) => Err(ConflictReason::HostRemoved.into()),
        Err(source) => Err(Trouble::Failed("remove", source)),
    }
}

/// Copies at most `size` bytes and says what they were; `None` where there are more. Runs of zeros stay holes.
fn copy_contents(from: &OwnedFd, to: &OwnedFd, size: u64) -> Result<Option<ContentDigest>, Trouble> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0_u8; BUFFER];
    let mut offset = 0_u64;
    loop {
        let count = match rustix::io::pread(from, buffer.as_mut_slice(), offset) {
            Ok(0) => break,
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(source) => return Err(Trouble::Failed("read the new", source)),
        };
        if offset + count as u64 > size {
            return Ok(None);
        }
        let bytes = buffer.get(..count).unwrap_or_default();
        hasher.update(bytes);
        if bytes.iter().any(|byte| *byte != 0) {
            write_all(to, bytes, offset).map_err(failed("write"))?;
        }
        offset += count as u64;
    }
    rustix::fs::ftruncate(to, offset).map_err(failed("write"))?;
    Ok(Some(ContentDigest::finish(hasher)))
}

pub(crate) fn write_all(to: impl AsFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(to.as_fd(), bytes, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                bytes = bytes.get(count..).unwrap_or_default();
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn stamp(parent: &OwnedFd, name: &OsStr) -> Option<Stamp> {
    beneath::stat(parent, name).ok().map(|stat| Stamp::of(&stat))
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
