//! Guarding protected paths of a workspace that is mounted writable.
//!
//! Before: [`ProtectedSnapshot::take`] lists the protected paths that exist, which the caller mounts read-only, and the
//! directories above them, which must become mount points so that nobody renames them away. After:
//! [`ProtectedSnapshot::quarantine`] moves protected paths that newly exist out of the workspace. Nothing is ever created in
//! the workspace, and mounting is the caller's.
//!
//! Links cannot be mounted over: a protected path that is a link is remembered by its text, and put back if it changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::beneath::{self, Locked};
use super::change::EntryType;
use super::kept::{self, Ownership};
use super::protected::{self, GIT_SHAPED, GIT_SHAPED_WHY};
use super::remove;
use super::shown;

/// The most entries that are looked at.
const MAX_ENTRIES: usize = 1_000_000;
/// The deepest directory that is looked in.
const MAX_DEPTH: usize = 64;
/// Large directories of made or fetched files, where nobody works and tools look for nothing.
const NOT_SEARCHED: [&str; 4] = ["node_modules", "target", ".venv", "__pycache__"];

/// Why protected paths could not be guarded.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The workspace itself.
    #[error("cannot open the workspace `{path}`")]
    Workspace {
        /// Its path.
        path: String,
        /// What the system said.
        #[source]
        source: Errno,
    },
    /// The place for what is taken away.
    #[error("cannot open the quarantine `{path}`")]
    Quarantine {
        /// Its path.
        path: String,
        /// What the system said.
        #[source]
        source: Errno,
    },
    /// Something in the workspace.
    #[error("cannot {step} `{path}`")]
    Entry {
        /// What was tried.
        step: &'static str,
        /// Relative to the workspace.
        path: String,
        /// What the system said.
        #[source]
        source: Errno,
    },
}

/// Whether everything was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completeness {
    /// Yes.
    Whole,
    /// The workspace is larger than the bound; what lies beyond was not looked at.
    Bounded,
}

/// The protected paths that existed before the command ran; all relative to the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct ProtectedSnapshot {
    workspace: PathBuf,
    found: BTreeMap<PathBuf, Found>,
    sockets: Vec<PathBuf>,
    completeness: Completeness,
}

/// A snapshot on disk, so that a later start can finish what a killed one could not. Paths are bytes, so they are no keys of JSON.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    workspace: OsString,
    found: Vec<(OsString, Found)>,
}

impl From<ProtectedSnapshot> for Written {
    fn from(snapshot: ProtectedSnapshot) -> Self {
        let found = snapshot.found.into_iter().map(|(path, found)| (path.into_os_string(), found)).collect();
        Self { workspace: snapshot.workspace.into_os_string(), found }
    }
}

impl TryFrom<Written> for ProtectedSnapshot {
    type Error = &'static str;
    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let workspace = PathBuf::from(written.workspace);
        if !workspace.is_absolute() {
            return Err("the workspace of a snapshot is not absolute");
        }
        let found = written.found.into_iter().map(|(path, found)| (PathBuf::from(path), found)).collect();
        Ok(Self { workspace, found, sockets: Vec::new(), completeness: Completeness::Whole })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Found {
    why: String,
    /// The text of a link; `None` for what can be mounted over.
    link: Option<Vec<u8>>,
    /// A regular file, which can be replaced by a private copy.
    is_file: bool,
}

/// What became of a protected path that should not be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the quarantine now, under this path.
    Moved(PathBuf),
    /// It is still in the workspace, because of this.
    Remains(String),
}

/// A protected path that a command made or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// Why it is protected.
    pub why: String,
    /// Where it is now.
    pub outcome: Outcome,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "protected path `{}` ({}) ", shown(&self.path), self.why)?;
        match &self.outcome {
            Outcome::Moved(to) => write!(f, "was moved to `{}`", shown(to)),
            Outcome::Remains(why) => write!(f, "could not be moved away: {why}"),
        }
    }
}

