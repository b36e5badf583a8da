//! The mount calls that steps share: sources opened before anything is covered, attaching, attributes.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};
use stockade_wire::plan::{Access, Execution, Item, Source};

use super::{Doing, Trouble, shown};

/// Attributes every mount of the sandbox has.
pub(crate) const BASE: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

/// Detached mounts, in the order in which the plan's items name them.
#[derive(Default)]
pub(crate) struct Sources {
    trees: std::collections::VecDeque<Option<OwnedFd>>,
}

impl Sources {
    /// Opens every source of the plan. This happens before the first mount, which may cover a source.
    pub(crate) fn open(items: &[Item], passed: Vec<OwnedFd>) -> Result<Self, Trouble> {
        let mut passed: Vec<Option<OwnedFd>> = passed.into_iter().map(Some).collect();
        let mut trees = std::collections::VecDeque::new();
        for item in items {
            match item {
                Item::Bind { source, .. } => trees.push_back(open_source(source, &mut passed)?),
                Item::Overlay { lower, layer, .. } => {
                    trees.push_back(open_source(lower, &mut passed)?);
                    trees.push_back(open_source(layer, &mut passed)?);
                }
                Item::Directory { .. }
                | Item::Symlink { .. }
                | Item::File { .. }
                | Item::Mask { .. }
                | Item::Redirect { .. }
                | Item::Seed { .. }
                | Item::Proc { .. }
                | Item::Devices { .. }
                | Item::Agent { .. } => {}
            }
        }
        Ok(Self { trees })
    }

    /// Takes the last `count` sources away.
    pub(crate) fn split_last(&mut self, count: usize) -> Result<Vec<Option<OwnedFd>>, Trouble> {
        let first = self.trees.len().checked_sub(count).ok_or_else(|| Trouble::new("fewer sources than were to be kept"))?;
        Ok(self.trees.split_off(first).into())
    }

    /// The next source in order; `None` for one that lives on the scratch file system.
    pub(crate) fn next(&mut self) -> Result<Option<OwnedFd>, Trouble> {
        self.trees.pop_front().ok_or_else(|| Trouble::new("the plan has more mounts than sources"))
    }
}

fn open_source(source: &Source, passed: &mut [Option<OwnedFd>]) -> Result<Option<OwnedFd>, Trouble> {
    match source {
        Source::Host { path, dev, ino } => {
            // No link is followed: what the host checked is what is mounted, even if somebody swaps a
            // directory for a link between the check and now.
            let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            let fd = rustix::fs::openat2(CWD, path.0.as_slice(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
                .doing(|| format!("opening {}", shown(&path.0)))?;
            if *ino != 0 {
                let stat = rustix::fs::fstat(&fd).doing(|| format!("checking {}", shown(&path.0)))?;
                if (stat.st_dev as u64, stat.st_ino as u64) != (*dev, *ino) {
                    return Err(Trouble::new(format!("{} was replaced while the sandbox started", shown(&path.0))));
                }
            }
            clone_tree(fd.as_fd(), c"").doing(|| format!("cloning {}", shown(&path.0))).map(Some)
        }
        Source::Passed { index } => passed
            .get_mut(usize::from(*index))
            .and_then(Option::take)
            .map(Some)
            .ok_or_else(|| Trouble::new(format!("descriptor {index} was not passed, or is used twice"))),
        Source::Scratch { .. } => Ok(None),
    }
}

/// A detached copy of the mounts at and beneath a path (the descriptor itself for an empty path).
pub(crate) fn clone_tree(at: BorrowedFd<'_>, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    rustix::mount::open_tree(at, path, flags)
}

/// A detached copy of one of the host's devices.
pub(crate) fn clone_device(name: &str) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    rustix::mount::open_tree(CWD, ["/dev/", name].concat(), flags)
}

/// Attaches a detached mount to an entry of a directory. A link is not followed but covered, which the kernel refuses for a directory.
pub(crate) fn attach_named(tree: BorrowedFd<'_>, directory: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    rustix::mount::move_mount(tree, c"", directory, name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Attaches a detached mount where `onto` points.
pub(crate) fn attach(tree: BorrowedFd<'_>, onto: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, c"", onto, c"", flags)
}

/// A new file system instance with attributes of a mount, not yet attached anywhere.
pub(crate) fn new_filesystem(kind: &CStr, options: &[(&CStr, &[u8])], switches: &[&CStr], attributes: u64) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    for switch in switches {
        rustix::mount::fsconfig_set_flag(context.as_fd(), *switch)?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::from_bits_retain(attributes as u32))
}

/// Adds attributes to a mount and, when asked, to everything mounted beneath it.
pub(crate) fn set_attributes(tree: BorrowedFd<'_>, set: u64, reach: Reach) -> Result<(), Errno> {
    let attributes = libc::mount_attr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let recursive = match reach {
        Reach::Tree => libc::AT_RECURSIVE,
        Reach::One => 0,
    };
    // SAFETY: the path is an empty C string, the attribute structure lives through the call and its size is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Whether an attribute goes to one mount or to all beneath it.
#[derive(Clone, Copy)]
pub(crate) enum Reach {
    One,
    Tree,
}

/// The attributes that an access and execution right stand for.
pub(crate) fn attributes(access: &Access, execution: &Execution) -> u64 {
    let readonly = match access {
        Access::ReadOnly {} => libc::MOUNT_ATTR_RDONLY,
        Access::ReadWrite {} => 0,
    };
    let noexec = match execution {
        Execution::Allowed {} => 0,
        Execution::Denied {} => libc::MOUNT_ATTR_NOEXEC,
    };
    BASE | readonly | noexec
}

/// The error of the last raw system call.
pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
