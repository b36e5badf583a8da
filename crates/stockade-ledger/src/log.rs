//! The write-ahead log as a file: what was committed is made safe from a power cut here, while others already write on.
//!
//! The database could wait for the disk itself, but would hold its lock meanwhile. The log has its name for as long as a connection is open, and what
//! is taken out of it is on the disk in its other place before: whoever wrote has only to wait until the disk has all of the log.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::database;
use crate::error::LedgerError;

/// The log of a ledger that is open.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: OnceLock<File>,
    failure: OnceLock<LedgerError>,
}

impl Log {
    /// The log of the ledger in a directory.
    pub(crate) fn new(directory: &Path) -> Self {
        Self { path: directory.join(format!("{}-wal", database::FILE)), file: OnceLock::new(), failure: OnceLock::new() }
    }

    /// Waits until everything that was committed is on the disk.
    ///
    /// A disk that failed once is not believed again: the system forgets what it could not write, and would say next time that all is well.
    pub(crate) fn sync(&self) -> Result<(), LedgerError> {
        if let Some(failure) = self.failure.get() {
            return Err(failure.clone());
        }
        let synced = self.open().and_then(|file| file.sync_data().map_err(LedgerError::file("sync", &self.path)));
        synced.inspect_err(|failure| {
            let _ = self.failure.set(failure.clone());
        })
    }

    fn open(&self) -> Result<&File, LedgerError> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let file = File::options().read(true).custom_flags(flags).open(&self.path).map_err(LedgerError::file("open", &self.path))?;
        Ok(self.file.get_or_init(|| file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_failed_is_not_believed_again() {
        let directory = tempfile::tempdir().unwrap();
        let log = Log::new(directory.path());
        assert!(log.sync().is_err());
        std::fs::write(directory.path().join("ledger.db-wal"), "").unwrap();
        assert!(log.sync().is_err());
        Log::new(directory.path()).sync().unwrap();
    }
}
