//! After a fault: waits until things are quiet, lets Stockade sweep as any later start of it would, and says what is left.
//!
//! Two things are not left-overs. What a run kept because it had ended with changes is looked at and then pruned. What was taken away
//! from a workspace (the quarantine) is a person's to look at; it is removed here.

use std::fs;
use std::time::{Duration, Instant};

use crate::bounded;
use crate::cage::Cage;
use crate::census::{Census, Kind, Left};
use crate::failure::Failure;
use crate::ground::Ground;

/// How long it may take until nothing is left.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was seen on the way to quiet.
#[derive(Debug, Default)]
pub struct Settled {
    /// What is left.
    pub left: Vec<Left>,
    /// What else is wrong.
    pub wrong: Vec<String>,
    /// How many had been kept with changes.
    pub kept: usize,
}

/// Waits, sweeps, looks. What was told already is not told again.
pub fn settle(cage: &Cage, ground: &Ground, before: &Census, told: &[Left]) -> Result<Settled, Failure> {
    let look = || {
        let mut left = Census::take(cage, ground).since(before);
        left.retain(|one| !told.contains(one));
        left
    };
    let end = Instant::now() + PATIENCE;
    let mut settled = Settled::default();
    while look().iter().any(|left| left.kind == Kind::Process) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(2));
    }
    if ground.sandboxes().is_dir() {
        prune(ground, &["sandbox", "prune"], &mut settled.wrong)?;
        settled.kept = check_kept(ground, &mut settled.wrong);
        prune(ground, &["sandbox", "prune", "--all"], &mut settled.wrong)?;
        let quarantine = ground.state.join("stockade/quarantine");
        if quarantine.is_dir() {
            fs::remove_dir_all(&quarantine).map_err(Failure::at("removing", &quarantine))?;
        }
    }
    loop {
        settled.left = look();
        if settled.left.is_empty() || Instant::now() > end {
            return Ok(settled);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn prune(ground: &Ground, words: &[&str], wrong: &mut Vec<String>) -> Result<(), Failure> {
    let outcome = bounded::run(&mut ground.stockade(words))?;
    if outcome.code() != Some(0) {
        wrong.push(format!("`{}` came to {}: {}", words.join(" "), outcome.name(), outcome.stderr.trim_end()));
    }
    Ok(())
}

/// After a sweep, what is still there was kept on purpose: its record says so. How many.
fn check_kept(ground: &Ground, wrong: &mut Vec<String>) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(ground.sandboxes()).into_iter().flatten().flatten() {
        let record = fs::read(entry.path().join("record.json")).ok();
        let record = record.and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok());
        if record.as_ref().and_then(|record| record.get("kept")).is_some_and(serde_json::Value::is_array) {
            count += 1;
        } else {
            wrong.push(format!("`{}` is not kept and was not swept: {record:?}", entry.path().display()));
        }
    }
    count
}
