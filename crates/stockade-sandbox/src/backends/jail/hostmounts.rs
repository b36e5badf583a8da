//! How directories of the host get into a jail.
//!
//! An ordinary user's guest opens paths in its own copy of the mount table; nobody's identity changes. Started by root, the
//! sandbox is a user that owns nothing, so root opens each directory here, maps its owner to that user, and passes the mount.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;
use stockade_sys::idmap::{self, Swap, UserNamespace};
use stockade_wire::plan::Source;

use super::plan::{Ownership, PlanError};

/// The most mounts that can be passed: as many descriptors as one message takes, less some for the cgroups that are joined.
const MOST: usize = crate::connection::MAX_FDS - 8;

/// Opens directories of the host for one jail.
pub(super) struct HostMounts {
    /// Set when the sandbox runs as another user than we do: the user and group it runs as, outside.
    foreign: Option<(u32, u32)>,
    /// Directories of ours: where ids cannot be mapped, they are given to the sandbox's user instead.
    own: PathBuf,
    namespaces: HashMap<(u32, u32), UserNamespace>,
    /// What was mapped to see whether it can be: closing a mount that is nowhere attached waits for RCU.
    tried: HashMap<PathBuf, OwnedFd>,
    passed: Vec<OwnedFd>,
}

impl HostMounts {
    pub(super) fn new(foreign: Option<(u32, u32)>, own: &Path) -> Self {
        Self { foreign, own: own.to_owned(), namespaces: HashMap::new(), tried: HashMap::new(), passed: Vec::new() }
    }

    /// Closes our copies of mounts that now stand inside, which costs nothing while they are mounted there. What is given back only
    /// needs to go at some time.
    pub(super) fn into_namespaces(self) -> Vec<UserNamespace> {
        self.namespaces.into_values().collect()
    }

    /// Mounts to send with the plan.
    pub(super) fn passed(&self) -> Vec<BorrowedFd<'_>> {
        self.passed.iter().map(AsFd::as_fd).collect()
    }

    /// Takes the mounts to send; what is known about owners stays, for the next plan.
    pub(super) fn take_passed(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.passed)
    }

    /// Whether the owner of a directory can be mapped to the sandbox's user.
    pub(super) fn can_map(&mut self, path: &Path) -> bool {
        if self.foreign.is_none() {
            return true;
        }
        let mapped = self.mapped(path);
        mapped.is_ok_and(|tree| {
            self.tried.insert(path.to_owned(), tree);
            true
        })
    }

    /// The wire form of a directory or file.
    pub(super) fn open(&mut self, path: &Path, ownership: Ownership) -> Result<Source, PlanError> {
        let failed = |why: String| PlanError::Source { path: stockade_core::escape::escape_bytes(path.as_os_str().as_bytes()), why };
        if self.foreign.is_none() || ownership == Ownership::System && !path.starts_with("/root") {
            let stat = rustix::fs::lstat(path).map_err(|e| failed(e.to_string()))?;
            return Ok(Source::Host { path: path.as_os_str().as_bytes().into(), dev: stat.st_dev as u64, ino: stat.st_ino as u64 });
        }
        let tree = match (self.mapped(path), ownership) {
            (Ok(tree), _) => tree,
            (Err(_), Ownership::Write) if path.starts_with(&self.own) => {
                if let Some((uid, gid)) = self.foreign {
                    lchown(path, Some(uid), Some(gid)).map_err(|e| failed(e.to_string()))?;
                }
                clone_tree(path).map_err(|e| failed(e.to_string()))?
            }
            (Err(_), Ownership::Read | Ownership::System) => clone_tree(path).map_err(|e| failed(e.to_string()))?,
            (Err(errno), Ownership::Write) => return Err(failed(format!("its owner cannot be mapped on this file system: {errno}"))),
        };
        let index = u8::try_from(self.passed.len()).ok().filter(|i| usize::from(*i) < MOST);
        let index = index.ok_or_else(|| failed("too many mounts".into()))?;
        self.passed.push(tree);
        Ok(Source::Passed { index })
    }

    fn mapped(&mut self, path: &Path) -> Result<OwnedFd, Errno> {
        if let Some(tree) = self.tried.remove(path) {
            return Ok(tree);
        }
        let tree = clone_tree(path)?;
        let Some((uid, gid)) = self.foreign else { return Ok(tree) };
        let meta = std::fs::symlink_metadata(path).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        let owner = (meta.uid(), meta.gid());
        let namespace = match self.namespaces.entry(owner) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let users = Swap { on_disk: owner.0, shown: uid };
                let groups = Swap { on_disk: owner.1, shown: gid };
                let namespace = idmap::user_namespace(users, groups).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
                place.insert(namespace)
            }
        };
        idmap::map_mount(tree.as_fd(), namespace)?;
        Ok(tree)
    }
}

fn clone_tree(path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let fd = rustix::fs::openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(&fd, c"", flags)
}
