//! A process of ours, whoever started it: this one, or the steward for one that may start nothing.

use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;

/// How often it is looked whether a child of our own has ended.
const GLANCE: Duration = Duration::from_millis(1);

/// A process that runs, or has ended.
#[derive(Debug)]
pub(crate) enum Started {
    /// A child of this process.
    Here(Child),
    /// A child of the steward, which waits for it; its end can be seen from here, and brought about.
    BySteward(OwnedFd),
}

impl Started {
    /// Waits for its end.
    pub(crate) fn wait(self) {
        match self {
            Self::Here(mut child) => drop(child.wait()),
            Self::BySteward(process) => drop(has_ended(&process, None)),
        }
    }

    /// Waits for its end, but not for long; it is killed then.
    pub(crate) fn wait_or_kill(self, patience: Duration) {
        match self {
            Self::Here(mut child) => {
                let end = Instant::now() + patience;
                while matches!(child.try_wait(), Ok(None)) {
                    if Instant::now() > end {
                        let _ = child.kill();
                        let _ = child.wait();
                        return;
                    }
                    std::thread::sleep(GLANCE);
                }
            }
            Self::BySteward(process) => {
                if !has_ended(&process, Some(patience)) {
                    // Fails only where it ended meanwhile.
                    let _ = rustix::process::pidfd_send_signal(&process, Signal::KILL);
                    has_ended(&process, None);
                }
            }
        }
    }
}

fn has_ended(process: &OwnedFd, patience: Option<Duration>) -> bool {
    let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
    let waited = rustix::io::retry_on_intr(|| rustix::event::poll(&mut [PollFd::new(process, PollFlags::IN)], patience.as_ref()));
    // What cannot be looked at cannot be waited for either.
    waited != Ok(0)
}
