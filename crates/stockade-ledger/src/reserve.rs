//! Room that is kept back on the ledger's disk: whoever makes room on a full one can still write down that they do.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// What holds the room.
const FILE: &str = "reserve";
/// How much: a few receipts, and what the database puts beside itself.
const BYTES: usize = 256 << 10;
/// With less than this many bytes or files left, a disk counts as full.
const LITTLE: u64 = 256 << 10;
const FEW: u64 = 8;

/// Keeps room back, where none is. Without room there is none to keep back.
pub(crate) fn make(directory: &Path) {
    let path = path(directory);
    if path.exists() || is_full(directory) {
        return;
    }
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(&vec![0; BYTES])
    };
    if write().is_err() {
        let _ = std::fs::remove_file(&path);
    }
}

/// Gives the room up if the disk is full. [`crate::Ledger::tidy`] keeps it back again when there is some.
pub fn release_if_full(directory: &Path) {
    if is_full(directory) {
        // It may have been given up already.
        let _ = std::fs::remove_file(path(directory));
    }
}

fn is_full(directory: &Path) -> bool {
    rustix::fs::statvfs(directory).is_ok_and(|disk| {
        // Some file systems do not count files.
        disk.f_bavail.saturating_mul(disk.f_frsize) < LITTLE || (disk.f_files > 0 && disk.f_favail < FEW)
    })
}

fn path(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_kept_back_once_and_not_given_up_without_need() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path());
        let made = path(directory.path()).metadata().unwrap();
        assert_eq!(made.len(), BYTES as u64);
        make(directory.path());
        release_if_full(directory.path());
        assert!(path(directory.path()).exists());
    }
}
