//! A state directory that is moved away or removed while a program runs: the run ends as it would, or says what is missing, and its
//! groups and processes go with it though nothing is written down about them any more.

use std::fs;
use std::path::Path;

use super::{Bench, CHANGES, Stand, Workspace};
use crate::bounded::{self, Started};
use crate::failure::Failure;
use crate::ground::Who;
use crate::probe;
use crate::report::Tally;

const NAME: &str = "state";
/// How often a directory is taken away from under somebody who writes to it.
const TRIES: u32 = 10;

/// What happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Moved,
    Removed,
}

pub(super) fn run(bench: &Bench<'_>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    for who in Who::BOTH {
        let stand = Stand::new(bench, NAME, who)?;
        let mut round = 0;
        for fault in [Fault::Moved, Fault::Removed] {
            for mode in ["overlay", "rw", "ro", "created"] {
                one(&mut tally, &stand, round, fault, mode)?;
                round += 1;
            }
        }
        (bench.progress)(&format!("{NAME}: {} runs, {} findings", tally.runs, tally.findings.len()));
    }
    Ok(tally)
}

fn one(tally: &mut Tally, stand: &Stand<'_>, round: u64, fault: Fault, mode: &str) -> Result<(), Failure> {
    let ground = &stand.ground;
    let scene = format!("as {}, {mode}, {fault:?} while it runs", ground.who.name());
    let script = stand.script(&format!("sleep 0.3; {CHANGES}"));
    let mut started = if mode == "created" {
        let made = bounded::run(&mut ground.stockade(["sandbox", "create"]))?;
        Started::new(&mut ground.stockade(["sandbox", "exec", made.stdout.trim(), "--", "bash", "-c", &script]))?
    } else {
        Started::new(&mut ground.stockade(["run", "--workspace-mode", mode, "--", "bash", "-c", &script]))?
    };
    started.wait_for(probe::has_run);
    let (here, away) = (ground.state.join("stockade"), ground.base.join("away"));
    match fault {
        Fault::Moved => fs::rename(&here, &away).map_err(Failure::at("moving", &here))?,
        Fault::Removed => remove(&here)?,
    }
    let outcome = started.finish();
    tally.runs += 1;
    tally.phase(format!("{mode} {fault:?}").to_lowercase());
    tally.judged(round, &scene, &outcome, probe::judge_end(&outcome, &[0]));
    if fault == Fault::Moved {
        bring_back(&away, &here)?;
    }
    if mode == "created" {
        stand.end_all(tally, round, &scene)?;
    }
    stand.look(tally, round, &scene, if mode == "rw" { Workspace::Written } else { Workspace::Same })
}

/// What was there comes back, and what came into being meanwhile gives way, also what the run's clearing makes at this moment.
fn bring_back(away: &Path, here: &Path) -> Result<(), Failure> {
    let mut result = Ok(());
    for _ in 0..TRIES {
        if here.exists() {
            remove(here)?;
        }
        result = fs::rename(away, here);
        if result.is_ok() {
            break;
        }
    }
    result.map_err(Failure::at("moving", away))
}

/// Removes a directory that somebody may still be writing to.
fn remove(directory: &Path) -> Result<(), Failure> {
    let mut result = Ok(());
    for _ in 0..TRIES {
        result = fs::remove_dir_all(directory);
        if result.is_ok() {
            break;
        }
    }
    result.map_err(Failure::at("removing", directory))
}
