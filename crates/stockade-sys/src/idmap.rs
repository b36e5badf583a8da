//! Idmapped mounts: files of one owner appear as the sandbox's own, and what it writes belongs to that owner.

use std::fmt::Write as _;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, WaitId, WaitIdOptions};

use crate::raw;

/// Swaps two ids and leaves every other as it is: what `on_disk` owns appears as `shown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swap {
    /// The owner on disk.
    pub on_disk: u32,
    /// The owner that the sandbox sees (in the numbers of the kernel outside).
    pub shown: u32,
}

impl Swap {
    /// The lines of a `uid_map` that make this swap.
    fn lines(self) -> String {
        let (low, high) = (self.on_disk.min(self.shown), self.on_disk.max(self.shown));
        let mut text = String::new();
        let mut range = |inside: u32, outside: u32, count: u32| {
            if count > 0 {
                let _ = writeln!(text, "{inside} {outside} {count}");
            }
        };
        if low == high {
            range(0, 0, u32::MAX);
            return text;
        }
        range(0, 0, low);
        range(low, high, 1);
        range(low + 1, low + 1, high - low - 1);
        range(high, low, 1);
        range(high + 1, high + 1, u32::MAX - high - 1);
        text
    }
}

/// Makes a user namespace with these maps; only root can.
pub fn user_namespace(users: Swap, groups: Swap) -> std::io::Result<OwnedFd> {
    let (go_read, go_write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (wait_fd, close_fd) = (go_read.as_raw_fd(), go_write.as_raw_fd());
    let args = raw::CloneArgs { flags: libc::CLONE_NEWUSER as u64, exit_signal: libc::SIGCHLD as u64, ..raw::CloneArgs::default() };
    // SAFETY: the child only closes a descriptor, reads a byte and exits, all by raw calls.
    let pid = match unsafe { raw::clone(&args) }? {
        0 => {
            // SAFETY: a plain integer; without this the child would hold its own pipe open.
            unsafe { libc::close(close_fd) };
            raw::read_byte(wait_fd);
            raw::exit_now(0)
        }
        pid => pid,
    };
    let made = fs::write(format!("/proc/{pid}/uid_map"), users.lines())
        .and_then(|()| fs::write(format!("/proc/{pid}/gid_map"), groups.lines()))
        .and_then(|()| fs::File::open(format!("/proc/{pid}/ns/user")));
    drop(go_write);
    if let Some(pid) = Pid::from_raw(pid) {
        match rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED) {
            // Where our caller made us ignore SIGCHLD the kernel has reaped the child already.
            Ok(_) | Err(Errno::CHILD) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    made.map(OwnedFd::from)
}

/// Applies a user namespace's maps to a detached mount and everything beneath it.
pub fn map_mount(tree: BorrowedFd<'_>, namespace: &OwnedFd) -> Result<(), Errno> {
    let attributes =
        libc::mount_attr { attr_set: libc::MOUNT_ATTR_IDMAP, attr_clr: 0, propagation: 0, userns_fd: namespace.as_fd().as_raw_fd() as u64 };
    // SAFETY: the path is an empty C string; the attribute structure lives through the call and its size is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    raw::check(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_covers_every_id_once() {
        assert_eq!(Swap { on_disk: 0, shown: 5 }.lines(), "0 5 1\n1 1 4\n5 0 1\n6 6 4294967289\n");
        assert_eq!(Swap { on_disk: 1000, shown: 1000 }.lines(), "0 0 4294967295\n");
        assert_eq!(Swap { on_disk: 7, shown: 3 }.lines(), "0 0 3\n3 7 1\n4 4 3\n7 3 1\n8 8 4294967287\n");
    }
}
