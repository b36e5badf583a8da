//! Opening things beneath a directory without ever leaving it.
//!
//! Every function takes a directory descriptor and either one name or a relative path of plain names. Links are not
//! followed, FIFOs do not block, and `..` cannot be expressed.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// What every path inside a tree is resolved with.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
/// How a directory is opened.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// How a file that may be anything is opened.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
/// The most bytes of path that are given to the kernel at once; it takes 4,095.
const CHUNK: usize = 2048;

/// What to do about an entry whose mode keeps its owner out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locked {
    /// Leave it alone: the host's own files.
    Leave,
    /// Lift the mode while it is open and restore it after: files that a sandbox left behind.
    Lift,
}

/// An open directory; a lifted mode is restored when it is dropped.
pub(crate) struct Directory {
    fd: OwnedFd,
    restore: Option<Mode>,
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Some(mode) = self.restore {
            // Nothing can be done about a failure here, and a wider mode on a sandbox's leftovers harms nobody.
            let _ = rustix::fs::fchmod(&self.fd, mode);
        }
    }
}

/// Opens the top of a tree. The last component may not be a link.
pub(crate) fn open_root(path: &Path) -> Result<Directory, Errno> {
    Ok(Directory { fd: rustix::fs::open(path, DIRECTORY, Mode::empty())?, restore: None })
}

/// Opens a second descriptor for an open directory.
pub(crate) fn reopen(fd: BorrowedFd<'_>) -> Result<Directory, Errno> {
    Ok(Directory { fd: rustix::fs::openat(fd, c".", DIRECTORY, Mode::empty())?, restore: None })
}

/// Opens a directory by its name in another.
pub(crate) fn open_dir(parent: impl AsFd, name: &OsStr, locked: Locked) -> Result<Directory, Errno> {
    match rustix::fs::openat(parent.as_fd(), name, DIRECTORY, Mode::empty()) {
        Ok(fd) => {
            let mut directory = Directory { fd, restore: None };
            if locked == Locked::Lift && !rustix::process::geteuid().is_root() {
                let mode = Mode::from_raw_mode(rustix::fs::fstat(&directory.fd)?.st_mode);
                if !mode.contains(Mode::RUSR | Mode::XUSR) && rustix::fs::fchmod(&directory.fd, mode | Mode::RWXU).is_ok() {
                    directory.restore = Some(mode);
                }
            }
            Ok(directory)
        }
        Err(Errno::ACCESS) if locked == Locked::Lift => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let handle = rustix::fs::openat(parent.as_fd(), name, flags, Mode::empty())?;
            let mode = Mode::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode);
            chmod_handle(handle.as_fd(), mode | Mode::RWXU)?;
            match rustix::fs::openat(&handle, c".", DIRECTORY, Mode::empty()) {
                Ok(fd) => Ok(Directory { fd, restore: Some(mode) }),
                Err(error) => {
                    let _ = chmod_handle(handle.as_fd(), mode);
                    Err(error)
                }
            }
        }
        Err(error) => Err(error),
    }
}

/// Opens a regular file by its name; anything else is `EINVAL`.
pub(crate) fn open_file(parent: impl AsFd, name: &OsStr, locked: Locked) -> Result<(OwnedFd, Stat), Errno> {
    // Looking first keeps a device's open routine from running; looking again makes the answer certain.
    let seen = stat(parent.as_fd(), name)?;
    if !is_file(&seen) {
        return Err(Errno::INVAL);
    }
    let fd = match rustix::fs::openat(parent.as_fd(), name, FILE, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::ACCESS) if locked == Locked::Lift => {
            let handle = open_handle(parent.as_fd(), name)?;
            let mode = Mode::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode);
            chmod_handle(handle.as_fd(), mode | Mode::RUSR)?;
            let opened = rustix::fs::openat(parent.as_fd(), name, FILE, Mode::empty());
            let _ = chmod_handle(handle.as_fd(), mode);
            opened?
        }
        Err(error) => return Err(error),
    };
    let opened = rustix::fs::fstat(&fd)?;
    if !is_file(&opened) || (opened.st_dev, opened.st_ino) != (seen.st_dev, seen.st_ino) {
        return Err(Errno::INVAL);
    }
    Ok((fd, opened))
}

