//! Reading a settings file: one open when it is not there, bounded when it is.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::error::SettingsError;

/// The largest settings file.
const MAX_BYTES: u64 = 1 << 20;
/// What most files fit into, so that they are read in one go.
const USUAL: usize = 8 << 10;
/// A project's directory.
pub(crate) const PROJECT_DIRECTORY: &str = ".stockade";
/// The file's name in every layer.
pub(crate) const FILE_NAME: &str = "settings.json";

/// The bytes of a trusted file; `None` when there is none. Links are followed: people keep their settings elsewhere. What everybody can write
/// is trusted by nobody.
pub(crate) fn read_trusted(path: &Path) -> Result<Option<Vec<u8>>, SettingsError> {
    let opened = rustix::fs::openat(CWD, path, reading(), Mode::empty());
    if let Ok(file) = &opened
        && rustix::fs::fstat(file).is_ok_and(|found| Mode::from_raw_mode(found.st_mode).contains(Mode::WOTH))
    {
        return Err(SettingsError::OpenToAll(path.to_owned()));
    }
    read_opened(path, opened)
}

/// The bytes of a project's file; `None` when there is none. Neither the directory nor the file may be a link.
pub(crate) fn read_project(root: &Path) -> Result<Option<Vec<u8>>, SettingsError> {
    let Some(directory) = open_project_directory(root)? else { return Ok(None) };
    let path = project_settings(root);
    match rustix::fs::openat(&directory, FILE_NAME, reading() | OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::LOOP) => Err(SettingsError::Link(path)),
        opened => read_opened(&path, opened),
    }
}

/// Where a project's settings lie.
pub(crate) fn project_settings(root: &Path) -> PathBuf {
    root.join(PROJECT_DIRECTORY).join(FILE_NAME)
}

/// A project's `.stockade`, if it is there; never through a link.
pub(crate) fn open_project_directory(root: &Path) -> Result<Option<OwnedFd>, SettingsError> {
    let path = root.join(PROJECT_DIRECTORY);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, &path, flags, Mode::empty()) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOTDIR | Errno::LOOP) => Err(SettingsError::Link(path)),
        Err(errno) => Err(SettingsError::Read { path, source: errno.into() }),
    }
}

/// Not blocking, so that a pipe in a file's place cannot hold us.
fn reading() -> OFlags {
    OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC
}

fn read_opened(path: &Path, opened: Result<OwnedFd, Errno>) -> Result<Option<Vec<u8>>, SettingsError> {
    let failed = |source: io::Error| SettingsError::Read { path: path.to_owned(), source };
    let file = match opened {
        Ok(descriptor) => File::from(descriptor),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(failed(errno.into())),
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(SettingsError::NotAFile(path.to_owned()));
    }
    let mut bytes = Vec::with_capacity(USUAL);
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(SettingsError::TooLarge(path.to_owned()));
    }
    Ok(Some(bytes))
}
