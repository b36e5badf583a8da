//! Idmapped mounts: files of one owner appear as the sandbox's own, and what it writes belongs to that owner.

use std::ffi::c_void;
use std::fmt::Write as _;
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, WaitId, WaitIdOptions};

use crate::raw;
use crate::sharing::{self, Stack};

/// More than the child that holds a user namespace ever uses.
const STACK: usize = 16 << 10;

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

/// A user namespace that exists only to map ids with. A process that does nothing holds it as long as this value lives.
#[derive(Debug)]
pub struct UserNamespace {
    namespace: OwnedFd,
    _holder: Holder,
}

/// The process; it ends when the pipe is closed.
#[derive(Debug)]
struct Holder {
    pid: i32,
    pipe: Option<OwnedFd>,
    stack: Option<Stack>,
    ends: Option<Box<[RawFd; 2]>>,
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // Where it is not our child (we are the copy of who made it) nobody here knows whether it still runs on it.
        if wait_for(self.pid).is_err() {
            std::mem::forget((self.stack.take(), self.ends.take()));
        }
    }
}

/// Makes a user namespace with these maps; only root can.
pub fn user_namespace(users: Swap, groups: Swap) -> std::io::Result<UserNamespace> {
    let (go_read, go_write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let args = raw::CloneArgs { flags: libc::CLONE_NEWUSER as u64, exit_signal: libc::SIGCHLD as u64, ..raw::CloneArgs::default() };
    let (stack, ends) = (Stack::new(STACK)?, Box::new([go_read.as_raw_fd(), go_write.as_raw_fd()]));
    // SAFETY: the child only makes raw calls; its stack and the numbers it reads stay until it was waited for.
    let pid = unsafe { sharing::clone(args, &stack, wait_for_the_end, ends.as_ptr().cast()) }?;
    let holder = Holder { pid, pipe: Some(go_write), stack: Some(stack), ends: Some(ends) };
    fs::write(format!("/proc/{pid}/uid_map"), users.lines())?;
    fs::write(format!("/proc/{pid}/gid_map"), groups.lines())?;
    let namespace = fs::File::open(format!("/proc/{pid}/ns/user"))?;
    Ok(UserNamespace { namespace: namespace.into(), _holder: holder })
}

fn wait_for(pid: i32) -> Result<(), Errno> {
    let Some(pid) = Pid::from_raw(pid) else { return Ok(()) };
    loop {
        match rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Runs in the child: keeps its user namespace until the other end of the pipe is closed.
extern "C" fn wait_for_the_end(ends: *const c_void) -> ! {
    // SAFETY: `user_namespace` passed two numbers, and the holder waits for this process before they go.
    let [wait, _] = unsafe { *ends.cast::<[RawFd; 2]>() };
    // It lives on beside whatever its maker and other threads do. A descriptor that it kept would stay open for as long: the pipe's
    // other end, so that it never ended; a second holder's, so that the two waited for each other; a lock; a program being written.
    let wait = wait as usize;
    for [first, last] in [[0, wait.saturating_sub(1)], [wait + 1, u32::MAX as usize]] {
        // SAFETY: plain integers; this process has a table of descriptors of its own.
        let _ = unsafe { raw::call(libc::SYS_close_range, [first, last, 0, 0, 0, 0]) };
    }
    raw::read_byte(wait as RawFd);
    raw::exit_now(0)
}

/// Applies a user namespace's maps to a detached mount and everything beneath it.
pub fn map_mount(tree: BorrowedFd<'_>, namespace: &UserNamespace) -> Result<(), Errno> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: namespace.namespace.as_raw_fd() as u64,
    };
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
    fn holders_end_in_any_order_and_hold_nothing_open() {
        let swap = Swap { on_disk: 0, shown: 5 };
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        let first = user_namespace(swap, swap).unwrap();
        let second = user_namespace(swap, swap).unwrap();
        drop(write);
        assert_eq!(rustix::io::read(&read, &mut [0u8; 1]), Ok(0), "a holder has the other end of somebody's pipe");
        drop(first);
        drop(second);
    }

    #[test]
    fn a_swap_covers_every_id_once() {
        assert_eq!(Swap { on_disk: 0, shown: 5 }.lines(), "0 5 1\n1 1 4\n5 0 1\n6 6 4294967289\n");
        assert_eq!(Swap { on_disk: 1000, shown: 1000 }.lines(), "0 0 4294967295\n");
        assert_eq!(Swap { on_disk: 7, shown: 3 }.lines(), "0 0 3\n3 7 1\n4 4 3\n7 3 1\n8 8 4294967287\n");
    }
}