/// A descriptor that names an entry without opening it.
pub(crate) fn open_handle(parent: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Changes the mode of what a handle names. `fchmod` refuses such descriptors; the magic link leads to exactly that inode.
pub(crate) fn chmod_handle(handle: BorrowedFd<'_>, mode: Mode) -> Result<(), Errno> {
    if FileType::from_raw_mode(rustix::fs::fstat(handle)?.st_mode) == FileType::Symlink {
        return Err(Errno::LOOP);
    }
    rustix::fs::chmod(format!("/proc/self/fd/{}", handle.as_raw_fd()), mode)
}

/// Looks at an entry without following it.
pub(crate) fn stat(parent: impl AsFd, name: &OsStr) -> Result<Stat, Errno> {
    rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// As [`stat`], with `None` for an entry that is not there.
pub(crate) fn stat_if_there(parent: impl AsFd, name: &OsStr) -> Result<Option<Stat>, Errno> {
    match stat(parent, name) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// At most `limit` names in a directory, in no order.
pub(crate) fn some_names(directory: impl AsFd, limit: usize) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    let mut stream = rustix::fs::Dir::read_from(directory)?;
    while let Some(entry) = stream.read() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if names.len() >= limit {
            break;
        }
        names.push(OsString::from_vec(name.to_vec()));
    }
    Ok(names)
}

/// Opens a directory some levels down, resolved by the kernel beneath `root` without links.
pub(crate) fn resolve_dir(root: BorrowedFd<'_>, relative: &Path) -> Result<OwnedFd, Errno> {
    let mut here = rustix::fs::openat2(root, c".", DIRECTORY, Mode::empty(), RESOLVE)?;
    let mut chunk = PathBuf::new();
    for component in relative.components() {
        let Component::Normal(name) = component else { return Err(Errno::INVAL) };
        if chunk.as_os_str().len() + name.len() > CHUNK {
            here = rustix::fs::openat2(&here, &chunk, DIRECTORY, Mode::empty(), RESOLVE)?;
            chunk.clear();
        }
        chunk.push(name);
    }
    if !chunk.as_os_str().is_empty() {
        here = rustix::fs::openat2(&here, &chunk, DIRECTORY, Mode::empty(), RESOLVE)?;
    }
    Ok(here)
}

/// A directory and those above it; they are closed (and lifted modes restored) from the innermost outward.
pub(crate) struct Chain {
    last: Directory,
    /// Fields drop in order: the outer ones must stay passable until the inner one is restored.
    above: Vec<Directory>,
}

impl AsFd for Chain {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.last.as_fd()
    }
}

/// As [`resolve_dir`], component by component, lifting modes on the way.
pub(crate) fn descend(root: BorrowedFd<'_>, relative: &Path, locked: Locked) -> Result<Chain, Errno> {
    let mut chain = Chain { last: reopen(root)?, above: Vec::new() };
    for component in relative.components() {
        let Component::Normal(name) = component else { return Err(Errno::INVAL) };
        let next = open_dir(&chain, name, locked)?;
        chain.above.push(std::mem::replace(&mut chain.last, next));
    }
    Ok(chain)
}

/// Splits a relative path in its parent and its name; `None` where it has no plain name.
pub(crate) fn split(relative: &Path) -> Option<(&Path, &OsStr)> {
    Some((relative.parent()?, relative.file_name()?))
}

/// A name that nothing has yet.
pub(crate) fn fresh_name(prefix: &str) -> OsString {
    let mut random = [0_u8; 12];
    // Without the kernel's randomness the names repeat and `O_EXCL` refuses them: safe, and it does not happen.
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    let mut name = String::from(prefix);
    for byte in random {
        let _ = write!(name, "{byte:02x}");
    }
    OsString::from(name)
}

/// Where a link leads, as text.
pub(crate) fn read_link(parent: impl AsFd, name: &OsStr) -> Result<Vec<u8>, Errno> {
    Ok(rustix::fs::readlinkat(parent, name, Vec::new())?.into_bytes())
}

/// Whether this is a regular file.
pub(crate) fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Whether this is a directory.
pub(crate) fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// The size of a file; never negative.
pub(crate) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}
