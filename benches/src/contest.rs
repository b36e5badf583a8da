//! Contestants against each other: warm-up, then rounds in which each runs once, in an order that changes with every round, so that what
//! else happens on the machine, and what one leaves behind for the next, hits all alike.
//!
//! A contestant times itself, so that what it has to prepare or clean up is not counted. One that fails is told in its row with its message;
//! the others go on.

use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::load::{Condition, Load};
use crate::results::Row;
use crate::statistics::Summary;

/// At or above this median of the warm-up, in milliseconds, a contestant runs in fewer rounds.
const SLOW: f64 = 100.0;
/// Between two runs, so that what the last one left to be torn down is gone.
const PAUSE: Duration = Duration::from_millis(2);

/// One who runs: returns how long it took, or what went wrong.
pub(crate) struct Contestant<'a> {
    name: String,
    turns: Turns,
    act: Box<dyn FnMut() -> Result<Duration, String> + 'a>,
}

impl<'a> Contestant<'a> {
    /// A contestant that times itself.
    pub(crate) fn new(name: impl Into<String>, act: impl FnMut() -> Result<Duration, String> + 'a) -> Self {
        Self { name: name.into(), turns: Turns::FewerIfSlow, act: Box::new(act) }
    }

    /// The same in every round, however slow: those that a promise is about.
    pub(crate) fn in_every_round(self) -> Self {
        Self { turns: Turns::All, ..self }
    }
}

/// In which rounds a contestant takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turns {
    All,
    FewerIfSlow,
}

/// How often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rounds {
    /// Rounds of fast contestants.
    pub(crate) fast: usize,
    /// Rounds of those that take 100 ms or more.
    pub(crate) slow: usize,
    /// Runs before the first that counts.
    pub(crate) warm: usize,
}

struct Entry<'a> {
    contestant: Contestant<'a>,
    samples: Vec<f64>,
    /// Takes part in every round that this divides.
    every: usize,
    failed: Option<String>,
}

impl Entry<'_> {
    fn run(&mut self) -> Option<f64> {
        match (self.contestant.act)() {
            Ok(time) => Some(time.as_secs_f64() * 1000.0),
            Err(message) => {
                self.failed = Some(message);
                None
            }
        }
    }
}

/// Lets all run against each other; one row each, in milliseconds, in the order given.
pub(crate) fn contest(contestants: Vec<Contestant<'_>>, rounds: Rounds, condition: Condition) -> Result<Vec<Row>, Failure> {
    let _load = Load::start(condition)?;
    let started = Instant::now();
    let mut entries: Vec<Entry<'_>> = contestants.into_iter().map(|c| warm_up(c, rounds)).collect();
    let mut order = Order(0x9e37_79b9_7f4a_7c15);
    for round in 0..rounds.fast {
        let mut turns: Vec<usize> = (0..entries.len()).collect();
        order.shuffle(&mut turns);
        for turn in turns {
            let Some(entry) = entries.get_mut(turn).filter(|e| e.failed.is_none() && round % e.every == 0) else { continue };
            std::thread::sleep(PAUSE);
            if let Some(sample) = entry.run() {
                entry.samples.push(sample);
            }
        }
    }
    crate::say(&format!("  {condition}: {} contestants in {:.1} s", entries.len(), started.elapsed().as_secs_f64()));
    Ok(entries.into_iter().map(row).collect())
}

fn warm_up(contestant: Contestant<'_>, rounds: Rounds) -> Entry<'_> {
    let mut entry = Entry { contestant, samples: Vec::new(), every: 1, failed: None };
    let mut warm = Vec::new();
    for _ in 0..rounds.warm.max(1) {
        match entry.run() {
            Some(sample) => warm.push(sample),
            None => break,
        }
        // Two runs tell a slow one well enough.
        if warm.len() >= 2 && warm.iter().all(|s| *s >= SLOW) {
            break;
        }
    }
    if entry.contestant.turns == Turns::FewerIfSlow && Summary::of(&warm).is_some_and(|s| s.p50 >= SLOW) {
        entry.every = rounds.fast.div_ceil(rounds.slow.max(1)).max(1);
    }
    entry
}

fn row(entry: Entry<'_>) -> Row {
    let summary = match entry.failed {
        Some(message) => Err(message),
        None => Summary::of(&entry.samples).ok_or_else(|| "was never run".to_owned()),
    };
    Row::new(entry.contestant.name, summary)
}

/// A small generator of orders: the same in every run of the harness.
struct Order(u64);

impl Order {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn shuffle(&mut self, turns: &mut [usize]) {
        for end in (1..turns.len()).rev() {
            let other = (self.next() % (end as u64 + 1)) as usize;
            turns.swap(end, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: Rounds = Rounds { fast: 20, slow: 4, warm: 3 };

    #[test]
    fn all_run_equally_often_slow_ones_less_and_failures_are_told() {
        let contestants = vec![
            Contestant::new("fast", || Ok(Duration::from_millis(1))),
            Contestant::new("slow", || Ok(Duration::from_millis(150))),
            Contestant::new("ours", || Ok(Duration::from_millis(150))).in_every_round(),
            Contestant::new("broken", || Err("no such thing".into())),
        ];
        let rows = contest(contestants, FEW, Condition::Idle).unwrap();
        let runs: Vec<Option<usize>> = rows.iter().map(|r| r.summary.as_ref().map(|s| s.runs)).collect();
        assert_eq!(runs, [Some(20), Some(4), Some(20), None]);
        assert_eq!(rows[3].refused.as_deref(), Some("no such thing"));
    }

    #[test]
    fn an_order_holds_each_once_and_changes() {
        let mut order = Order(1);
        let (mut first, mut second): (Vec<usize>, Vec<usize>) = ((0..9).collect(), (0..9).collect());
        order.shuffle(&mut first);
        order.shuffle(&mut second);
        assert_ne!(first, second);
        first.sort_unstable();
        assert_eq!(first, (0..9).collect::<Vec<_>>());
    }
}
