//! What receipts name by digest: output, input, differences. Kept as plain files, capped, and deleted without harm to the chain.
//!
//! ```text
//! payloads/ab/cd…   the bytes whose SHA-256 is abcd…, less their secrets
//! ```

use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use stockade_verify::text::{from_hex, to_hex};

use crate::error::LedgerError;
use crate::receipt::Redaction;
use crate::redact::{self, Counts, Redact};

/// What was kept less long ago is not written again.
const YOUNG: Duration = Duration::from_hours(24);

/// The store of payloads beside a ledger.
#[derive(Debug, Clone)]
pub struct Payloads {
    root: PathBuf,
    most: u64,
}

/// A payload as a receipt names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The digest of the redacted bytes.
    pub sha256: String,
    /// How many there are.
    pub bytes: u64,
    /// What was taken out of them.
    pub redactions: Vec<Redaction>,
    /// Whether the bytes themselves were kept.
    pub kept: Kept,
}

/// Whether a payload's bytes are in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// They are.
    Yes,
    /// They are more than the store takes; the digest stands alone.
    TooLarge,
}

/// What is kept for how long.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Payloads older than this go.
    pub age: Duration,
    /// Then the oldest, until the rest has at most this many bytes.
    pub bytes: u64,
}

impl Default for Retention {
    /// Thirty days, and one gibibyte.
    fn default() -> Self {
        Self { age: Duration::from_hours(30 * 24), bytes: 1 << 30 }
    }
}

/// What a pruning did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// How many payloads went.
    pub payloads: u64,
    /// How many bytes they had.
    pub bytes: u64,
}

impl Payloads {
    /// The largest payload, unless another is given.
    pub const MOST: u64 = 10 << 20;

    /// The store beside the ledger in this directory.
    pub fn new(directory: &Path, most: u64) -> Self {
        Self { root: directory.join("payloads"), most }
    }

    /// Takes the secrets out of some bytes, and keeps the rest under its digest.
    pub fn keep(&self, bytes: &[u8], redactor: &dyn Redact) -> Result<Stored, LedgerError> {
        let mut counts = Counts::default();
        let redacted = redact::bytes(redactor, bytes, &mut counts)?;
        let bytes = redacted.as_deref().unwrap_or(bytes);
        let sha256 = to_hex(&Sha256::digest(bytes));
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let kept = if size > self.most { Kept::TooLarge } else { Kept::Yes };
        if kept == Kept::Yes {
            self.write(&sha256, bytes)?;
        }
        Ok(Stored { sha256, bytes: size, redactions: counts.to_redactions(), kept })
    }

    /// The bytes of a digest; `None` where they are gone. Bytes that are not those of the digest are as good as gone.
    pub fn read(&self, sha256: &str) -> Result<Option<Vec<u8>>, LedgerError> {
        let Some(path) = self.path(sha256) else { return Ok(None) };
        let file = match std::fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LedgerError::file("open", &path)(error)),
        };
        let mut bytes = Vec::new();
        file.take(self.most.saturating_add(1)).read_to_end(&mut bytes).map_err(LedgerError::file("read", &path))?;
        Ok(Some(bytes).filter(|bytes| to_hex(&Sha256::digest(bytes)) == sha256))
    }

    /// Whether what is kept under a digest has that digest; `None` where nothing is.
    pub fn holds(&self, sha256: &str) -> Result<Option<bool>, LedgerError> {
        let is_there = self.path(sha256).is_some_and(|path| path.symlink_metadata().is_ok());
        let found = self.read(sha256)?;
        Ok(is_there.then_some(found.is_some()))
    }

    /// Deletes what is too old, then the oldest of what is too much.
    pub fn prune(&self, retention: Retention, now: SystemTime) -> Result<Pruned, LedgerError> {
        let mut found = self.list()?;
        found.sort_unstable_by_key(|(age, ..)| *age);
        let mut total: u64 = found.iter().map(|(_, size, _)| size).sum();
        let mut pruned = Pruned::default();
        for (time, size, path) in found {
            let is_old = now.duration_since(time).is_ok_and(|age| age > retention.age);
            if !is_old && total <= retention.bytes {
                break;
            }
            std::fs::remove_file(&path).map_err(LedgerError::file("remove", &path))?;
            total = total.saturating_sub(size);
            pruned.payloads += 1;
            pruned.bytes += size;
        }
        Ok(pruned)
    }

    /// Deletes what is too old or too much, at most once a day.
    pub(crate) fn prune_daily(&self) -> Result<(), LedgerError> {
        let marker = self.root.with_file_name("payloads-pruned");
        let is_due = marker.metadata().and_then(|found| found.modified()).map_or(true, |time| time.elapsed().is_ok_and(|age| age > YOUNG));
        if !is_due {
            return Ok(());
        }
        std::fs::write(&marker, "").map_err(LedgerError::file("write", &marker))?;
        self.prune(Retention::default(), SystemTime::now()).map(drop)
    }

    fn list(&self) -> Result<Vec<(SystemTime, u64, PathBuf)>, LedgerError> {
        let mut found = Vec::new();
        let shelves = match std::fs::read_dir(&self.root) {
            Ok(shelves) => shelves,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
            Err(error) => return Err(LedgerError::file("list", &self.root)(error)),
        };
        for shelf in shelves {
            let shelf = shelf.map_err(LedgerError::file("list", &self.root))?.path();
            for entry in std::fs::read_dir(&shelf).map_err(LedgerError::file("list", &shelf))? {
                let path = entry.map_err(LedgerError::file("list", &shelf))?.path();
                let data = path.symlink_metadata().map_err(LedgerError::file("look at", &path))?;
                found.push((data.modified().map_err(LedgerError::file("look at", &path))?, data.len(), path));
            }
        }
        Ok(found)
    }

    fn write(&self, sha256: &str, bytes: &[u8]) -> Result<(), LedgerError> {
        let Some(path) = self.path(sha256) else { return Ok(()) };
        if is_young(&path, bytes) {
            return Ok(());
        }
        let shelf = path.parent().unwrap_or(&self.root);
        stockade_private_dir::ensure_private_dir(shelf).map_err(|error| LedgerError::Directory(std::sync::Arc::new(error)))?;
        // A name of its own and a rename: nobody ever sees half a payload, and keeping one again makes it young again.
        let draft = shelf.join(format!(".{}", uuid::Uuid::now_v7().simple()));
        let write = || -> std::io::Result<()> {
            let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(bytes)?;
            std::fs::rename(&draft, &path)
        };
        write().map_err(|error| {
            let _ = std::fs::remove_file(&draft);
            LedgerError::file("write", &path)(error)
        })
    }

    /// Where a digest is kept; `None` for text that is none.
    fn path(&self, sha256: &str) -> Option<PathBuf> {
        from_hex::<32>(sha256)?;
        let (shelf, name) = sha256.split_at_checked(2)?;
        Some(self.root.join(shelf).join(name))
    }
}

