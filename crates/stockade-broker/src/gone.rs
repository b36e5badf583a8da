//! Whether whoever started the broker is still there. What they wait for is not waited for without them.
//!
//! What is under way when they go is given up a moment later; what begins then is the giving back of what was minted for them, and goes on.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

/// How long what is under way may still take: most answers are there by then.
const MOMENT: Duration = Duration::from_millis(500);
/// How often somebody who waits looks.
const LOOK: Duration = Duration::from_millis(50);

/// A broker has one owner who started it, and ends with it.
static IS_GONE: AtomicBool = AtomicBool::new(false);

/// Watches the owner's connection, on a thread of its own.
pub fn watch(owner: UnixStream) -> std::io::Result<()> {
    let watch = move || {
        // Nothing is asked for but the end, which whoever reads there sees as well.
        while poll(&mut [PollFd::new(&owner, PollFlags::RDHUP)], None).is_err() {}
        std::thread::sleep(MOMENT);
        IS_GONE.store(true, Ordering::SeqCst);
    };
    std::thread::Builder::new().name("owner".to_owned()).spawn(watch).map(drop)
}

/// What somebody waits for, as long as it makes sense.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    was_gone: bool,
}

impl Wait {
    /// Begins to wait.
    pub(crate) fn begin() -> Self {
        Self { was_gone: IS_GONE.load(Ordering::SeqCst) }
    }

    /// Whether the owner went meanwhile.
    pub(crate) fn is_over(self) -> bool {
        !self.was_gone && IS_GONE.load(Ordering::SeqCst)
    }

    /// Waits for the owner to go.
    pub(crate) async fn end(self) {
        while !self.is_over() {
            tokio::time::sleep(LOOK).await;
        }
    }
}
