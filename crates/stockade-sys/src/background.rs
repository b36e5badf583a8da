//! Work that nobody waits for: a child of this process does it while the process itself ends.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::FdFlags;

use crate::raw;
use crate::sharing::{self, Stack};

/// Where this process's threads are listed.
const THREADS: &str = "/proc/self/task";
/// Links of a directory that holds one other directory: its name, its own dot, and that one's way up.
const ONE_THREAD: u128 = 3;

/// The stack of the child.
const STACK: usize = 4 << 20;

/// Ends this process with `code` at once; a child of its own session that holds none of the caller's streams does `act`. Where no
/// child can be made (no room for one, or this process has other threads), `act` is done before the end.
///
/// Nothing else is run and nothing dropped. The child has this process's memory: taking that down costs time, and so it is the child's
/// to do as well.
pub fn end_while(code: u8, act: impl FnOnce()) -> ! {
    let mut act = Some(act);
    if has_one_thread()
        && let Ok(stack) = Stack::new(STACK)
    {
        let args = raw::CloneArgs { exit_signal: libc::SIGCHLD as u64, ..raw::CloneArgs::default() };
        // SAFETY: this process has one thread, which makes nothing but a raw call from here on if there is a child; so what the child
        // finds is whole and its own, and stays until it ends.
        if unsafe { sharing::clone(args, &stack, run(act.as_ref()), (&raw mut act).cast()) }.is_ok() {
            raw::exit_now(c_int::from(code));
        }
    }
    if let Some(act) = act.take() {
        act();
    }
    raw::exit_now(c_int::from(code))
}

/// What the child runs for an act of this type.
fn run<A: FnOnce()>(_: Option<&A>) -> sharing::Entry {
    extern "C" fn entry<A: FnOnce()>(act: *const c_void) -> ! {
        leave();
        // SAFETY: `end_while` passed an act of this type, and does not come back to it.
        if let Some(act) = unsafe { &mut *act.cast_mut().cast::<Option<A>>() }.take() {
            act();
        }
        raw::exit_now(0)
    }
    entry::<A>
}

fn has_one_thread() -> bool {
    rustix::fs::stat(THREADS).is_ok_and(|stat| u128::from(stat.st_nlink) == ONE_THREAD)
}

/// Leaves the caller's session and lets go of every descriptor that came from outside. Ours all close at an exec; those that do
/// not were inherited, and a pipe among them would look unfinished to whoever reads it.
fn leave() {
    // SAFETY: setsid has no arguments; it fails only for a group leader, which a fresh child is not.
    unsafe { libc::setsid() };
    let Ok(null) = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty()) else {
        return;
    };
    for standard in 0..3 {
        // SAFETY: both numbers are plain integers; this child's own streams are replaced, which nothing here uses.
        unsafe { libc::dup2(null.as_raw_fd(), standard) };
    }
    let Ok(listed) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<i32> = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|fd| *fd > 2).collect();
    for number in numbers {
        // SAFETY: the borrow lasts for one call, which asks for flags only and fails for a number that is not open.
        let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
        if rustix::io::fcntl_getfd(borrowed).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC)) {
            // SAFETY: it was inherited, so no value of this program owns it.
            unsafe { libc::close(number) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// This process's session; 0 where its leader is outside the PID namespace, as in a container that joined a terminal's session.
    fn session() -> i32 {
        // SAFETY: getsid takes a plain integer and changes nothing.
        unsafe { libc::getsid(0) }
    }

    /// Runs `act` in a copy of this process with one thread, and gives the code it ended with.
    fn in_a_copy(act: impl FnOnce()) -> Option<i32> {
        // SAFETY: the copy makes raw calls and small allocations, and the harness's threads are at rest.
        let pid = match unsafe { raw::clone(&raw::CloneArgs { exit_signal: libc::SIGCHLD as u64, ..raw::CloneArgs::default() }) }.unwrap() {
            0 => {
                act();
                raw::exit_now(99)
            }
            pid => rustix::process::Pid::from_raw(pid).unwrap(),
        };
        let (_, status) = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap().unwrap();
        status.exit_status()
    }

    #[test]
    fn the_caller_ends_and_a_child_does_it_in_another_session_without_the_callers_streams() {
        let (mut read, write) = std::io::pipe().unwrap();
        let (mut held, hold) = std::io::pipe().unwrap();
        let own = session();
        let code = in_a_copy(|| {
            end_while(7, || {
                // The caller is gone when this goes on: its code was waited for.
                held.read_exact(&mut [0]).unwrap();
                let inherited = rustix::fs::readlink("/proc/self/fd/1", Vec::new()).unwrap();
                let apart = session() != own && inherited.to_bytes() == b"/dev/null";
                rustix::io::write(&write, if apart { b"y" } else { b"n" }).unwrap();
            })
        });
        assert_eq!(code, Some(7));
        rustix::io::write(&hold, b"g").unwrap();
        drop(write);
        let mut answer = String::new();
        read.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "y");
    }
}
