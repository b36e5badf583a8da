//! Who must write the outcome of an intent: a process that holds a lock for as long as it lives.
//!
//! The lock is the kernel's, so it is free the moment its owner is gone, however that came about, and whatever name space either lives in.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::error::LedgerError;

/// An owner that was made longer ago holds its lock, or is dead.
const SETTLED: std::time::Duration = std::time::Duration::from_mins(1);

/// This process, as long as it has the ledger open.
#[derive(Debug)]
pub(crate) struct Owner {
    name: String,
    path: PathBuf,
    _lock: std::fs::File,
}

/// Whether an owner lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Alive,
    Dead,
}

impl Owner {
    /// Makes a name and takes its lock.
    pub(crate) fn new(directory: &Path) -> Result<Self, LedgerError> {
        let owners = directory.join("owners");
        let name = uuid::Uuid::now_v7().simple().to_string();
        let path = owners.join(&name);
        let open = || std::fs::File::options().write(true).create_new(true).mode(0o600).open(&path);
        let file = match open() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                stockade_private_dir::ensure_private_dir(&owners).map_err(|error| LedgerError::Directory(std::sync::Arc::new(error)))?;
                open()
            }
            other => other,
        };
        let file = file.map_err(LedgerError::file("create", &path))?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(|errno| LedgerError::file("lock", &path)(errno.into()))?;
        Ok(Self { name, path, _lock: file })
    }

    /// What intents call it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // What is left behind is removed by whoever closes its intents.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the owner of this name lives. What cannot be told counts as alive: an intent is closed late rather than wrongly.
pub(crate) fn life(directory: &Path, name: &str) -> Life {
    // A name that this file did not make leads nowhere, and must not lead out of the directory.
    if !is_name(name) {
        return Life::Dead;
    }
    let path = directory.join("owners").join(name);
    match std::fs::File::options().read(true).open(&path) {
        Ok(file) => match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Life::Dead,
            Err(_) => Life::Alive,
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Life::Dead,
        Err(_) => Life::Alive,
    }
}

/// Removes what a dead owner left.
pub(crate) fn forget(directory: &Path, name: &str) {
    if is_name(name) {
        let _ = std::fs::remove_file(directory.join("owners").join(name));
    }
}

/// Removes the files of owners that died before they began anything. A young one may be somebody's who is about to.
pub(crate) fn sweep(directory: &Path) {
    let Ok(listed) = std::fs::read_dir(directory.join("owners")) else { return };
    for entry in listed.flatten() {
        let is_old = entry.metadata().and_then(|found| found.modified()).is_ok_and(|time| time.elapsed().is_ok_and(|age| age > SETTLED));
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        if is_old && life(directory, &name) == Life::Dead {
            forget(directory, &name);
        }
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_lives_as_long_as_its_lock() {
        let directory = tempfile::tempdir().unwrap();
        let owner = Owner::new(directory.path()).unwrap();
        let name = owner.name().to_owned();
        assert_eq!(life(directory.path(), &name), Life::Alive);
        drop(owner);
        assert_eq!(life(directory.path(), &name), Life::Dead);
        std::fs::write(directory.path().join("owners/0a1b"), "").unwrap();
        assert_eq!(life(directory.path(), "0a1b"), Life::Dead);
        std::fs::write(directory.path().join("out"), "").unwrap();
        assert_eq!(life(directory.path(), "../out"), Life::Dead);
        forget(directory.path(), "../out");
        assert!(directory.path().join("out").exists());
        forget(directory.path(), "0a1b");
        assert!(!directory.path().join("owners/0a1b").exists());
    }
}
