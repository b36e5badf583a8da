//! Bounded waiting for what the kernel does in its own time: short pauses first, longer ones later.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// Waits until a moment, in growing steps.
pub(super) struct Patience {
    until: Instant,
    pause: Duration,
}

/// Whether there is still time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patient {
    Yes,
    No,
}

impl Patience {
    pub(super) fn new(bound: Duration) -> Self {
        Self { until: Instant::now() + bound, pause: FIRST_PAUSE }
    }

    /// Pauses, unless the time is up.
    pub(super) fn pause(&mut self) -> Patient {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Patient::No;
        }
        std::thread::sleep(self.pause.min(left));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Patient::Yes
    }
}

/// Takes a lock, waiting a bounded time for who has it.
pub(super) fn lock(file: impl AsFd, kind: FlockOperation, bound: Duration) -> Result<(), Errno> {
    let mut patience = Patience::new(bound);
    loop {
        match rustix::fs::flock(&file, kind) {
            Err(Errno::WOULDBLOCK) if patience.pause() == Patient::Yes => {}
            other => return other,
        }
    }
}
