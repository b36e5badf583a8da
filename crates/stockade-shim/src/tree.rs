//! Directories and names: make, rename, describe, and remove with everything beneath.
//!
//! Owns the requests that change names. Removing works relative to open directories and never follows a link, so
//! nothing outside the named tree can be reached however the tree changes meanwhile; it works in slices, so that a huge
//! tree does not keep other requests waiting.

use std::ffi::{CStr, CString};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use stockade_wire::message::FileStat;

use crate::context::{Context, Progress};
use crate::failure::Failure;
use crate::files::{describe_at, temporary_name};
use crate::paths;

/// Names removed before other requests get their turn.
const SLICE: usize = 256;
/// Directories held open at once; deeper ones are first moved up to the top of the tree.
const MAX_OPEN: usize = 64;
/// How often a directory that fills up again while it is removed is emptied.
const MAX_REFILLS: u32 = 16;

/// Describes a path.
pub(crate) fn stat(path: &[u8]) -> Result<FileStat, Failure> {
    let name = paths::absolute(path)?;
    describe_at(CWD, &name).map_err(|errno| Failure::about(path, errno))
}

/// Renames.
pub(crate) fn rename(from: &[u8], to: &[u8]) -> Result<(), Failure> {
    let (old, new) = (paths::absolute(from)?, paths::absolute(to)?);
    rustix::fs::rename(&old, &new).map_err(|errno| match errno {
        // The kernel does not say which of the two it means.
        Errno::NOENT if rustix::fs::lstat(&old).is_ok() => Failure::about(to, errno),
        _ => Failure::about(from, errno),
    })
}

/// Makes a directory with exactly this mode; with `parents` also those above it, and an existing one is fine.
pub(crate) fn make_directory(path: &[u8], mode: u32, parents: bool) -> Result<(), Failure> {
    let (parent, name) = paths::split(path)?;
    if parents {
        make_parents(parent.as_bytes())?;
    }
    let place = paths::join(parent.as_bytes(), name.as_bytes());
    let mode = Mode::from_raw_mode(mode & 0o777);
    match rustix::fs::mkdir(place.as_slice(), mode) {
        // The mask of new files is meant for programs, not for what the host asked for.
        Ok(()) => rustix::fs::chmod(place.as_slice(), mode).map_err(|errno| Failure::about(path, errno)),
        Err(Errno::EXIST) if parents && is_directory(&place) => Ok(()),
        Err(errno) => Err(Failure::about(path, errno)),
    }
}

/// Makes a directory and those above it, where they are missing.
pub(crate) fn make_parents(path: &[u8]) -> Result<(), Failure> {
    if is_directory(path) {
        return Ok(());
    }
    let ends = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    for end in ends.chain(std::iter::once(path.len())) {
        let part = path.get(..end).unwrap_or(path);
        match rustix::fs::mkdir(part, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            // A read-only file system says so before it looks whether the directory is there.
            Err(_) if is_directory(part) => {}
            Err(errno) => return Err(Failure::about(part, errno)),
        }
    }
    if is_directory(path) { Ok(()) } else { Err(Failure::about(path, Errno::NOTDIR)) }
}