/// Whether these bytes were kept so lately that they need not become young again. Others than these are written over.
fn is_young(path: &Path, bytes: &[u8]) -> bool {
    let young = |found: std::fs::Metadata| {
        let age = found.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
        found.is_file() && found.len() == bytes.len() as u64 && age.is_some_and(|age| age < YOUNG)
    };
    path.symlink_metadata().is_ok_and(young)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::Redactor;

    #[test]
    fn payloads_are_kept_redacted_by_digest() {
        let directory = tempfile::tempdir().unwrap();
        let payloads = Payloads::new(directory.path(), 64);
        let redactor = Redactor::new([("TOKEN", b"0123456789abcdef".as_slice())]).unwrap();
        let stored = payloads.keep(b"the key is 0123456789abcdef\n", &redactor).unwrap();
        assert_eq!(stored.sha256, to_hex(&Sha256::digest(b"the key is [redacted:TOKEN]\n")), "the digest is of what is kept");
        assert_eq!(payloads.read(&stored.sha256).unwrap().unwrap(), b"the key is [redacted:TOKEN]\n");
        assert_eq!((stored.kept, stored.redactions[0].count), (Kept::Yes, 1));
        let large = payloads.keep(&[7; 65], &redactor).unwrap();
        assert_eq!((large.kept, large.bytes, payloads.read(&large.sha256).unwrap()), (Kept::TooLarge, 65, None));
        assert_eq!(payloads.read("../../etc/passwd").unwrap(), None);
    }

    #[test]
    fn old_and_surplus_payloads_go_oldest_first() {
        let directory = tempfile::tempdir().unwrap();
        let payloads = Payloads::new(directory.path(), 64);
        assert_eq!(payloads.prune(Retention { age: Duration::ZERO, bytes: 0 }, SystemTime::now()).unwrap(), Pruned::default());
        let now = SystemTime::now();
        let keep = |text: &str, seconds: u64| {
            let stored = payloads.keep(text.as_bytes(), &Redactor::none()).unwrap();
            let file = std::fs::File::options().write(true).open(payloads.path(&stored.sha256).unwrap()).unwrap();
            file.set_modified(now - Duration::from_secs(seconds)).unwrap();
            stored.sha256
        };
        let (old, middle, young) = (keep("old!", 1000), keep("middle", 50), keep("young", 10));
        let pruned = payloads.prune(Retention { age: Duration::from_secs(100), bytes: 5 }, now).unwrap();
        assert_eq!(pruned, Pruned { payloads: 2, bytes: 10 });
        let is_there = |sha256: &str| payloads.read(sha256).unwrap().is_some();
        assert!(!is_there(&old) && !is_there(&middle) && is_there(&young));
    }
}
