//! The sandbox's own file system in memory: temporary files, home, caches, the empty things that masks show.
//!
//! It is mounted over a directory of the old root, which vanishes with the pivot; the new root is built inside it, so
//! that one detach at the end removes every helper mount at once.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use stockade_wire::codec::Bytes;

use super::{Doing, Trouble, mounts, shown};

/// Directories that exist on any Linux and from which nothing is taken into a sandbox; one of them is covered while the jail is built.
const BASES: [&str; 4] = ["/proc", "/sys", "/boot", "/mnt"];

/// Whether the sandbox gets to see the `/proc` around it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OuterProc {
    Shown,
    NotShown,
}

/// Where files and links that are mounted somewhere lie.
const FILES: &[u8] = b"files";

/// The scratch file system while the root is being built.
///
/// What is made here belongs to the sandbox's user, because this process already is that user.
pub(crate) struct Scratch {
    top: OwnedFd,
}

impl Scratch {
    /// Mounts the file system with room for `bytes` bytes.
    pub(crate) fn mount(bytes: u64, outer: OuterProc) -> Result<Self, Trouble> {
        let size = bytes.max(1 << 20).to_string();
        let options: [(&std::ffi::CStr, &[u8]); 2] = [(c"size", size.as_bytes()), (c"mode", b"0755")];
        let tree = mounts::new_filesystem(c"tmpfs", &options, &[], mounts::BASE).doing(|| format!("making a tmpfs of {size} bytes"))?;
        let (base, onto) = BASES
            .iter()
            .skip(usize::from(outer == OuterProc::Shown))
            .find_map(|base| open_directory(base).ok().map(|fd| (*base, fd)))
            .ok_or_else(|| Trouble::new(format!("none of {} is a directory", BASES.join(", "))))?;
        mounts::attach(tree.as_fd(), onto.as_fd()).doing(|| format!("mounting over {base}"))?;
        let top = open_directory(base).doing(|| format!("opening {base}"))?;
        make_directory(top.as_fd(), FILES, 0o755)?;
        Ok(Self { top })
    }

    /// The top directory.
    pub(crate) fn top(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }

    /// Opens a directory of the scratch file system, making it (and its parents) with `mode` where it is missing.
    pub(crate) fn directory(&self, name: &[u8], mode: u32) -> Result<OwnedFd, Trouble> {
        let mut current: Option<OwnedFd> = None;
        for part in name.split(|b| *b == b'/').filter(|p| !p.is_empty()) {
            let at = current.as_ref().map_or(self.top.as_fd(), AsFd::as_fd);
            make_directory(at, part, mode)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            current = Some(rustix::fs::openat(at, part, flags, Mode::empty()).doing(|| format!("opening {}", shown(name)))?);
        }
        current.ok_or_else(|| Trouble::new("a scratch directory without a name"))
    }

    /// Opens something that was made before.
    pub(crate) fn existing(&self, name: &[u8]) -> Result<OwnedFd, Trouble> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.top, name, flags, Mode::empty()).doing(|| format!("opening {}", shown(name)))
    }

    /// Makes a directory beneath one that was made before.
    pub(crate) fn make(&self, name: &[u8], mode: u32) -> Result<(), Trouble> {
        make_directory(self.top.as_fd(), name, mode)
    }

    /// A detached mount of a scratch directory.
    pub(crate) fn tree(&self, name: &[u8], mode: u32) -> Result<OwnedFd, Trouble> {
        if name.contains(&b'/') {
            self.directory(name, mode)?;
        } else {
            self.make(name, mode)?;
        }
        mounts::clone_tree(self.top.as_fd(), name).doing(|| format!("cloning scratch {}", shown(name)))
    }

    /// Puts a file into a scratch directory.
    pub(crate) fn seed(&self, directory: &[u8], name: &[u8], contents: &[u8], mode: u32) -> Result<(), Trouble> {
        self.directory(directory, 0o755)?;
        self.write(&[directory, b"/", name].concat(), contents, mode)
    }

    fn write(&self, name: &[u8], contents: &[u8], mode: u32) -> Result<(), Trouble> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let what = || format!("writing {}", shown(name));
        let file = rustix::fs::openat(&self.top, name, flags, Mode::from_raw_mode(mode)).doing(what)?;
        let mut rest = contents;
        while !rest.is_empty() {
            let n = rustix::io::write(&file, rest).doing(what)?;
            rest = rest.get(n..).unwrap_or_default();
        }
        Ok(())
    }

    /// A detached mount of a file with these contents.
    pub(crate) fn file_tree(&self, name: &[u8], contents: &[u8], mode: u32) -> Result<OwnedFd, Trouble> {
        let name = [FILES, b"/", name].concat();
        self.write(&name, contents, mode)?;
        mounts::clone_tree(self.top.as_fd(), name.as_slice()).doing(|| format!("cloning {}", shown(&name)))
    }

    /// A detached mount of a symbolic link.
    pub(crate) fn link_tree(&self, name: &[u8], target: &[u8]) -> Result<OwnedFd, Trouble> {
        let name = [FILES, b"/", name].concat();
        rustix::fs::symlinkat(target, &self.top, name.as_slice()).doing(|| format!("linking {}", shown(&name)))?;
        mounts::clone_tree(self.top.as_fd(), name.as_slice()).doing(|| format!("cloning {}", shown(&name)))
    }

    /// Descriptors of directories that the host wants to keep after the sandbox is gone.
    pub(crate) fn export(&self, names: &[Bytes]) -> Result<Vec<OwnedFd>, Trouble> {
        names.iter().map(|name| self.directory(&name.0, 0o700)).collect()
    }
}

/// Makes a directory, if it is not there.
fn make_directory(at: BorrowedFd<'_>, name: &[u8], mode: u32) -> Result<(), Trouble> {
    match rustix::fs::mkdirat(at, name, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno).doing(|| format!("making {}", shown(name))),
    }
}

fn open_directory(path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}
