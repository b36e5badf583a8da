//! A workspace that is moved away, removed or replaced while a program runs in it. Nothing may be written to what took its place.

use std::fs;
use std::os::unix::fs::symlink;

use super::{Bench, CHANGES, Stand, Workspace};
use crate::bounded::Started;
use crate::failure::Failure;
use crate::ground::{self, Who};
use crate::probe;
use crate::report::Tally;

const NAME: &str = "workspace";

/// What happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Moved,
    Removed,
    /// By a link to another directory.
    Linked,
    /// By a directory with the same files.
    Replaced,
}

pub(super) fn run(bench: &Bench<'_>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    for who in Who::BOTH {
        let stand = Stand::new(bench, NAME, who)?;
        let mut round = 0;
        for fault in [Fault::Moved, Fault::Removed, Fault::Linked, Fault::Replaced] {
            for flags in [&["--workspace-mode", "overlay"][..], &["--workspace-mode", "rw"], &["--workspace-mode", "ro"], &["--apply"]] {
                one(&mut tally, &stand, round, fault, flags)?;
                round += 1;
            }
        }
        (bench.progress)(&format!("{NAME}: {} runs, {} findings", tally.runs, tally.findings.len()));
    }
    Ok(tally)
}

fn one(tally: &mut Tally, stand: &Stand<'_>, round: u64, fault: Fault, flags: &[&str]) -> Result<(), Failure> {
    let ground = &stand.ground;
    let scene = format!("as {}, {}, {fault:?} while it runs", ground.who.name(), flags.join(" "));
    let script = stand.script(&format!("sleep 0.3; {CHANGES}"));
    let words: Vec<&str> = ["run"].iter().chain(flags).chain(&["--", "bash", "-c", &script]).copied().collect();
    let mut started = Started::new(&mut ground.stockade(words))?;
    started.wait_for(probe::has_run);
    let away = ground.base.join("away");
    match fault {
        Fault::Removed => fs::remove_dir_all(&ground.work).map_err(Failure::at("removing", &ground.work))?,
        Fault::Moved | Fault::Linked | Fault::Replaced => fs::rename(&ground.work, &away).map_err(Failure::at("moving", &ground.work))?,
    }
    match fault {
        Fault::Moved | Fault::Removed => {}
        Fault::Linked => symlink(&ground.elsewhere, &ground.work).map_err(Failure::at("linking", &ground.work))?,
        Fault::Replaced => ground.fill(&ground.work)?,
    }
    let outcome = started.finish();
    tally.runs += 1;
    tally.phase(format!("{fault:?}").to_lowercase());
    tally.judged(round, &scene, &outcome, probe::judge_end(&outcome, &[0]));
    if fault == Fault::Replaced {
        let told = ground::differences(&stand.work, &ground::snapshot(&ground.work));
        tally.wrong(round, &scene, told.into_iter().map(|told| format!("in the directory that took its place: {told}")));
    }
    // As it was, before anything is swept or looked at.
    if fault == Fault::Linked {
        fs::remove_file(&ground.work).map_err(Failure::at("removing", &ground.work))?;
    }
    for directory in [&ground.work, &away].into_iter().filter(|directory| directory.exists()) {
        fs::remove_dir_all(directory).map_err(Failure::at("removing", directory))?;
    }
    ground.fill(&ground.work)?;
    stand.look(tally, round, &scene, Workspace::Same)
}
