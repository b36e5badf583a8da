//! One source's latest value, shared by everybody who asks: fresh ones are handed out, and of many askers at once only one goes to the source.
//!
//! ```text
//!            ask, nothing fresh            source answers
//!  Empty ──────────────────────▶ Busy ───────────────────────▶ Ready
//!    ▲                             │  ▲                           │
//!    └──── source fails (all who waited get that failure) ────────┘ stale
//! ```
//!
//! While one asks again, the others use the older value for as long as it is good. Where asking again fails, so does the one who asked; a
//! value with an end of its own is then still used until that end, one without is not.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use super::{Lease, SourceError};
use crate::shared::lock;

/// How long a source that failed is left alone while its older value is good.
const RETRY: Duration = Duration::from_secs(10);

/// What a source has said; `None`: it has nothing, and somebody else may.
type Said = Option<Arc<Lease>>;

/// A source's latest value.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// Every value that can be given back and was not asked for again yet.
    earlier: Mutex<Vec<Arc<Lease>>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    latest: Option<Arc<Lease>>,
    busy: bool,
    /// How many times the source was asked.
    round: u64,
    /// What came of the last time where there is nothing to keep.
    outcome: Option<Result<(), Arc<SourceError>>>,
    /// When to ask a source again that failed.
    retry: Option<SystemTime>,
}

impl Slot {
    /// Every value that it had and that can be given back.
    pub(crate) fn all(&self) -> Vec<Arc<Lease>> {
        let latest = lock(&self.state).latest.take();
        lock(&self.earlier).drain(..).chain(latest).collect()
    }

    /// A fresh value if one is at hand.
    pub(crate) fn ready(&self, now: SystemTime) -> Said {
        lock(&self.state).latest.clone().filter(|lease| lease.is_fresh(now))
    }

    /// A good value: at hand, or from the source. Waits while another asks it.
    pub(crate) fn ask(
        &self,
        clock: impl Fn() -> SystemTime,
        fetch: impl FnOnce() -> Result<Option<Lease>, SourceError>,
    ) -> Result<Said, Arc<SourceError>> {
        let mut state = lock(&self.state);
        while state.busy {
            if let Some(lease) = state.latest.clone().filter(|lease| lease.is_usable(clock())) {
                return Ok(Some(lease));
            }
            let round = state.round;
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
            if !state.busy
                && state.round == round
                && let Some(outcome) = state.outcome.clone()
            {
                return outcome.map(|()| None);
            }
        }
        if let Some(lease) = state.latest.clone().filter(|lease| lease.is_fresh(clock())) {
            return Ok(Some(lease));
        }
        // A source that just failed is left alone for a while, as long as what it said before is good.
        if let Some(lease) =
            state.latest.clone().filter(|lease| state.retry.is_some_and(|retry| clock() < retry) && lease.is_usable(clock()))
        {
            return Ok(Some(lease));
        }
        state.busy = true;
        state.round += 1;
        state.outcome = None;
        drop(state);
        // Whatever happens in there, the others must not wait for ever.
        let turn = Turn { slot: self };
        let said = fetch();
        turn.end(said, clock())
    }
}

struct Turn<'a> {
    slot: &'a Slot,
}

impl Turn<'_> {
    fn end(&self, said: Result<Option<Lease>, SourceError>, now: SystemTime) -> Result<Said, Arc<SourceError>> {
        let mut state = lock(&self.slot.state);
        match said {
            Ok(Some(lease)) => {
                let lease = Arc::new(lease);
                if let Some(earlier) = state.latest.replace(Arc::clone(&lease)).filter(|earlier| lock(&earlier.revoke).is_some()) {
                    lock(&self.slot.earlier).push(earlier);
                }
                state.retry = None;
                Ok(Some(lease))
            }
            Ok(None) => {
                state.latest = None;
                state.outcome = Some(Ok(()));
                Ok(None)
            }
            Err(error) => {
                let error = Arc::new(error);
                state.latest = state.latest.take().filter(|lease| lease.expires.is_some() && lease.is_usable(now));
                state.outcome = Some(Err(Arc::clone(&error)));
                state.retry = Some(now + RETRY);
                state.latest.clone().map(Some).ok_or(error)
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.slot.state).busy = false;
        self.slot.changed.notify_all();
    }
}
