//! Who is at the other end of a Unix socket. Another user is refused, and so is a process in a PID namespace of its own: that is what a
//! sandbox has, and the user id of a sandbox may look like ours from here.
//!
//! A process never changes its own PID namespace, so one that is known by a descriptor is looked at once.
//!
//! For a socket pair this says nothing: both ends were made by one process, which hands them to whom it chooses.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Why a peer is refused.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The kernel does not say.
    #[error("cannot see who connected")]
    Unknown(#[source] std::io::Error),
    /// Another user.
    #[error("user {theirs} connected to the broker of user {ours}")]
    OtherUser {
        /// Who it is.
        theirs: u32,
        /// Who we are.
        ours: u32,
    },
    /// Not the process that started the broker.
    #[error("process {0} connected, which did not start this broker")]
    OtherProcess(i32),
    /// From inside a sandbox or container, or already gone.
    #[error("process {0} connected from a process namespace of its own, or is gone")]
    Inside(i32),
}

/// The one process that may call at a socket.
#[derive(Debug)]
pub struct Only {
    pid: i32,
    /// Says whether it is still that process.
    process: OwnedFd,
}

impl Only {
    /// The process that made the other end of a socket pair, where that is one that [`check`] lets in.
    pub fn who_made(stream: &UnixStream) -> Result<Self, PeerError> {
        let peer = rustix::net::sockopt::socket_peercred(stream).map_err(|errno| PeerError::Unknown(errno.into()))?;
        let process = rustix::process::pidfd_open(peer.pid, rustix::process::PidfdFlags::empty());
        let process = process.map_err(|errno| PeerError::Unknown(errno.into()))?;
        check(stream)?;
        let made = Self { pid: peer.pid.as_raw_nonzero().get(), process };
        // What was looked at by its number was this process only if it is still there.
        made.check(stream)?;
        Ok(made)
    }

    /// Refuses anybody else, another user's among them, and one that only has its number.
    pub(crate) fn check(&self, stream: &UnixStream) -> Result<(), PeerError> {
        let peer = rustix::net::sockopt::socket_peercred(stream).map_err(|errno| PeerError::Unknown(errno.into()))?;
        let (theirs, ours) = (peer.uid.as_raw(), rustix::process::geteuid().as_raw());
        if theirs != ours {
            return Err(PeerError::OtherUser { theirs, ours });
        }
        let pid = peer.pid.as_raw_nonzero().get();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Readable means ended: then the number may be another's by now.
        let ended = poll(&mut [PollFd::new(&self.process, PollFlags::IN)], Some(&now)).map_err(|errno| PeerError::Unknown(errno.into()))?;
        if pid == self.pid && ended == 0 { Ok(()) } else { Err(PeerError::OtherProcess(pid)) }
    }
}

/// Refuses a peer that must not ask.
#[cfg(target_os = "linux")]
pub fn check(stream: &UnixStream) -> Result<(), PeerError> {
    let peer = rustix::net::sockopt::socket_peercred(stream).map_err(|errno| PeerError::Unknown(errno.into()))?;
    judge(peer.uid.as_raw(), peer.pid.as_raw_nonzero().get(), rustix::process::geteuid().as_raw(), |pid| {
        std::fs::read_to_string(format!("/proc/{pid}/status")).ok()
    })
}

/// Refuses everybody where the kernel has no such question.
#[cfg(not(target_os = "linux"))]
pub fn check(_stream: &UnixStream) -> Result<(), PeerError> {
    Err(PeerError::Unknown(std::io::ErrorKind::Unsupported.into()))
}

#[cfg(any(target_os = "linux", test))]
fn judge(theirs: u32, pid: i32, ours: u32, status: impl Fn(i32) -> Option<String>) -> Result<(), PeerError> {
    if theirs != ours {
        return Err(PeerError::OtherUser { theirs, ours });
    }
    // One number for each namespace that the process is in, beginning with ours.
    let status = status(pid).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).map(|rest| rest.split_whitespace().count());
    if numbers == Some(1) { Ok(()) } else { Err(PeerError::Inside(pid)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_processes_are_let_in() {
        let (one, _two) = UnixStream::pair().unwrap();
        check(&one).unwrap();
    }

    #[test]
    fn only_the_process_that_made_the_pair_may_call() {
        let (one, _two) = UnixStream::pair().unwrap();
        let only = Only::who_made(&one).unwrap();
        only.check(&one).unwrap();
        let elsewhere =
            Only { pid: 1, process: rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty()).unwrap() };
        assert!(matches!(elsewhere.check(&one), Err(PeerError::OtherProcess(_))));
        // A process of the same number that has ended is another.
        #[expect(clippy::disallowed_methods, reason = "a test needs a process that ends")]
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let process = rustix::process::pidfd_open(rustix::process::Pid::from_child(&child), rustix::process::PidfdFlags::empty()).unwrap();
        child.wait().unwrap();
        let gone = Only { pid: only.pid, process };
        assert!(matches!(gone.check(&one), Err(PeerError::OtherProcess(_))));
    }

    #[test]
    fn others_and_those_inside_are_refused() {
        let status = |text: &'static str| move |_| Some(text.to_owned());
        assert!(judge(1000, 5, 1000, status("Name:\tx\nNSpid:\t5\n")).is_ok());
        assert!(matches!(judge(1001, 5, 1000, status("NSpid:\t5\n")), Err(PeerError::OtherUser { theirs: 1001, ours: 1000 })));
        assert!(matches!(judge(0, 5, 1000, status("NSpid:\t5\n")), Err(PeerError::OtherUser { .. })));
        assert!(matches!(judge(1000, 5, 1000, status("NSpid:\t5\t1\n")), Err(PeerError::Inside(5))));
        assert!(matches!(judge(1000, 5, 1000, status("Name:\tx\n")), Err(PeerError::Inside(5))));
        assert!(matches!(judge(1000, 5, 1000, |_| None), Err(PeerError::Inside(5))));
    }
}
