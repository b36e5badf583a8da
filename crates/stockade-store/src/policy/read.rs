//! Reading the policy files of one directory, bounded.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::{DIRECTORY, PolicyError};

/// Bytes of one file at most.
pub(super) const MAX_BYTES: u64 = 1 << 20;
/// What most files fit into, so that they are read in one go.
const USUAL: usize = 8 << 10;
/// Files of one directory at most.
pub(super) const MAX_FILES: usize = 200;
/// What a policy file's name ends with.
const EXTENSION: &[u8] = b".cedar";

/// One file as it was read.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) name: String,
    pub(super) text: String,
}

/// Whether links may be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Links {
    Follow,
    Refuse,
}

/// The files of a directory that a person or an administrator owns.
pub(super) fn trusted(directory: &Path) -> Result<Vec<Found>, PolicyError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, directory, flags, Mode::empty()) {
        Ok(opened) if is_open_to_all(&opened) => Err(PolicyError::OpenToAll(directory.to_owned())),
        Ok(opened) => files(&opened, directory, Links::Follow),
        Err(Errno::NOENT) => Ok(Vec::new()),
        Err(errno) => Err(PolicyError::Read(directory.to_owned(), errno.into())),
    }
}

/// The files of a project; nothing on the way may be a link.
pub(super) fn project(workspace: &Path) -> Result<Vec<Found>, PolicyError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut path = workspace.to_owned();
    let mut opened: Option<OwnedFd> = None;
    for part in [".stockade", DIRECTORY] {
        let next = match &opened {
            Some(directory) => rustix::fs::openat(directory, part, flags, Mode::empty()),
            None => rustix::fs::openat(CWD, workspace.join(part), flags, Mode::empty()),
        };
        path.push(part);
        opened = match next {
            Ok(directory) => Some(directory),
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(PolicyError::NotAFile(path)),
            Err(errno) => return Err(PolicyError::Read(path, errno.into())),
        };
    }
    opened.map_or(Ok(Vec::new()), |directory| files(&directory, &path, Links::Refuse))
}

/// One file of ours, bounded.
pub(super) fn one(path: &Path) -> Result<String, PolicyError> {
    let failed = |error: std::io::Error| PolicyError::Read(path.to_owned(), error);
    let mut bytes = Vec::with_capacity(USUAL);
    File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(PolicyError::TooLarge(path.to_owned()));
    }
    String::from_utf8(bytes).map_err(|_| PolicyError::NotText(path.to_owned()))
}

/// Whether anybody on the machine can write to it. Its group may: many people have one of their own.
fn is_open_to_all(file: impl AsFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|found| Mode::from_raw_mode(found.st_mode).contains(Mode::WOTH))
}

fn files(directory: &OwnedFd, path: &Path, links: Links) -> Result<Vec<Found>, PolicyError> {
    let failed = |errno: Errno| PolicyError::Read(path.to_owned(), errno.into());
    let mut names = Vec::new();
    for entry in Dir::read_from(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_owned();
        // Editors leave hidden copies beside the real file.
        if name.to_bytes().ends_with(EXTENSION) && !name.to_bytes().starts_with(b".") {
            names.push(name);
        }
        if names.len() > MAX_FILES {
            return Err(PolicyError::TooMany(path.to_owned()));
        }
    }
    names.sort();
    names.iter().map(|name| file(directory, path, name.to_bytes(), links)).collect()
}

fn file(directory: &OwnedFd, parent: &Path, name: &[u8], links: Links) -> Result<Found, PolicyError> {
    use std::os::unix::ffi::OsStrExt;

    let path = parent.join(std::ffi::OsStr::from_bytes(name));
    let failed = |error: std::io::Error| PolicyError::Read(path.clone(), error);
    // Not blocking, so that a pipe in a file's place cannot hold us.
    let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    if links == Links::Refuse {
        flags |= OFlags::NOFOLLOW;
    }
    let file = match rustix::fs::openat(directory.as_fd(), name, flags, Mode::empty()) {
        Ok(descriptor) => File::from(descriptor),
        Err(Errno::LOOP) => return Err(PolicyError::NotAFile(path)),
        Err(errno) => return Err(failed(errno.into())),
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(PolicyError::NotAFile(path));
    }
    // A project's are trusted by their digest, not by who could write them.
    if links == Links::Follow && is_open_to_all(&file) {
        return Err(PolicyError::OpenToAll(path));
    }
    let mut bytes = Vec::with_capacity(USUAL);
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(PolicyError::TooLarge(path));
    }
    let Ok(text) = String::from_utf8(bytes) else { return Err(PolicyError::NotText(path)) };
    Ok(Found { name: super::shown(&path), text })
}
