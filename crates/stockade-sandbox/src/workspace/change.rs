//! One changed path: what the host has, what the sandbox has, and how the two are told apart later.
//!
//! Plain values. [`super::layer`] makes them; `diff`, `apply` and receipts read them.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::{FileType, Stat};
use sha2::{Digest as _, Sha256};
use stockade_core::result::{Change, ChangeKind};

use super::digest::ContentDigest;
use super::shown;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A FIFO, socket or device.
    Special,
}

impl EntryType {
    pub(crate) fn of(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => Self::Special,
        }
    }
}

/// A time of change, as the file system keeps it. Compare it only with the fine-grained clock (`CLOCK_REALTIME`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Moment {
    /// Seconds since 1970.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanoseconds: u32,
}

impl Moment {
    /// Now, by the clock that file systems use at their finest.
    pub fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Self { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or(0) }
    }

    pub(crate) fn changed(stat: &Stat) -> Self {
        Self { seconds: stat.st_ctime, nanoseconds: u32::try_from(stat.st_ctime_nsec).unwrap_or(0) }
    }

    pub(crate) fn modified(stat: &Stat) -> Self {
        Self { seconds: stat.st_mtime, nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0) }
    }
}

/// Exactly one state of one inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Stamp {
    /// The device.
    pub device: u64,
    /// The inode.
    pub inode: u64,
    /// When it last changed in any way.
    pub changed: Moment,
}

impl Stamp {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino, changed: Moment::changed(stat) }
    }
}

/// One side of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: EntryType,
    /// Its permission bits, `setuid` and the like included.
    pub mode: u32,
    /// Its size in bytes (of a link: of its text).
    pub size: u64,
    /// Its contents (of a link: its text); `None` for directories, special files, and what was too large or could not be read.
    pub digest: Option<ContentDigest>,
    /// The inode that was looked at.
    pub stamp: Stamp,
}

/// Where a file in the upper tree comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was made inside.
    Sandbox,
    /// Overlayfs copied it up from the host's file before it was changed.
    Host,
}

/// One changed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerChange {
    /// Relative to the workspace; any bytes.
    pub path: PathBuf,
    /// What happened.
    pub kind: ChangeKind,
    /// Where it was before, for a rename.
    pub from: Option<PathBuf>,
    /// What the host has.
    pub old: Option<Entry>,
    /// What the sandbox has.
    pub new: Option<Entry>,
    /// Where the new file comes from.
    pub origin: Origin,
    /// Why it could run code outside later, if it could.
    pub protected: Option<&'static str>,
}

impl LayerChange {
    /// As `run --json` and receipts list it.
    pub fn to_change(&self) -> Change {
        let text = |path: &Path| path.to_str().map_or_else(|| shown(path), str::to_owned);
        Change {
            path: text(&self.path),
            path_base64: self.path.to_str().is_none().then(|| STANDARD.encode(self.path.as_os_str().as_bytes())),
            kind: self.kind,
            from: self.from.as_deref().map(text),
            protected: self.protected.is_some(),
        }
    }
}

impl fmt::Display for LayerChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ChangeKind::Added => "added",
            ChangeKind::Modified => "modified",
            ChangeKind::Deleted => "deleted",
            ChangeKind::Mode => "mode",
            ChangeKind::Renamed => "renamed",
        };
        write!(f, "{kind} {}", shown(&self.path))?;
        if let Some(from) = &self.from {
            write!(f, " from {}", shown(from))?;
        }
        if self.protected.is_some() { f.write_str(" (protected)") } else { Ok(()) }
    }
}

/// One digest over a whole list of changes: what a person was shown, to compare with what is about to be applied.
pub fn digest_of(changes: &[LayerChange]) -> ContentDigest {
    let mut hasher = Sha256::new();
    for change in changes {
        hasher.update(format!("{:?}\0", change.kind));
        for path in [Some(&change.path), change.from.as_ref()] {
            let bytes = path.map(|path| path.as_os_str().as_bytes()).unwrap_or_default();
            hasher.update((bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        }
        for side in [&change.old, &change.new] {
            let text = side.as_ref().map(|entry| (entry.kind, entry.mode, entry.size, entry.digest));
            hasher.update(format!("{text:?}\0"));
        }
    }
    ContentDigest::finish(hasher)
}
