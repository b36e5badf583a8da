//! `/proc` and `/dev` of the sandbox.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use stockade_wire::plan::{Access, Execution};

use super::root::{NewRoot, Thing};
use super::scratch::Scratch;
use super::{Doing, Trouble, mounts, shown};

/// Devices that programs cannot do without; none of them reaches hardware.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// A fresh proc of the new pid namespace; its `sys` is read-only.
pub(crate) fn proc(root: &NewRoot, path: &[u8]) -> Result<(), Trouble> {
    let options: [(&std::ffi::CStr, &[u8]); 1] = [(c"hidepid", b"invisible")];
    let attributes = mounts::BASE | libc::MOUNT_ATTR_NOEXEC;
    let tree = mounts::new_filesystem(c"proc", &options, &[], attributes).doing(|| "making proc".into())?;
    let (parent, name) = root.make(path, Thing::Directory, 0o555)?;
    mounts::attach_named(tree.as_fd(), parent.as_fd(), name).doing(|| "mounting proc".into())?;
    let sys_path = [path, b"/sys"].concat();
    let sys = root.existing(&sys_path).doing(|| "opening proc/sys".into())?;
    let tree = mounts::clone_tree(sys.as_fd(), c"").doing(|| "cloning proc/sys".into())?;
    mounts::attach(tree.as_fd(), sys.as_fd()).doing(|| "mounting proc/sys".into())?;
    let attributes = mounts::attributes(&Access::ReadOnly {}, &Execution::Denied {});
    mounts::set_attributes(tree.as_fd(), attributes, mounts::Reach::Tree).doing(|| "restricting proc/sys".into())
}

/// Attributes of everything in `/dev`.
const NOSUID_NOEXEC: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;

/// A `/dev` with the harmless devices, and places for what is each sandbox's own.
pub(crate) fn devices(root: &NewRoot, path: &[u8]) -> Result<(), Trouble> {
    let directory = root.directory(path, 0o755)?;
    give(directory.as_fd())?;
    let links = [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ];
    for (name, target) in links {
        rustix::fs::symlinkat(target, &directory, name).doing(|| format!("linking {}/{name}", shown(path)))?;
    }
    for name in ["pts", "shm"] {
        rustix::fs::mkdirat(&directory, name, Mode::from_raw_mode(0o755)).doing(|| format!("making /dev/{name}"))?;
    }
    Ok(())
}

/// Copies of the host's devices in a directory that is empty.
pub(crate) fn give(directory: BorrowedFd<'_>) -> Result<(), Trouble> {
    for name in DEVICES {
        let what = || format!("giving /dev/{name}");
        let tree = match mounts::clone_device(name) {
            Ok(tree) => tree,
            // A container without a terminal has no /dev/tty; nothing inside needs it to start.
            Err(Errno::NOENT) if name == "tty" => continue,
            Err(errno) => return Err(errno).doing(what),
        };
        rustix::fs::mknodat(directory, name, FileType::RegularFile, Mode::from_raw_mode(0o666), 0).doing(what)?;
        mounts::attach_named(tree.as_fd(), directory, name.as_bytes()).doing(what)?;
        mounts::set_attributes(tree.as_fd(), NOSUID_NOEXEC, mounts::Reach::One).doing(what)?;
    }
    Ok(())
}

/// The sandbox's own pseudo-terminals and shared memory.
pub(crate) fn own_devices(root: &NewRoot, scratch: &Scratch, path: &[u8]) -> Result<(), Trouble> {
    let directory = root.directory(path, 0o755)?;
    let options: [(&std::ffi::CStr, &[u8]); 2] = [(c"ptmxmode", b"0666"), (c"mode", b"0620")];
    let terminals = mounts::new_filesystem(c"devpts", &options, &[c"newinstance"], NOSUID_NOEXEC).doing(|| "making devpts".into())?;
    mounts::attach_named(terminals.as_fd(), directory.as_fd(), b"pts").doing(|| "mounting devpts".into())?;
    let shared = scratch.tree(b"shm", 0o1777)?;
    mounts::attach_named(shared.as_fd(), directory.as_fd(), b"shm").doing(|| "mounting shared memory".into())?;
    let attributes = mounts::attributes(&Access::ReadWrite {}, &Execution::Denied {});
    mounts::set_attributes(shared.as_fd(), attributes, mounts::Reach::One).doing(|| "restricting shared memory".into())
}
