//! The directory of the store: everything in it is reached through one descriptor, checked before it is read, and replaced whole.
//!
//! Knows nothing of keys or entries; it moves bytes.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use stockade_store::private_dir::ensure_private_dir;
use zeroize::Zeroizing;

use super::error::StoreError;

/// How long to wait for another writer.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// How often to look.
const LOCK_POLL: Duration = Duration::from_millis(5);
/// How many names for a new file are tried.
const MAX_NAMES: u32 = 64;
/// What the names of unfinished files begin with.
const UNFINISHED: &str = ".new-";
const LOCK: &str = "lock";
/// A directory with more than this in it is not ours.
const MAX_LISTED: usize = 8192;

/// The directory.
pub(super) struct Place {
    path: PathBuf,
    directory: OwnedFd,
}

/// Held while something is written.
pub(super) struct Lock {
    _file: File,
}

impl Place {
    /// Opens the directory if it is there.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, StoreError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(StoreError::NotPlain(path.to_owned())),
            Err(errno) => return Err(StoreError::Open(path.to_owned(), errno.into())),
        };
        let found = rustix::fs::fstat(&directory).map_err(|errno| StoreError::Open(path.to_owned(), errno.into()))?;
        check_owner(path, &found)?;
        Ok(Some(Self { path: path.to_owned(), directory }))
    }

    /// Opens the directory, which is made if need be. An open one is not tightened: what is in it may have been read or planted.
    pub(super) fn create(path: &Path) -> Result<Self, StoreError> {
        if let Some(place) = Self::open(path)? {
            return Ok(place);
        }
        if let Some(parent) = path.parent() {
            ensure_private_dir(parent)?;
        }
        ensure_private_dir(path)?;
        Self::open(path)?.ok_or_else(|| StoreError::Open(path.to_owned(), Errno::NOENT.into()))
    }

    /// Where a file of that name is.
    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads a file whole if it is there: plain, ours alone, with one name, and no longer than `most`.
    pub(super) fn read(&self, name: &str, most: usize) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError> {
        let path = self.path_of(name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.directory, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NXIO) => return Err(StoreError::NotPlain(path)),
            Err(errno) => return Err(StoreError::Read(path, errno.into())),
        };
        let found = rustix::fs::fstat(&file).map_err(|errno| StoreError::Read(path.clone(), errno.into()))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || found.st_nlink != 1 {
            return Err(StoreError::NotPlain(path));
        }
        check_owner(&path, &found)?;
        // One byte of room more than allowed: a buffer that grew would leave pieces behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(most + 1));
        file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(|error| StoreError::Read(path.clone(), error))?;
        if bytes.len() > most {
            return Err(StoreError::Damaged { path, why: "it is too long" });
        }
        Ok(Some(bytes))
    }

    /// Puts a file in place of the one of that name: complete and on disk before it has the name.
    pub(super) fn replace(&self, name: &str, bytes: &[u8], _lock: &Lock) -> Result<(), StoreError> {
        let failed = |error: io::Error| StoreError::Write(self.path_of(name), error);
        let (unfinished, mut file) = self.unfinished().map_err(failed)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| {
            rustix::fs::renameat(&self.directory, unfinished.as_str(), &self.directory, name)?;
            rustix::fs::fsync(&self.directory).map_err(io::Error::from)
        });
        if written.is_err() {
            let _ = rustix::fs::unlinkat(&self.directory, unfinished.as_str(), AtFlags::empty());
        }
        written.map_err(failed)
    }

    /// Removes a file; whether there was one.
    pub(super) fn remove(&self, name: &str, _lock: &Lock) -> Result<bool, StoreError> {
        let failed = |errno: Errno| StoreError::Remove(self.path_of(name), errno.into());
        match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) => rustix::fs::fsync(&self.directory).map(|()| true).map_err(failed),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// The names of all files, sorted; what is not text is not ours and is left out.
    pub(super) fn names(&self) -> Result<Vec<String>, StoreError> {
        let failed = |errno: Errno| StoreError::Open(self.path.clone(), errno.into());
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.directory).map_err(failed)?.take(MAX_LISTED) {
            if let Ok(name) = entry.map_err(failed)?.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Waits for other writers, and clears away what one that was killed left.
    pub(super) fn lock(&self) -> Result<Lock, StoreError> {
        let lock = self.lock_at(LOCK, LOCK_WAIT)?;
        for name in self.names()?.iter().filter(|name| name.starts_with(UNFINISHED)) {
            let _ = rustix::fs::unlinkat(&self.directory, name.as_str(), AtFlags::empty());
        }
        Ok(lock)
    }

    /// Waits for whoever else has a file of this name locked, in this process or another.
    pub(super) fn lock_at(&self, name: &str, most: Duration) -> Result<Lock, StoreError> {
        let path = self.path_of(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| StoreError::Lock(path.clone(), errno.into()))?;
        let file = File::from(file);
        let end = Instant::now() + most;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < end => std::thread::sleep(LOCK_POLL),
                Err(TryLockError::WouldBlock) => return Err(StoreError::Busy(path)),
                Err(TryLockError::Error(error)) => return Err(StoreError::Lock(path, error)),
            }
        }
        Ok(Lock { _file: file })
    }

    fn unfinished(&self) -> io::Result<(String, File)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for attempt in 0..MAX_NAMES {
            let name = format!("{UNFINISHED}{}-{attempt}", std::process::id());
            match rustix::fs::openat(&self.directory, name.as_str(), flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => return Ok((name, File::from(file))),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Errno::EXIST.into())
    }
}

fn check_owner(path: &Path, found: &Stat) -> Result<(), StoreError> {
    let us = rustix::process::geteuid().as_raw();
    if found.st_uid != us {
        return Err(StoreError::NotOurs { path: path.to_owned(), owner: found.st_uid, us });
    }
    let mode = found.st_mode & 0o7777;
    if mode & 0o077 != 0 { Err(StoreError::Exposed { path: path.to_owned(), mode }) } else { Ok(()) }
}
