//! Signals as a descriptor: blocked in the process, read when the poll loop has time for them.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use crate::raw;

/// Bytes of one signal in a descriptor that delivers them.
const SIZE: usize = size_of::<libc::signalfd_siginfo>();

/// Signals that wait in a descriptor instead of interrupting.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
    /// The other end, where they come from this very process: kept, so that the descriptor never reports that nobody can send any more.
    _sender: Option<OwnedFd>,
}

/// Sends signals to whoever waits for them in this process, and to nobody else.
#[derive(Debug)]
pub struct Sender {
    fd: OwnedFd,
}

impl Sender {
    /// Sends one. Where more wait than a pipe holds, it is dropped: those before it say enough.
    pub fn send(&self, signal: i32) {
        let mut bytes = [0u8; SIZE];
        // The number is the first field of what the kernel delivers.
        for (to, from) in bytes.iter_mut().zip(signal.to_ne_bytes()) {
            *to = from;
        }
        // Shorter than what a pipe takes whole or not at all.
        let _ = rustix::io::write(&self.fd, &bytes);
    }
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
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd as i32) }, _sender: None })
    }

    /// Signals that somebody in this process sends, for one of several things that it does at once; no real signal is touched.
    pub fn sent() -> Result<(Sender, Self), Errno> {
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let (fd, sender) = rustix::pipe::pipe_with(flags)?;
        let kept = rustix::io::fcntl_dupfd_cloexec(&sender, 0)?;
        Ok((Sender { fd: sender }, Self { fd, _sender: Some(kept) }))
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
        let n = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), SIZE) };
        (n == SIZE as isize).then_some(info.ssi_signo as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_arrives_in_order_and_nothing_else_does() {
        let (sender, signals) = Signals::sent().unwrap();
        assert_eq!(signals.next(), None);
        sender.send(libc::SIGTERM);
        sender.send(libc::SIGKILL);
        drop(sender);
        assert_eq!((signals.next(), signals.next(), signals.next()), (Some(libc::SIGTERM), Some(libc::SIGKILL), None));
        let mut waiting = [rustix::event::PollFd::new(signals.as_fd(), rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut waiting, Some(&now)), Ok(0), "a sender that is gone is no news");
    }
}
