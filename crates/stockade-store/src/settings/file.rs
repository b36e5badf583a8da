//! Replacing a settings file whole: under a lock, through a temporary file, safe on disk before it counts.
//!
//! Whatever happens, a reader sees the old file or the new one, and two writers never lose each other's change.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::edit::Target;
use super::error::SettingsError;
use super::read;
use super::source::Layer;
use crate::places::Places;
use crate::private_dir::ensure_private_dir;

/// How long to wait for another writer.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// How often to look.
const LOCK_POLL: Duration = Duration::from_millis(5);
/// The lock's name beside the person's and the machine's file.
const LOCK_NAME: &str = "settings.lock";
/// How many names for a temporary file are tried.
const MAX_NAMES: u32 = 64;

/// A settings file that nobody else changes while this lives.
pub(crate) struct LockedFile {
    pub(crate) layer: Layer,
    /// As people know it.
    pub(crate) path: PathBuf,
    directory: OwnedFd,
    name: OsString,
    /// Permissions of a new file; `None`: what the umask leaves.
    new_mode: Option<Mode>,
    /// Held until the end.
    _lock: File,
}

/// Whose file a target is, and where.
pub(crate) fn locate(places: &Places, target: Target<'_>) -> (Layer, PathBuf) {
    match target {
        Target::User => (Layer::User, places.user_settings()),
        Target::Project(root) => (Layer::Project, read::project_settings(root)),
        Target::Machine => (Layer::Machine, places.machine_settings()),
    }
}

/// What a target holds now.
pub(crate) fn read(places: &Places, target: Target<'_>) -> Result<Option<Vec<u8>>, SettingsError> {
    match target {
        Target::User => read::read_trusted(&places.user_settings()),
        Target::Project(root) => read::read_project(root),
        Target::Machine => read::read_trusted(&places.machine_settings()),
    }
}

impl LockedFile {
    /// Makes the directory if need be and takes the lock.
    pub(crate) fn lock(places: &Places, target: Target<'_>) -> Result<Self, SettingsError> {
        let (layer, path) = locate(places, target);
        match target {
            Target::User => {
                ensure_private_dir(&places.config)?;
                Self::beside_lock(layer, path, &places.config, Mode::RUSR | Mode::WUSR)
            }
            Target::Machine => {
                // Everybody must be able to read what the machine demands.
                let made = DirBuilder::new().recursive(true).mode(0o755).create(&places.machine);
                made.map_err(|source| SettingsError::Write { path: path.clone(), source })?;
                Self::beside_lock(layer, path, &places.machine, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH)
            }
            Target::Project(root) => Self::in_project(layer, path, root),
        }
    }

    /// The lock is a file of its own in the same directory, since the settings file itself is replaced.
    fn beside_lock(layer: Layer, path: PathBuf, directory: &Path, new_mode: Mode) -> Result<Self, SettingsError> {
        let lock_path = directory.join(LOCK_NAME);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(CWD, &lock_path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| SettingsError::Lock { path: lock_path.clone(), source: errno.into() })?;
        let lock = wait_for(File::from(lock), &lock_path, LOCK_WAIT)?;
        // A link is written through, not replaced: people keep their settings in a repository of their own.
        let real = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        let parent = real.parent().unwrap_or(directory);
        let name = real.file_name().unwrap_or_else(|| OsStr::new(read::FILE_NAME)).to_owned();
        let directory = rustix::fs::openat(CWD, parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| SettingsError::Write { path: path.clone(), source: errno.into() })?;
        Ok(Self { layer, path, directory, name, new_mode: Some(new_mode), _lock: lock })
    }

    /// The lock is the directory itself, so that nothing strange appears in a repository.
    fn in_project(layer: Layer, path: PathBuf, root: &Path) -> Result<Self, SettingsError> {
        let directory_path = root.join(read::PROJECT_DIRECTORY);
        let failed = |source: io::Error| SettingsError::ProjectDirectory { path: directory_path.clone(), source };
        match std::fs::create_dir(&directory_path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        let directory = read::open_project_directory(root)?.ok_or_else(|| failed(Errno::NOENT.into()))?;
        let lock = wait_for(File::from(directory.try_clone().map_err(failed)?), &directory_path, LOCK_WAIT)?;
        Ok(Self { layer, path, directory, name: read::FILE_NAME.into(), new_mode: None, _lock: lock })
    }

    /// Puts new contents in the file's place.
    pub(crate) fn replace(&self, contents: &[u8]) -> Result<(), SettingsError> {
        let failed = |source: io::Error| SettingsError::Write { path: self.path.clone(), source };
        let (temporary, mut file) = self.temporary().map_err(failed)?;
        let written = self.fill(&mut file, contents).and_then(|()| {
            rustix::fs::renameat(&self.directory, &temporary, &self.directory, &self.name)?;
            // The file's own sync does not cover its new name.
            rustix::fs::fsync(&self.directory).map_err(io::Error::from)
        });
        if written.is_err() {
            // Already gone if it was the last sync that failed; nothing more can be done either way.
            let _ = rustix::fs::unlinkat(&self.directory, &temporary, AtFlags::empty());
        }
        written.map_err(failed)
    }

    fn fill(&self, file: &mut File, contents: &[u8]) -> io::Result<()> {
        let old = rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        let mode = old.ok().map(|stat| Mode::from_raw_mode(stat.st_mode & 0o777)).or(self.new_mode);
        if let Some(mode) = mode {
            file.set_permissions(std::fs::Permissions::from_mode(mode.as_raw_mode()))?;
        }
        file.write_all(contents)?;
        file.sync_all()
    }

    /// A new file in the same directory, so that renaming it is atomic.
    fn temporary(&self) -> io::Result<(String, File)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = self.new_mode.unwrap_or(Mode::from_raw_mode(0o666));
        for attempt in 0..MAX_NAMES {
            let name = format!(".settings.{}.{attempt}.tmp", std::process::id());
            match rustix::fs::openat(&self.directory, &name, flags, mode) {
                Ok(descriptor) => return Ok((name, File::from(descriptor))),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Errno::EXIST.into())
    }
}

fn wait_for(file: File, path: &Path, wait: Duration) -> Result<File, SettingsError> {
    let deadline = Instant::now() + wait;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(source)) => return Err(SettingsError::Lock { path: path.to_owned(), source }),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return Err(SettingsError::Busy(path.to_owned())),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_POLL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_nothing_behind() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let places = Places { home: at("h"), state: at("s"), config: at("c"), runtime: at("r"), machine: at("m") };
        let locked = LockedFile::lock(&places, Target::User).unwrap();
        // A file cannot take the place of a directory.
        std::fs::create_dir(places.user_settings()).unwrap();
        assert!(matches!(locked.replace(b"{}"), Err(SettingsError::Write { .. })));
        let mut names: Vec<_> = places.config.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["settings.json", "settings.lock"]);
        // What a crash left does not stand in the way.
        std::fs::remove_dir(places.user_settings()).unwrap();
        std::fs::write(places.config.join(format!(".settings.{}.0.tmp", std::process::id())), "old").unwrap();
        locked.replace(b"{}").unwrap();
        assert_eq!(std::fs::read(places.user_settings()).unwrap(), b"{}");
    }

    #[test]
    fn a_lock_that_is_never_free_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let open = || File::create(&path).unwrap();
        let held = wait_for(open(), &path, Duration::ZERO).unwrap();
        assert!(matches!(wait_for(open(), &path, Duration::from_millis(20)), Err(SettingsError::Busy(busy)) if busy == path));
        drop(held);
        assert!(wait_for(open(), &path, Duration::ZERO).is_ok());
    }
}