/// What the search after the command came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Each protected path that should not be there.
    pub violations: Vec<Violation>,
    /// Whether everything was looked at.
    pub completeness: Completeness,
}

impl ProtectedSnapshot {
    /// Lists the protected paths of a workspace.
    pub fn take(workspace: &Path) -> Result<Self, GuardError> {
        let search = Search::run(workspace, Locked::Leave)?;
        let Search { found, sockets, completeness, .. } = search;
        Ok(Self { workspace: workspace.to_path_buf(), found, sockets, completeness })
    }

    /// What was looked at.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Paths to be mounted read-only. Git's configurations are not among them: see [`Self::git_configs`].
    pub fn read_only(&self) -> Vec<&Path> {
        self.found
            .iter()
            .filter(|(path, found)| found.link.is_none() && !is_git_config(path, found))
            .map(|(path, _)| path.as_path())
            .collect()
    }

    /// Sockets of the host, to be covered: a connection through a path needs no network.
    pub fn sockets(&self) -> impl Iterator<Item = &Path> {
        self.sockets.iter().map(PathBuf::as_path)
    }

    /// Directories above protected paths, outermost first; each must be a mount point, or it could be renamed away.
    pub fn pinned(&self) -> Vec<&Path> {
        let above = self.found.keys().flat_map(|path| path.ancestors().skip(1)).filter(|path| !path.as_os_str().is_empty());
        above.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Settings of repositories: git writes to them in everyday use, so the caller redirects the writes to a private copy
    /// instead of refusing them.
    pub fn git_configs(&self) -> Vec<&Path> {
        self.found.iter().filter(|(path, found)| is_git_config(path, found)).map(|(path, _)| path.as_path()).collect()
    }

    /// Whether the whole workspace was looked at.
    pub fn completeness(&self) -> Completeness {
        self.completeness
    }

    /// Moves protected paths that newly exist to `into`, a private directory, and puts changed links back. Call it when every
    /// process of the sandbox is gone.
    pub fn quarantine(&self, into: &Path) -> Result<Quarantined, GuardError> {
        let Search { found: now, completeness, .. } = Search::run(&self.workspace, Locked::Lift)?;
        let root = open(&self.workspace)?;
        let store = beneath::open_root(into).map_err(|source| GuardError::Quarantine { path: shown(into), source })?;
        let mut violations = Vec::new();
        for (path, found) in &now {
            let before = self.found.get(path);
            if before.is_some_and(|before| before.link == found.link) {
                continue;
            }
            let outcome = match take_away(root.as_fd(), path, store.as_fd(), into) {
                Ok(to) => Outcome::Moved(to),
                Err(error) => Outcome::Remains(error.to_string()),
            };
            violations.push(Violation { path: path.clone(), why: found.why.clone(), outcome });
        }
        for (path, before) in &self.found {
            if let Some(text) = &before.link
                && now.get(path).is_none_or(|now| now.link.as_ref() != Some(text))
            {
                if !now.contains_key(path) {
                    let outcome = Outcome::Remains("a protected link was removed".into());
                    violations.push(Violation { path: path.clone(), why: before.why.clone(), outcome });
                }
                // Best effort: the violation is reported either way.
                let _ = put_back(root.as_fd(), path, text);
            }
        }
        Ok(Quarantined { violations, completeness })
    }
}

fn is_git_config(path: &Path, found: &Found) -> bool {
    found.is_file && path.file_name().is_some_and(|name| name == "config")
}

/// Finds protected paths; what lies beneath one is part of it.
struct Search {
    found: BTreeMap<PathBuf, Found>,
    sockets: Vec<PathBuf>,
    entries: usize,
    completeness: Completeness,
    /// What to do about directories whose mode keeps us out. A sandbox can make such directories to hide things in.
    locked: Locked,
}

impl Search {
    fn run(workspace: &Path, locked: Locked) -> Result<Self, GuardError> {
        let root = open(workspace)?;
        let mut search = Self { found: BTreeMap::new(), sockets: Vec::new(), entries: 0, completeness: Completeness::Whole, locked };
        search.directory(root.as_fd(), Path::new(""), 0)?;
        Ok(search)
    }

