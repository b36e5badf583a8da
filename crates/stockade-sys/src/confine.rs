//! Taking rights from this process for good, where the kernel's call may only be made by a process of one thread.

use std::fs;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};

/// Why rights could not be given up.
#[derive(Debug)]
pub enum ConfineError {
    /// A step that the kernel refused.
    Step(&'static str, Errno),
    /// A file of this process that could not be written.
    Map(&'static str, std::io::Error),
}

impl std::fmt::Display for ConfineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Step(step, errno) => write!(f, "{step}: {errno}"),
            Self::Map(step, error) => write!(f, "{step}: {error}"),
        }
    }
}

impl std::error::Error for ConfineError {}

/// Leaves the caller's mounts for a copy of them: what is mounted outside later appears here as well, and nothing the other way round. Who is not
/// root becomes itself in a user namespace of its own, because only there it may. The process must have one thread.
pub fn own_mounts() -> Result<(), ConfineError> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let mut flags = UnshareFlags::NEWNS;
    if !user.is_root() {
        flags |= UnshareFlags::NEWUSER;
    }
    // SAFETY: the caller has one thread, and neither flag shares or unshares memory or descriptors.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(|errno| ConfineError::Step("leaving the mounts", errno))?;
    if !user.is_root() {
        write("/proc/self/setgroups", "deny")?;
        write("/proc/self/uid_map", &format!("{0} {0} 1", user.as_raw()))?;
        write("/proc/self/gid_map", &format!("{0} {0} 1", group.as_raw()))?;
    }
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", slave).map_err(|errno| ConfineError::Step("keeping mounts to this process", errno))
}

/// Covers a directory with an empty one that nobody can write to.
pub fn cover(directory: &Path) -> Result<(), ConfineError> {
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let options = c"size=4k,nr_inodes=2,mode=0500";
    rustix::mount::mount("stockade", directory, "tmpfs", flags, options).map_err(|errno| ConfineError::Step("covering a directory", errno))
}

/// Keeps of root's powers those over files and processes that work on other people's files needs; who is not root keeps none.
pub fn drop_capabilities() -> Result<(), ConfineError> {
    let kept = if rustix::process::geteuid().is_root() {
        CapabilitySet::CHOWN
            | CapabilitySet::DAC_OVERRIDE
            | CapabilitySet::DAC_READ_SEARCH
            | CapabilitySet::FOWNER
            | CapabilitySet::FSETID
            | CapabilitySet::KILL
    } else {
        CapabilitySet::empty()
    };
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).map_err(|errno| ConfineError::Step("dropping capabilities", errno))?;
    rustix::thread::set_no_new_privs(true).map_err(|errno| ConfineError::Step("forbidding new privileges", errno))
}

fn write(path: &'static str, text: &str) -> Result<(), ConfineError> {
    fs::write(path, text).map_err(|error| ConfineError::Map(path, error))
}