fn is_directory(path: &[u8]) -> bool {
    rustix::fs::stat(path).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// How far a removal has come.
pub(crate) enum Removal {
    /// All is gone.
    Done,
    /// A tree is being removed.
    Underway(Removing),
}

/// Removes a file or an empty directory, or begins to remove a tree.
pub(crate) fn remove(path: &[u8], recursive: bool) -> Result<Removal, Failure> {
    let (parent, name) = paths::split(path)?;
    let about = |errno| Failure::about(path, errno);
    let holder = rustix::fs::open(&parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(about)?;
    let stat = rustix::fs::statat(&holder, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(about)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return rustix::fs::unlinkat(&holder, &name, AtFlags::empty()).map(|()| Removal::Done).map_err(about);
    }
    match rustix::fs::unlinkat(&holder, &name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(Removal::Done),
        Err(Errno::NOTEMPTY | Errno::EXIST) if recursive => {
            let top = Level::open(BorrowedHolder::Outside(&holder).descriptor().map_err(about)?, &name).map_err(about)?;
            Ok(Removal::Underway(Removing { holder, levels: vec![top], path: path.to_vec() }))
        }
        Err(errno) => Err(about(errno)),
    }
}

/// One open directory of the tree.
struct Level {
    directory: Dir,
    name: CString,
    refills: u32,
}

impl Level {
    fn open(parent: BorrowedFd<'_>, name: &CStr) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(parent, name, flags, Mode::empty())?;
        Ok(Self { directory: Dir::new(fd)?, name: name.to_owned(), refills: 0 })
    }
}

/// Where a level's own name stands.
enum BorrowedHolder<'a> {
    Outside(&'a OwnedFd),
    Level(&'a Level),
}

impl<'a> BorrowedHolder<'a> {
    fn descriptor(self) -> Result<BorrowedFd<'a>, Errno> {
        use std::os::fd::AsFd as _;
        match self {
            Self::Outside(fd) => Ok(fd.as_fd()),
            Self::Level(level) => level.directory.fd(),
        }
    }
}

/// A tree being removed, deepest directory last.
pub(crate) struct Removing {
    holder: OwnedFd,
    levels: Vec<Level>,
    path: Vec<u8>,
}

impl Removing {
    /// Removes some names.
    pub(crate) fn step(&mut self, context: &mut Context, id: u32) -> Progress {
        for _ in 0..SLICE {
            match self.remove_one() {
                Ok(()) if self.levels.is_empty() => return context.done(id),
                Ok(()) => {}
                Err(errno) => return context.fail(id, Failure::about(&self.path, errno)),
            }
        }
        Progress::Again
    }

    fn remove_one(&mut self) -> Result<(), Errno> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        let entry = match level.directory.read() {
            None => return self.close_level(),
            Some(entry) => entry?,
        };
        let name = entry.file_name();
        if name == c"." || name == c".." {
            return Ok(());
        }
        let unlinked = match entry.file_type() {
            FileType::Directory => Err(Errno::ISDIR),
            _ => rustix::fs::unlinkat(level.directory.fd()?, name, AtFlags::empty()),
        };
        match unlinked {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::ISDIR) => self.descend(name),
            Err(errno) => Err(errno),
        }
    }

    /// Opens a directory beneath the deepest level, or moves it up where too many are open already.
    fn descend(&mut self, name: &CStr) -> Result<(), Errno> {
        let Some(level) = self.levels.last() else { return Ok(()) };
        let parent = level.directory.fd()?;
        if self.levels.len() >= MAX_OPEN
            && let Some(top) = self.levels.first()
        {
            return rustix::fs::renameat(parent, name, top.directory.fd()?, temporary_name()?);
        }
        match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        match Level::open(parent, name) {
            Ok(level) => {
                self.levels.push(level);
                Ok(())
            }
            // Replaced by something else meanwhile: the next look at the directory deals with it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// The deepest level was read to its end: remove it, or read it again if names have come since.
    fn close_level(&mut self) -> Result<(), Errno> {
        let Some(mut level) = self.levels.pop() else { return Ok(()) };
        let holder = self.levels.last().map_or(BorrowedHolder::Outside(&self.holder), BorrowedHolder::Level);
        match rustix::fs::unlinkat(holder.descriptor()?, &level.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            // What was moved up to the top makes it read again as often as needed; only refilling counts.
            Err(Errno::NOTEMPTY | Errno::EXIST) if level.refills < MAX_REFILLS || self.levels.is_empty() && has_moved(&level) => {
                level.refills += 1;
                level.directory.rewind();
                self.levels.push(level);
                Ok(())
            }
            Err(errno) => Err(errno),
        }
    }
}

/// Whether the directory holds one that was moved up by us.
fn has_moved(level: &Level) -> bool {
    let Ok(directory) = level.directory.fd().and_then(Dir::read_from) else { return false };
    directory.flatten().any(|entry| entry.file_name().to_bytes().starts_with(b".stockade-"))
}