    fn directory(&mut self, directory: BorrowedFd<'_>, at: &Path, depth: usize) -> Result<(), GuardError> {
        let left = MAX_ENTRIES.saturating_sub(self.entries);
        let mut names = beneath::some_names(directory, left + 1).map_err(|source| failed("list", at, source))?;
        if names.len() > left {
            self.completeness = Completeness::Bounded;
            names.truncate(left);
        }
        self.entries += names.len();
        names.sort();
        let git_shaped = protected::is_git_shaped(|name| names.iter().any(|there| there == name));
        for name in names {
            self.entry(directory, &at.join(&name), &name, git_shaped, depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, parent: BorrowedFd<'_>, path: &Path, name: &OsString, git_shaped: bool, depth: usize) -> Result<(), GuardError> {
        let Some(stat) = beneath::stat_if_there(parent, name).map_err(|source| failed("look at", path, source))? else { return Ok(()) };
        let kind = EntryType::of(&stat);
        let in_repository = || (git_shaped && GIT_SHAPED.iter().any(|git| name == git)).then_some(GIT_SHAPED_WHY);
        let replaced = || if kind == EntryType::Directory { None } else { protected::holds_protected(path) };
        if let Some(why) = protected::is_protected(path).or_else(replaced).or_else(in_repository) {
            let link = match kind {
                EntryType::Symlink => Some(beneath::read_link(parent, name).map_err(|source| failed("read the link", path, source))?),
                EntryType::File | EntryType::Directory | EntryType::Special => None,
            };
            let is_file = kind == EntryType::File;
            self.found.insert(path.to_path_buf(), Found { why: why.to_owned(), link, is_file });
            return Ok(());
        }
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Socket {
            self.sockets.push(path.to_path_buf());
        }
        if kind != EntryType::Directory || NOT_SEARCHED.iter().any(|skipped| name == skipped) || (git_shaped && name == "objects") {
            return Ok(());
        }
        if depth >= MAX_DEPTH {
            self.completeness = Completeness::Bounded;
            return Ok(());
        }
        match beneath::open_dir(parent, name, self.locked) {
            Ok(inner) => self.directory(inner.as_fd(), path, depth + 1),
            // Not ours to open: before a command runs that is the host's business, afterwards it is said.
            Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                self.completeness = Completeness::Bounded;
                Ok(())
            }
            Err(source) => Err(failed("open", path, source)),
        }
    }
}

/// Moves one path to the quarantine, under a fresh name that keeps the last component readable.
fn take_away(root: BorrowedFd<'_>, path: &Path, store: BorrowedFd<'_>, into: &Path) -> Result<PathBuf, GuardError> {
    let (parent, name) = beneath::split(path).ok_or_else(|| failed("resolve", path, Errno::INVAL))?;
    // A sandbox can lock the directories above; each is opened up for as long as this takes.
    let mut above: Vec<beneath::Directory> = Vec::new();
    for component in parent.components() {
        let here = above.last().map_or(root, AsFd::as_fd);
        let opened = beneath::open_dir(here, component.as_os_str(), Locked::Lift);
        above.push(opened.map_err(|source| failed("open the directory of", path, source))?);
    }
    let parent = above.last().map_or(root, AsFd::as_fd);
    let place = beneath::fresh_name("violation-");
    rustix::fs::mkdirat(store, &place, Mode::RWXU).map_err(|source| failed("make room for", path, source))?;
    let inner = beneath::open_dir(store, &place, Locked::Leave).map_err(|source| failed("make room for", path, source))?;
    let to = into.join(&place).join(name);
    match rustix::fs::renameat_with(parent, name, &inner, name, RenameFlags::NOREPLACE) {
        Ok(()) => return Ok(to),
        Err(Errno::XDEV) => {}
        Err(source) => return Err(failed("move", path, source)),
    }
    // Another file system: move it aside under the same parent first, so that what is copied is what is removed.
    let stat = beneath::stat(parent, name).map_err(|source| failed("look at", path, source))?;
    match EntryType::of(&stat) {
        EntryType::Directory => {
            let directory = beneath::open_dir(parent, name, Locked::Lift).map_err(|source| failed("open", path, source))?;
            kept::copy_tree(directory.as_fd(), &to, Ownership::Caller).map_err(|error| match error {
                kept::KeepError::Entry { source, .. } | kept::KeepError::Create { source, .. } => failed("copy", path, source),
                kept::KeepError::TooMany { .. } => failed("copy", path, Errno::TOOBIG),
            })?;
        }
        EntryType::File => {
            let (from, _) = beneath::open_file(parent, name, Locked::Lift).map_err(|source| failed("open", path, source))?;
            kept::copy_file(&from, &inner, name).map_err(|source| failed("copy", path, source))?;
        }
        EntryType::Symlink => {
            let text = beneath::read_link(parent, name).map_err(|source| failed("read the link", path, source))?;
            rustix::fs::symlinkat(text.as_slice(), &inner, name).map_err(|source| failed("copy", path, source))?;
        }
        // Nothing in it is worth keeping.
        EntryType::Special => {}
    }
    remove::remove_at(parent, name, path).map_err(|error| match error {
        remove::RemoveError::Entry { source, .. } | remove::RemoveError::Parent { source, .. } => failed("remove", path, source),
        remove::RemoveError::BadPath { .. } => failed("remove", path, Errno::INVAL),
    })?;
    Ok(to)
}

fn put_back(root: BorrowedFd<'_>, path: &Path, text: &[u8]) -> Result<(), Errno> {
    let (parent, name) = beneath::split(path).ok_or(Errno::INVAL)?;
    let parent = beneath::resolve_dir(root, parent)?;
    rustix::fs::symlinkat(text, &parent, name)?;
    if rustix::process::geteuid().is_root() {
        let around = rustix::fs::fstat(&parent)?;
        let (uid, gid) = (rustix::fs::Uid::from_raw(around.st_uid), rustix::fs::Gid::from_raw(around.st_gid));
        rustix::fs::chownat(&parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

fn open(workspace: &Path) -> Result<beneath::Directory, GuardError> {
    beneath::open_root(workspace).map_err(|source| GuardError::Workspace { path: shown(workspace), source })
}

fn failed(step: &'static str, path: &Path, source: Errno) -> GuardError {
    GuardError::Entry { step, path: shown(path), source }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::workspace::testing::{listing, run};

    struct Place {
        base: tempfile::TempDir,
        workspace: PathBuf,
    }

    fn place(prepare: &str) -> Place {
        let base = tempfile::tempdir().unwrap();
        let workspace = base.path().join("workspace");
        fs::create_dir(&workspace).unwrap();
        fs::create_dir(base.path().join("quarantine")).unwrap();
        shell(&workspace, prepare);
        Place { base, workspace }
    }

    fn shell(at: &Path, script: &str) {
        run("bash", &["-ec", &format!("cd '{}'; umask 022; {script}", at.display())]);
    }

    fn texts(paths: &[&Path]) -> Vec<String> {
        paths.iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn existing_paths_and_their_ancestors_are_listed() {
        let place = place(
            "git init -q .; mkdir -p .vscode packages/x/.vscode .claude node_modules/y/.vscode; touch .vscode/tasks.json .vscode/launch.json \
             packages/x/.vscode/settings.json .claude/a .envrc node_modules/y/.vscode/tasks.json src",
        );
        let snapshot = ProtectedSnapshot::take(&place.workspace).unwrap();
        assert_eq!(
            texts(&snapshot.read_only()),
            [".claude", ".envrc", ".git/hooks", ".vscode/tasks.json", "packages/x/.vscode/settings.json"]
        );
        assert_eq!(texts(&snapshot.pinned()), [".git", ".vscode", "packages", "packages/x", "packages/x/.vscode"]);
        assert_eq!(snapshot.git_configs(), [Path::new(".git/config")]);
        assert_eq!(snapshot.completeness(), Completeness::Whole);
        let nothing = snapshot.quarantine(&place.base.path().join("quarantine")).unwrap();
        assert_eq!(nothing.violations, []);
    }

    #[track_caller]
    fn check(prepare: &str, script: &str, moved: &[&str], left: &[&str]) {
        let place = place(prepare);
        let snapshot = ProtectedSnapshot::take(&place.workspace).unwrap();
        shell(&place.workspace, script);
        let quarantine = place.base.path().join("quarantine");
        let done = snapshot.quarantine(&quarantine).unwrap();
        let paths: Vec<_> = done.violations.iter().map(|violation| violation.path.to_str().unwrap()).collect();
        assert_eq!(paths, moved, "{done:?}");
        for violation in &done.violations {
            let Outcome::Moved(to) = &violation.outcome else { panic!("{violation}") };
            assert!(fs::symlink_metadata(to).is_ok() && to.starts_with(&quarantine), "{violation}");
        }
        assert_eq!(listing(&place.workspace), left);
    }

    #[test]
    fn new_paths_are_taken_away() {
        check(
            "mkdir -p .git/hooks; echo old >.envrc",
            "echo ok >ok; mkdir -p .claude/deep sub; echo x >.claude/deep/x; echo y >sub/.envrc; ln -s /tmp .husky; echo 'gitdir: x' >sub/.git; \
             mkdir -p bare/objects bare/refs; echo h >bare/HEAD; echo evil >bare/config; echo evil >.git/config",
            &[".claude", ".git/config", ".husky", "bare/config", "sub/.envrc", "sub/.git"],
            &[
                ".envrc 644 old",
                ".git/ 755",
                ".git/hooks/ 755",
                "bare/ 755",
                "bare/HEAD 644 h",
                "bare/objects/ 755",
                "bare/refs/ 755",
                "ok 644 ok",
                "sub/ 755",
            ],
        );
    }

    #[test]
    fn links_are_put_back() {
        check("mkdir real; ln -s real .claude", "ln -sfn /tmp .claude", &[".claude"], &[".claude -> real", "real/ 755"]);
        check(
            "mkdir real; ln -s real .claude",
            "rm .claude; mkdir .claude; echo x >.claude/x",
            &[".claude"],
            &[".claude -> real", "real/ 755"],
        );
    }

    #[test]
    fn another_file_system_is_no_obstacle() {
        let place = place("true");
        let snapshot = ProtectedSnapshot::take(&place.workspace).unwrap();
        shell(
            &place.workspace,
            "mkdir -p .claude/d; echo x >.claude/d/x; ln -s /etc .claude/l; chmod 0 .claude/d; echo y >.envrc; ln -s /etc .idea; mkfifo .zshrc",
        );
        let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
        let done = snapshot.quarantine(elsewhere.path()).unwrap();
        assert_eq!(done.violations.len(), 4);
        assert!(done.violations.iter().all(|violation| matches!(violation.outcome, Outcome::Moved(_))), "{done:?}");
        assert_eq!(listing(&place.workspace), [] as [&str; 0]);
        let Outcome::Moved(claude) = &done.violations[0].outcome else { panic!() };
        assert_eq!(listing(claude), ["d/ 0", "d/x 644 x", "l -> /etc"]);
    }

    #[test]
    fn a_parent_that_became_a_link_is_not_followed() {
        let place = place("mkdir d");
        let outside = place.base.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join(".envrc"), "mine").unwrap();
        let snapshot = ProtectedSnapshot::take(&place.workspace).unwrap();
        fs::remove_dir(place.workspace.join("d")).unwrap();
        symlink(&outside, place.workspace.join("d")).unwrap();
        assert_eq!(snapshot.quarantine(&place.base.path().join("quarantine")).unwrap().violations, []);
        assert!(outside.join(".envrc").exists());
    }
}
