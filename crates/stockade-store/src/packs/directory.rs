//! A pack as a directory: read without following any link, within bounds, every name checked.

use std::fs::{File, FileType};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, Mode, OFlags};
use rustix::io::Errno;
use stockade_policy::pack::{BadFile, MAX_FILE, MAX_FILES, PackFiles, PackPath};

use super::error::PackError;
use super::file::Stamp;

/// The directories that a pack may have.
const DIRECTORIES: [&[u8]; 2] = [b"capabilities", b"policy"];

/// What was read, with what tells whether it changed: of every directory and every file.
#[derive(Debug)]
pub(super) struct ReadPack {
    pub(super) files: PackFiles,
    pub(super) stamps: Vec<(String, Stamp)>,
}

/// Reads a pack from a directory.
pub fn read_directory(path: &Path) -> Result<PackFiles, PackError> {
    read_with_stamps(path).map(|read| read.files)
}

/// The same, with stamps.
pub(super) fn read_with_stamps(path: &Path) -> Result<ReadPack, PackError> {
    let mut read = ReadPack { files: PackFiles::default(), stamps: Vec::new() };
    let failed = |errno: Errno| PackError::Read(path.to_owned(), errno.into());
    let top = rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    let top = File::from(top);
    read.stamps.push((String::new(), stamp(&top, path)?));
    for name in names(&top, path)? {
        if DIRECTORIES.contains(&name.as_slice()) {
            let inner = joined(path, &name);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let directory = match rustix::fs::openat(top.as_fd(), name.as_slice(), flags, Mode::empty()) {
                Ok(directory) => File::from(directory),
                Err(Errno::NOTDIR | Errno::LOOP) => return Err(BadFile::Special(shown(&name), "a link or no directory").into()),
                Err(errno) => return Err(PackError::Read(inner, errno.into())),
            };
            read.stamps.push((shown(&name), stamp(&directory, &inner)?));
            for file in names(&directory, &inner)? {
                let whole = [name.as_slice(), b"/", file.as_slice()].concat();
                add(&directory, &file, &whole, &mut read)?;
            }
        } else {
            add(&top, &name, &name, &mut read)?;
        }
    }
    Ok(read)
}

fn stamp(directory: &File, path: &Path) -> Result<Stamp, PackError> {
    directory.metadata().map(|found| Stamp::of(&found)).map_err(|error| PackError::Read(path.to_owned(), error))
}

fn names(directory: &File, path: &Path) -> Result<Vec<Vec<u8>>, PackError> {
    let failed = |errno: Errno| PackError::Read(path.to_owned(), errno.into());
    let mut names = Vec::new();
    for entry in Dir::read_from(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
        if names.len() > MAX_FILES {
            return Err(BadFile::Many.into());
        }
    }
    names.sort();
    Ok(names)
}

fn add(directory: &File, name: &[u8], whole: &[u8], read: &mut ReadPack) -> Result<(), PackError> {
    let path = PackPath::parse(whole)?;
    let failed = |error: std::io::Error| PackError::Read(PathBuf::from(path.as_str()), error);
    // Not blocking, so that a pipe in a file's place cannot hold us.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = match rustix::fs::openat(directory.as_fd(), name, flags, Mode::empty()) {
        Ok(opened) => File::from(opened),
        Err(Errno::LOOP) => return Err(BadFile::Special(path.to_string(), "a symbolic link").into()),
        Err(Errno::NXIO) => return Err(BadFile::Special(path.to_string(), "a socket or a device").into()),
        Err(errno) => return Err(failed(errno.into())),
    };
    let found = opened.metadata().map_err(failed)?;
    if let Some(what) = special(found.file_type()) {
        return Err(BadFile::Special(path.to_string(), what).into());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(found.len()).unwrap_or(MAX_FILE).min(MAX_FILE) + 1);
    opened.take(MAX_FILE as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    read.stamps.push((path.as_str().to_owned(), Stamp::of(&found)));
    Ok(read.files.add(path, bytes)?)
}

/// What is not a plain file, in words.
fn special(kind: FileType) -> Option<&'static str> {
    if kind.is_file() {
        None
    } else if kind.is_dir() {
        Some("a directory")
    } else if kind.is_fifo() {
        Some("a pipe")
    } else if kind.is_char_device() || kind.is_block_device() {
        Some("a device")
    } else {
        Some("something else")
    }
}

fn joined(path: &Path, name: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    path.join(std::ffi::OsStr::from_bytes(name))
}

fn shown(name: &[u8]) -> String {
    stockade_core::escape::escape_bytes(name)
}
