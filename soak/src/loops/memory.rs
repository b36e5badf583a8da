//! So much memory and no more: address space of every process, or memory of a control group around everything.
//!
//! A host process that cannot allocate is ended by the standard library (SIGABRT), one that the kernel's out-of-memory killer picks by
//! SIGKILL, one that cannot even be loaded by SIGSEGV: none can say more, and all must leave nothing, like any kill.

use super::{Bench, Fate, Stand, Workspace, until_enough};
use crate::bounded::{self, End};
use crate::failure::Failure;
use crate::ground::Who;
use crate::report::Tally;

const NAME: &str = "memory";
const MEBIBYTE: u64 = 1 << 20;

pub(super) fn run(bench: &Bench<'_>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    for who in Who::BOTH {
        let stand = Stand::new(bench, NAME, who)?;
        let script = stand.script("echo new >new; exit 0");
        let words = ["--json", "run", "--", "bash", "-c", &script];
        until_enough((2..160).map(|half| half * MEBIBYTE / 2), bench.arguments.extent, |round, amount| {
            let scene = format!("as {}, {} KiB of address space", who.name(), amount >> 10);
            (bench.progress)(&format!("{NAME}: {scene}"));
            one(&mut tally, &stand, round, &scene, &mut stand.ground.behind(&["prlimit", &format!("--as={amount}:{amount}")], &words))
        })?;
        if who == Who::Root {
            until_enough((1..160).map(|quarter| quarter * MEBIBYTE / 4), bench.arguments.extent, |round, amount| {
                let scene = format!("as {}, {} KiB in a control group", who.name(), amount >> 10);
                (bench.progress)(&format!("{NAME}: {scene}"));
                let tight = bench.cage.groups.tight("memory", amount)?;
                let door = tight.door().display().to_string();
                // The shell goes in and becomes Stockade.
                let mut command = stand.ground.behind(&["bash", "-c", "echo 0 >\"$0\"; exec \"$@\"", &door], &words);
                let outcome = bounded::run(&mut command)?;
                let fate = judge(&mut tally, &stand, round, &scene, &outcome);
                // Sandboxes' groups are below it and have to go first.
                stand.sweep_before(&mut tally, round, &scene)?;
                drop(tight);
                stand.look(&mut tally, round, &scene, Workspace::Same)?;
                Ok(fate)
            })?;
        }
    }
    Ok(tally)
}

fn one(tally: &mut Tally, stand: &Stand<'_>, round: u64, scene: &str, command: &mut std::process::Command) -> Result<Fate, Failure> {
    let outcome = bounded::run(command)?;
    if is_killed(&outcome.end) {
        tally.runs += 1;
        tally.end(outcome.name());
        stand.look(tally, round, scene, Workspace::Same)?;
        return Ok(Fate::Refused);
    }
    stand.starved(tally, round, scene, &outcome)
}

fn judge(tally: &mut Tally, stand: &Stand<'_>, round: u64, scene: &str, outcome: &bounded::Outcome) -> Fate {
    tally.runs += 1;
    let wrong = if is_killed(&outcome.end) { Vec::new() } else { stand.judge_only(outcome) };
    tally.judged(round, scene, outcome, wrong);
    if outcome.code() == Some(0) { Fate::Ran } else { Fate::Refused }
}

fn is_killed(end: &End) -> bool {
    matches!(end, End::Signal(6 | 9 | 11))
}
