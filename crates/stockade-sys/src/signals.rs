//! Signals as a descriptor: blocked in the process, read when the poll loop has time for them.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use crate::raw;

/// Signals that wait in a descriptor instead of interrupting.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Blocks the signals in this thread (and threads it starts) and opens a descriptor that delivers them.
    pub fn catch(signals: &[i32]) -> Result<Self, Errno> {
        // SAFETY: an all-zero set is a valid value to initialise.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is ours and valid.
        unsafe { libc::sigemptyset(&raw mut set) };
        for signal in signals {
            // SAFETY: the set is initialised; an invalid number only returns an error.
            if unsafe { libc::sigaddset(&raw mut set, *signal) } != 0 {
                return Err(raw::last());
            }
        }
        // SAFETY: the set is initialised; the old mask is not wanted.
        raw::check(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) }.into())?;
        // SAFETY: the set is initialised; -1 asks for a new descriptor.
        let fd = raw::check(unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) }.into())?;
        // SAFETY: signalfd returned a fresh descriptor that nobody else owns.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd as i32) } })
    }

    /// The descriptor, to poll on.
    pub fn as_fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The next signal that arrived, if any.
    pub fn next(&self) -> Option<i32> {
        // SAFETY: all-zero bytes are a valid signalfd_siginfo: plain integers.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        // SAFETY: the buffer is one such structure, its size is given.
        let n = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), size_of::<libc::signalfd_siginfo>()) };
        (n == size_of::<libc::signalfd_siginfo>() as isize).then_some(info.ssi_signo as i32)
    }
}
