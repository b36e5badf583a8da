//! Small files of ours: read within bounds, written whole; and what tells whether a file changed.

use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use serde::{Deserialize, Serialize};

/// What most files fit into, so that they are read in one go.
const USUAL: usize = 8 << 10;

/// What changes whenever a file does: device, inode, size, and when it was changed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp(u64, u64, u64, i64, i64);

impl Stamp {
    /// Of what was looked at.
    pub(super) fn of(found: &Metadata) -> Self {
        Self(found.dev(), found.ino(), found.size(), found.ctime(), found.ctime_nsec())
    }

    /// Of what lies at a path; a link is not followed.
    pub(super) fn at(path: &Path) -> Option<Self> {
        std::fs::symlink_metadata(path).ok().map(|found| Self::of(&found))
    }

    /// Of what lies beneath an open directory, or of that itself where the path is empty; a link is not followed.
    pub(super) fn beneath(directory: impl AsFd, path: &str) -> Option<Self> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
        let found = rustix::fs::statx(directory, path, flags, StatxFlags::BASIC_STATS).ok()?;
        let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
        Some(Self(device, found.stx_ino, found.stx_size, found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec.into()))
    }

    /// Whether it is so young that another change could have the same time.
    pub(super) fn is_young(self, now: i64) -> bool {
        self.3 + 2 > now
    }
}

/// A directory, to look at what is beneath it.
pub(super) fn open_directory(path: &Path) -> Option<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// A file's bytes; `None` where there is none.
pub(crate) fn read(path: &Path, most: usize) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::with_capacity(USUAL);
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {most} bytes")));
    }
    Ok(Some(bytes))
}

/// Writes a private file in one step: it is there whole, or as it was before.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes, File::sync_all)
}

/// The same for what can be found out again: after a power failure it may be empty.
pub(super) fn write_lightly(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes, |_| Ok(()))
}

fn replace(path: &Path, bytes: &[u8], settle: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let draft = path.with_extension(format!("{}.draft", std::process::id()));
    let written = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft).and_then(|mut file| {
        file.write_all(bytes)?;
        settle(&file)
    });
    let result = written.and_then(|()| std::fs::rename(&draft, path));
    if result.is_err() {
        // What is left of a failed attempt helps nobody.
        let _ = std::fs::remove_file(&draft);
    }
    result
}

/// A digest as people write it.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut digits, byte| {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}
