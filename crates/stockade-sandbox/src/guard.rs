//! Protected paths of everything that a sandbox may write through: the workspace in `rw`, `rw` mounts, a worktree's git directory.
//!
//! ```text
//! take (before) ─▶ entries: what the wall mounts read-only, pins, redirects, covers
//!               └▶ written beside the sandbox, so that a later start can finish for one that was killed
//! quarantine (after) ─▶ what newly exists is moved away, what git changed in its private copies is told
//! ```

use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stockade_core::spec::{MountMode, SandboxSpec};

use crate::workspace::rw::{Completeness, GuardError, ProtectedSnapshot};
use crate::workspace::shown;

/// Name of the written guard in a sandbox's directory.
const FILE: &str = "guard.json";
/// A configuration larger than this is not git's.
const MAX_CONFIG: u64 = 1 << 20;

/// What a protected path becomes inside. Paths are of the host; `guest` is where it is inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Shown read-only.
    ReadOnly {
        /// Outside.
        host: PathBuf,
        /// Inside.
        guest: PathBuf,
    },
    /// An ancestor of a protected path: a mount point, so that it cannot be renamed away.
    Pinned {
        /// Outside.
        host: PathBuf,
        /// Inside.
        guest: PathBuf,
    },
    /// A git configuration: writes go to a private copy.
    Redirected {
        /// Outside.
        host: PathBuf,
        /// Inside.
        guest: PathBuf,
        /// What the copy begins with.
        contents: Vec<u8>,
    },
    /// A socket of the host: nothing.
    Covered {
        /// Inside.
        guest: PathBuf,
    },
}

impl Entry {
    fn guest(&self) -> &Path {
        match self {
            Self::ReadOnly { guest, .. } | Self::Pinned { guest, .. } | Self::Redirected { guest, .. } | Self::Covered { guest } => guest,
        }
    }
}

/// The protected paths that existed before anything ran.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guard {
    /// Each writable directory, and where it appears inside.
    roots: Vec<(ProtectedSnapshot, PathBuf)>,
}

impl Guard {
    /// Looks at everything that the sandbox may write through.
    pub fn take(spec: &SandboxSpec) -> Result<Self, GuardError> {
        let mut roots = Vec::new();
        let mut add = |host: &Path, guest: &Path| -> Result<(), GuardError> {
            roots.push((ProtectedSnapshot::take(host)?, guest.to_owned()));
            Ok(())
        };
        if spec.workspace.mode == MountMode::Rw {
            add(spec.workspace.path.as_path(), spec.workspace.path.as_path())?;
            if let Some(common) = &spec.workspace.git_common {
                add(common.as_path(), common.as_path())?;
            }
        }
        for mount in spec.mounts.iter().filter(|m| m.mode == MountMode::Rw && m.host.as_path().is_dir()) {
            add(mount.host.as_path(), mount.guest.as_path())?;
        }
        Ok(Self { roots })
    }

    /// What the wall has to do, outer before inner.
    pub fn entries(&self) -> Result<Vec<Entry>, String> {
        let mut entries = Vec::new();
        for (snapshot, guest) in &self.roots {
            let both = |path: &Path| (snapshot.workspace().join(path), guest.join(path));
            entries.extend(snapshot.pinned().into_iter().map(both).map(|(host, guest)| Entry::Pinned { host, guest }));
            entries.extend(snapshot.read_only().into_iter().map(both).map(|(host, guest)| Entry::ReadOnly { host, guest }));
            for (host, guest) in snapshot.git_configs().into_iter().map(both) {
                let contents = read_config(&host)?;
                entries.push(Entry::Redirected { host, guest, contents });
            }
            entries.extend(snapshot.sockets().map(|path| Entry::Covered { guest: guest.join(path) }));
        }
        entries.sort_by(|a, b| (a.guest().components().count(), a.guest()).cmp(&(b.guest().components().count(), b.guest())));
        entries.dedup_by(|a, b| a.guest() == b.guest());
        Ok(entries)
    }

    /// Writes it beside the sandbox; nothing where nothing is guarded.
    pub fn write(&self, directory: &Path) -> std::io::Result<()> {
        if self.roots.is_empty() {
            return Ok(());
        }
        fs::write(directory.join(FILE), serde_json::to_vec(self)?)
    }

    /// The guard of a sandbox whose owner is gone, if it had one.
    pub fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(directory.join(FILE)).ok()?).ok()
    }

    /// Moves what newly exists to `into` (made when needed) and says, one line each, what was not right.
    pub fn quarantine(&self, into: &Path) -> Vec<String> {
        let mut said = Vec::new();
        for (snapshot, _) in &self.roots {
            let made = crate::state::private_directory(into).map_err(|e| e.to_string());
            match made.and_then(|()| snapshot.quarantine(into).map_err(|e| told(&e))) {
                Ok(quarantined) => {
                    said.extend(quarantined.violations.iter().map(ToString::to_string));
                    if quarantined.completeness == Completeness::Bounded {
                        said.push(format!(
                            "not everything in `{}` could be looked at for new protected files",
                            shown(snapshot.workspace())
                        ));
                    }
                }
                Err(error) => said.push(format!("new protected files could not be taken away: {error}")),
            }
        }
        // An empty quarantine is nothing to keep.
        let _ = fs::remove_dir(into);
        said
    }

    /// Which git configurations were changed in their private copies; `exports` are the copies' directories in the order of the entries.
    pub fn changed_configs(&self, exports: &[(String, OwnedFd)]) -> Vec<String> {
        let entries = match self.entries() {
            Ok(entries) => entries,
            Err(error) => return vec![format!("whether git's configuration was changed in a private copy cannot be told: {error}")],
        };
        let redirected = entries.into_iter().filter_map(|entry| match entry {
            Entry::Redirected { host, contents, .. } => Some((host, contents)),
            Entry::ReadOnly { .. } | Entry::Pinned { .. } | Entry::Covered { .. } => None,
        });
        let copies = exports.iter().filter(|(name, _)| name.starts_with("git-config-"));
        let changed = copies.zip(redirected).filter(|((_, copy), (_, before))| config_in(copy).is_none_or(|after| after != *before));
        changed.map(|(_, (host, _))| format!("`{}` was changed in a private copy only", shown(&host))).collect()
    }
}

/// An error with its causes on one line.
fn told(error: &GuardError) -> String {
    use std::error::Error;
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// Reads a configuration of the host: a regular file, no link, bounded, never waiting for a writer.
fn read_config(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |why: String| format!("reading {}: {why}", shown(path));
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .map_err(|e| failed(e.to_string()))?;
    bounded(file).ok_or_else(|| failed("it is not a small regular file".into()))
}

/// Reads a configuration that a sandbox left.
fn config_in(directory: &OwnedFd) -> Option<Vec<u8>> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory.as_fd(), "config", flags, rustix::fs::Mode::empty()).ok()?;
    bounded(fs::File::from(file))
}

fn bounded(file: fs::File) -> Option<Vec<u8>> {
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_CONFIG + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_CONFIG).then_some(bytes)
}
