//! The calls of one server: how many at once, how many may wait, and how all of them end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stockade_sandbox::signals::{Sender, Signals};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::failure::Failure;

/// Calls that run at once; the others wait.
const MOST_AT_ONCE: usize = 16;
/// Calls that run or wait; more are refused.
const MOST: usize = 64;

/// The calls of a server.
#[derive(Debug)]
pub(crate) struct Calls {
    places: Arc<Semaphore>,
    running: Arc<Semaphore>,
    next: AtomicU64,
    live: Arc<Mutex<Live>>,
}

#[derive(Debug, Default)]
struct Live {
    closed: bool,
    calls: HashMap<u64, Arc<Stop>>,
}

/// Ends one call.
#[derive(Debug)]
pub(crate) struct Stop {
    sender: Sender,
    state: Mutex<Wanted>,
}

/// Whether anybody waits for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Still,
    /// Its client went away, or thinks better of it.
    Withdrawn,
    /// The server ends.
    Ending,
}

/// A call that was let in; its place is free again when the value goes.
#[derive(Debug)]
pub(crate) struct Entered {
    id: u64,
    live: Arc<Mutex<Live>>,
    /// Ends it.
    pub(crate) stop: Arc<Stop>,
    /// What ends its program.
    pub(crate) signals: Signals,
    running: Arc<Semaphore>,
    _place: OwnedSemaphorePermit,
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(MOST)),
            running: Arc::new(Semaphore::new(MOST_AT_ONCE)),
            next: AtomicU64::new(0),
            live: Arc::default(),
        }
    }
}

impl Calls {
    /// Lets a call in, unless too many are there or the server ends.
    pub(crate) fn enter(&self) -> Result<Entered, Failure> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place =
            place.map_err(|_| Failure::full("server", format!("{MOST} calls are waiting already")).with_hint("wait for some of them"))?;
        let (sender, signals) = Signals::sent().map_err(|errno| Failure::new("server", format!("making the call's stop: {errno}")))?;
        let stop = Arc::new(Stop { sender, state: Mutex::new(Wanted::Still) });
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut live = lock(&self.live);
        if live.closed {
            return Err(Failure::ending());
        }
        live.calls.insert(id, Arc::clone(&stop));
        Ok(Entered { id, live: Arc::clone(&self.live), stop, signals, running: Arc::clone(&self.running), _place: place })
    }

    /// How many run or wait.
    pub(crate) fn count(&self) -> usize {
        lock(&self.live).calls.len()
    }

    /// Ends every call, and lets none in any more. Those that wait are answered at once.
    pub(crate) fn close(&self) {
        let mut live = lock(&self.live);
        live.closed = true;
        live.calls.values().for_each(|stop| stop.end(Wanted::Ending));
        self.running.close();
    }

    /// Waits until every call has written down what came of it.
    pub(crate) async fn silence(&self, patience: Duration) {
        let all = u32::try_from(MOST).unwrap_or(u32::MAX);
        // What takes longer is written down as interrupted by the next command.
        let _ = tokio::time::timeout(patience, self.places.acquire_many(all)).await;
    }
}

impl Entered {
    /// Waits until few enough others run; what nobody wants by then does not begin.
    pub(crate) async fn begin(&self) -> Result<OwnedSemaphorePermit, Failure> {
        match Arc::clone(&self.running).acquire_owned().await {
            Ok(running) if self.stop.is_wanted() => Ok(running),
            Ok(_) | Err(_) => Err(self.stop.refusal()),
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        lock(&self.live).calls.remove(&self.id);
    }
}

impl Stop {
    /// Kills what runs. What only waits does not begin.
    pub(crate) fn stop(&self) {
        self.end(Wanted::Withdrawn);
    }

    fn end(&self, why: Wanted) {
        let mut state = lock(&self.state);
        // Whoever was first says why.
        if *state == Wanted::Still {
            *state = why;
        }
        self.sender.send(libc::SIGKILL);
    }

    /// Whether nobody stopped it.
    pub(crate) fn is_wanted(&self) -> bool {
        *lock(&self.state) == Wanted::Still
    }

    /// What a receipt says of a call that was stopped while it ran.
    pub(crate) fn told(&self) -> Option<&'static str> {
        match *lock(&self.state) {
            Wanted::Still => None,
            Wanted::Withdrawn => Some("cancelled: the client withdrew the call, and everything in its sandbox was killed"),
            Wanted::Ending => Some("cancelled: the server ended, and everything in the call's sandbox was killed"),
        }
    }

    /// What a call is told that was stopped before it began.
    pub(crate) fn refusal(&self) -> Failure {
        match *lock(&self.state) {
            Wanted::Still | Wanted::Ending => Failure::ending(),
            Wanted::Withdrawn => Failure::new("server", "the call was withdrawn before it began"),
        }
    }
}

/// A thread that failed while it had the lock left whole values.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_bounded_and_a_closed_server_takes_none() {
        let calls = Calls::default();
        let all: Vec<Entered> = (0..MOST).map(|_| calls.enter().unwrap()).collect();
        assert_eq!((calls.count(), calls.enter().is_err()), (MOST, true));
        drop(all);
        let last = calls.enter().unwrap();
        calls.close();
        assert_eq!((last.stop.is_wanted(), last.signals.next(), calls.enter().is_err()), (false, Some(libc::SIGKILL), true));
    }

    #[tokio::test]
    async fn what_waits_when_the_server_ends_is_told_so_at_once() {
        let calls = Calls::default();
        let all: Vec<Entered> = (0..=MOST_AT_ONCE).map(|_| calls.enter().unwrap()).collect();
        let (last, others) = all.split_last().unwrap();
        let mut running = Vec::new();
        for other in others {
            running.push(other.begin().await.unwrap());
        }
        let end = async {
            tokio::task::yield_now().await;
            calls.close();
        };
        // Nobody of those that run makes room.
        let (waited, ()) = tokio::join!(last.begin(), end);
        assert_eq!(waited.unwrap_err(), Failure::ending());
        assert_eq!(calls.enter().unwrap_err(), Failure::ending());
    }

    #[tokio::test]
    async fn what_was_withdrawn_does_not_begin_and_hears_that() {
        let entered = Calls::default().enter().unwrap();
        entered.stop.stop();
        assert_eq!(entered.begin().await.unwrap_err().message, "the call was withdrawn before it began");
    }
}
