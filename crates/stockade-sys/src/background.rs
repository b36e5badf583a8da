//! Work that nobody waits for: a child of this process does it while the caller goes on, and ends.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::FdFlags;

use crate::raw;

/// Where this process's threads are listed.
const THREADS: &str = "/proc/self/task";
/// Links of a directory that holds one other directory: its name, its own dot, and that one's way up.
const ONE_THREAD: u128 = 3;

/// Runs `act` in a child of its own session that holds none of the caller's streams. Where no child can be made (no room for one,
/// or this process has other threads, which a child would lack), `act` runs here and now.
///
/// The caller's copy of what `act` holds is forgotten, not dropped: it belongs to the child.
pub fn in_background(act: impl FnOnce()) {
    if !has_one_thread() {
        return act();
    }
    let args = raw::CloneArgs { exit_signal: libc::SIGCHLD as u64, ..raw::CloneArgs::default() };
    // SAFETY: this process has one thread, so its copy is whole: no lock is held by a thread that the copy lacks.
    match unsafe { raw::clone(&args) } {
        Ok(0) => {
            leave();
            act();
            raw::exit_now(0)
        }
        Ok(_) => std::mem::forget(act),
        Err(_) => act(),
    }
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

    #[test]
    fn with_other_threads_it_happens_here_and_now() {
        // The test harness has threads of its own.
        let mut done = false;
        in_background(|| done = true);
        assert!(done);
    }

    /// This process's session; 0 where its leader is outside the PID namespace, as in a container that joined a terminal's session.
    fn session() -> i32 {
        // SAFETY: getsid takes a plain integer and changes nothing.
        unsafe { libc::getsid(0) }
    }

    #[test]
    fn a_child_does_it_in_another_session_without_the_callers_streams() {
        let (mut read, write) = std::io::pipe().unwrap();
        let own = session();
        // SAFETY: as in `in_background`, but for the other threads: the child makes raw calls and small allocations, and the
        // harness's threads are at rest.
        match unsafe { raw::clone(&raw::CloneArgs { exit_signal: libc::SIGCHLD as u64, ..raw::CloneArgs::default() }) }.unwrap() {
            0 => {
                leave();
                let inherited = rustix::fs::readlink("/proc/self/fd/1", Vec::new()).unwrap();
                let apart = session() != own && inherited.to_bytes() == b"/dev/null";
                rustix::io::write(&write, if apart { b"y" } else { b"n" }).unwrap();
                raw::exit_now(0)
            }
            _ => drop(write),
        }
        let mut answer = String::new();
        read.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "y");
    }
}
