//! The end of a server, as threads that speak for it hear of it: pauses are cut short, and after a moment nothing more is tried.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The end, once it came.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// Until when something may still be tried.
    until: Mutex<Option<Instant>>,
    came: Condvar,
}

impl Ending {
    /// It is over but for so long.
    pub(super) fn end(&self, patience: Duration) {
        self.until.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(Instant::now() + patience);
        self.came.notify_all();
    }

    /// Waits for so long, or until the end comes.
    pub(super) fn pause(&self, pause: Duration) {
        let until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.came.wait_timeout_while(until, pause, |until| until.is_none()));
    }

    /// Whether it came.
    pub(super) fn is_here(&self) -> bool {
        self.until.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// How long something that may take this long may take; `None` where there is no time left.
    pub(super) fn within(&self, patience: Duration) -> Option<Duration> {
        match *self.until.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Some(patience),
            Some(until) => until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()).map(|left| left.min(patience)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_cuts_pauses_short_and_leaves_a_moment() {
        let ending = Ending::default();
        assert!(!ending.is_here());
        assert_eq!(ending.within(Duration::from_secs(9)), Some(Duration::from_secs(9)));
        ending.end(Duration::from_secs(5));
        let begun = Instant::now();
        ending.pause(Duration::from_mins(1));
        assert!(ending.is_here() && begun.elapsed() < Duration::from_secs(30));
        assert!(ending.within(Duration::from_secs(9)).is_some_and(|left| left <= Duration::from_secs(5)));
        // A second end does not move the first.
        ending.end(Duration::from_mins(5));
        assert!(ending.within(Duration::from_mins(9)).is_some_and(|left| left <= Duration::from_secs(5)));
        let over = Ending::default();
        over.end(Duration::ZERO);
        assert_eq!(over.within(Duration::from_secs(9)), None);
    }
}
