//! Ends an agent that has used what it may: tokens, money or time. It is asked first, and killed a moment later.
//!
//! One thread reads the record of what passed egress, which is where usage is stated. What it does is what a person could: it sends this
//! process the signal that ends an agent. Egress refuses further requests to the model by itself; this makes the end a clean one.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use stockade_store::settings::Price;

use super::summary::Totals;
use crate::egress::record::Record;

/// How often the record is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// What an agent may use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Budget {
    /// Tokens of all kinds.
    pub(crate) tokens: Option<u64>,
    /// Dollars, by the prices in the settings.
    pub(crate) dollars: Option<f64>,
    /// Time.
    pub(crate) time: Option<Duration>,
}

/// What was used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spent {
    /// Tokens.
    Tokens,
    /// Dollars.
    Dollars,
    /// Time.
    Time,
}

impl Spent {
    /// The word in JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Dollars => "usd",
            Self::Time => "time",
        }
    }
}

impl Budget {
    /// Whether anything is limited.
    pub(crate) fn is_nothing(&self) -> bool {
        self.tokens.is_none() && self.dollars.is_none() && self.time.is_none()
    }

    fn spent(&self, totals: &Totals, prices: &[Price], began: Instant) -> Option<Spent> {
        let tokens = self.tokens.filter(|most| totals.tokens() >= *most).map(|_| Spent::Tokens);
        let dollars = self.dollars.filter(|most| totals.dollars(prices) >= *most).map(|_| Spent::Dollars);
        let time = self.time.filter(|most| began.elapsed() >= *most).map(|_| Spent::Time);
        tokens.or(dollars).or(time)
    }
}

/// Watches while a program runs.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    over: AtomicBool,
    spent: Mutex<Option<Spent>>,
}

impl Watcher {
    /// Runs `act` and watches meanwhile; `directory` is the sandbox's.
    pub(crate) fn around<T>(&self, budget: &Budget, prices: &[Price], directory: &Path, act: impl FnOnce() -> T) -> T {
        if budget.is_nothing() {
            return act();
        }
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| self.watch(budget, prices, directory));
            let result = act();
            self.over.store(true, Ordering::Release);
            watching.thread().unpark();
            result
        })
    }

    /// What was used up, where that is why it ended.
    pub(crate) fn spent(&self) -> Option<Spent> {
        *self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, budget: &Budget, prices: &[Price], directory: &Path) {
        let began = Instant::now();
        let mut record = None;
        let mut place = 0;
        let mut totals = Totals::default();
        while !self.over.load(Ordering::Acquire) {
            std::thread::park_timeout(LOOK);
            // It is there once the way out is open, and only where there is one.
            record = record.or_else(|| Record::open(directory).ok());
            if let Some((rows, next)) = record.as_ref().and_then(|record| record.since(place).ok()) {
                for row in &rows {
                    totals.add(row);
                }
                place = next;
            }
            if let Some(spent) = budget.spent(&totals, prices, began) {
                *self.spent.lock().unwrap_or_else(PoisonError::into_inner) = Some(spent);
                // Passed on to the agent, which has two seconds to end by itself.
                let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::record::Usage;

    #[test]
    fn what_is_used_up_is_named() {
        let mut totals = Totals::default();
        totals.add_usage(&Usage { model: Some("m-1".into()), input: 100, output: 50, cache_read: 0, cache_write: 0 });
        let prices = [Price { model: "m".into(), input: 1000.0, output: 10_000.0, cache_read: 0.0, cache_write: 0.0 }];
        let now = Instant::now();
        let check = |budget: &Budget| budget.spent(&totals, &prices, now);
        assert_eq!(check(&Budget { tokens: Some(150), ..Budget::default() }), Some(Spent::Tokens));
        assert_eq!(check(&Budget { tokens: Some(151), ..Budget::default() }), None);
        assert_eq!(check(&Budget { dollars: Some(0.6), ..Budget::default() }), Some(Spent::Dollars));
        assert_eq!(check(&Budget { dollars: Some(0.7), ..Budget::default() }), None);
        assert_eq!(check(&Budget { time: Some(Duration::ZERO), ..Budget::default() }), Some(Spent::Time));
        assert!(Budget::default().is_nothing());
    }
}
