//! A state directory that cannot be written: from the beginning, or suddenly while a program runs.

use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};

use super::{Bench, CHANGES, Stand, Workspace};
use crate::bounded::{self, Started};
use crate::failure::Failure;
use crate::ground::Who;
use crate::probe;
use crate::report::Tally;

const NAME: &str = "read-only";

pub(super) fn run(bench: &Bench<'_>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    for who in Who::BOTH {
        let stand = Stand::new(bench, NAME, who)?;
        let script = stand.script(CHANGES);
        for (round, words) in (0_u64..).zip([&["--json", "run", "--", "bash", "-c", &script][..], &["--json", "sandbox", "create"]]) {
            let scene = format!("as {}, read-only before `{}`", who.name(), words.get(1).unwrap_or(&""));
            let lid = Lid::over(&stand.ground.state)?;
            let outcome = bounded::run(&mut stand.ground.stockade(words))?;
            drop(lid);
            if outcome.code() == Some(0) {
                tally.wrong(round, &scene, [format!("it ran and could not have written anything down: {outcome:?}")]);
            }
            stand.starved(&mut tally, round, &scene, &outcome)?;
        }
        for (round, mode) in (2_u64..).zip(["overlay", "rw", "ro"]) {
            let scene = format!("as {}, {mode}, read-only while it runs", who.name());
            let mut started =
                Started::new(&mut stand.ground.stockade(["run", "--workspace-mode", mode, "--", "bash", "-c", &slow(&stand)]))?;
            started.wait_for(probe::has_run);
            let lid = Lid::over(&stand.ground.state)?;
            let outcome = started.finish();
            drop(lid);
            tally.runs += 1;
            tally.phase("while it ran");
            tally.judged(round, &scene, &outcome, probe::judge_end(&outcome, &[0]));
            stand.look(&mut tally, round, &scene, if mode == "rw" { Workspace::Written } else { Workspace::Same })?;
        }
        (bench.progress)(&format!("{NAME}: {} runs, {} findings", tally.runs, tally.findings.len()));
    }
    Ok(tally)
}

/// A program that is still there when the fault comes.
fn slow(stand: &Stand<'_>) -> String {
    stand.script(&format!("sleep 0.3; {CHANGES}"))
}

/// The same directory, read-only, mounted over itself; gone with the value.
struct Lid<'a> {
    at: &'a Path,
}

impl<'a> Lid<'a> {
    fn over(at: &'a Path) -> Result<Self, Failure> {
        mount_bind(at, at).map_err(|e| Failure::at("mounting", at)(e.into()))?;
        let lid = Self { at };
        mount_remount(at, MountFlags::BIND | MountFlags::RDONLY, c"").map_err(|e| Failure::at("making read-only", at)(e.into()))?;
        Ok(lid)
    }
}

impl Drop for Lid<'_> {
    fn drop(&mut self) {
        // What stays is seen by the next census.
        let _ = unmount(self.at, UnmountFlags::DETACH);
    }
}
