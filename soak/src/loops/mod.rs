//! The loops, each one fault, and what they share: a ground that is known to work, and the look at it after every round.

mod clock;
mod daemon;
mod descriptors;
mod disk;
mod kill_agent;
mod kill_created;
mod kill_receipts;
mod kill_run;
mod memory;
mod parallel;
mod pids;
mod read_only;
mod state;
mod workspace;

use std::cell::RefCell;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::arguments::{Arguments, Extent};
use crate::bounded::{self, Outcome};
use crate::cage::Cage;
use crate::census::{Census, Left};
use crate::failure::Failure;
use crate::ground::{self, Ground, Snapshot, Who};
use crate::report::Tally;
use crate::{probe, processes, settle};

/// One loop.
#[derive(Debug, Clone, Copy)]
pub struct Loop {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Does it.
    pub run: fn(&Bench<'_>) -> Result<Tally, Failure>,
}

/// All loops, the long ones first.
pub const ALL: &[Loop] = &[
    Loop { name: "kill-run", about: "SIGKILL of Stockade, the guest, the program, at any moment of a run", run: kill_run::run },
    Loop { name: "kill-created", about: "the same for sandboxes that live on: client, supervisor, guest, program", run: kill_created::run },
    Loop {
        name: "kill-agent",
        about: "SIGKILL of Stockade, its helpers, the guest while an agent works, and a look for its work",
        run: kill_agent::run,
    },
    Loop {
        name: "kill-receipts",
        about: "SIGKILL while several write receipts at once, and a look for each of them",
        run: kill_receipts::run,
    },
    Loop { name: "daemon", about: "many callers of the daemon, its end while they call, SIGKILL of it and its launcher", run: daemon::run },
    Loop { name: "parallel", about: "fifty at once, some of them killed", run: parallel::run },
    Loop { name: "disk", about: "a state directory with room for so many blocks or files and no more", run: disk::run },
    Loop { name: "descriptors", about: "so many open files and no more", run: descriptors::run },
    Loop { name: "memory", about: "so much address space, or memory of a control group, and no more", run: memory::run },
    Loop { name: "pids", about: "so many processes and no more", run: pids::run },
    Loop { name: "read-only", about: "a state directory that cannot be written, from the beginning or suddenly", run: read_only::run },
    Loop { name: "clock", about: "records and files from the past and the future, another monotonic clock", run: clock::run },
    Loop { name: "workspace", about: "a workspace that is moved, removed or replaced while a program runs", run: workspace::run },
    Loop { name: "state", about: "a state directory that is moved or removed while a program runs", run: state::run },
];

/// What a loop works with.
pub struct Bench<'a> {
    /// Where it runs.
    pub cage: &'a Cage,
    /// What was asked for.
    pub arguments: &'a Arguments,
    /// Says how far it is.
    pub progress: &'a dyn Fn(&str),
    /// What was told to be left already, by any loop: it is told once.
    pub told: RefCell<Vec<Left>>,
}

/// A ground that works without a fault, and how it was before any.
pub(crate) struct Stand<'a> {
    bench: &'a Bench<'a>,
    pub(crate) ground: Ground,
    before: Census,
    pub(crate) work: Snapshot,
    elsewhere: Snapshot,
    /// How long a run takes here without a fault.
    pub(crate) span: Duration,
    /// What holds here without a fault.
    sound: Value,
}

/// What came of a run under a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It ran as if nothing were.
    Ran,
    /// It was refused, or the program could not do its work.
    Refused,
}

/// Goes through the steps of a shortage until runs succeed for good, so that it lands wherever it can. `step` is given the round and the
/// amount.
pub(crate) fn until_enough(
    amounts: impl Iterator<Item = u64>,
    extent: Extent,
    mut step: impl FnMut(u64, u64) -> Result<Fate, Failure>,
) -> Result<(), Failure> {
    let stride = match extent {
        Extent::Long => 1,
        Extent::Short => 4,
    };
    let mut successes = 0;
    for (round, amount) in (0_u64..).zip(amounts.step_by(stride)) {
        successes = if step(round, amount)? == Fate::Ran { successes + 1 } else { 0 };
        if successes == ENOUGH {
            break;
        }
    }
    Ok(())
}

/// So many successes in a row end a shortage.
const ENOUGH: u32 = 3;
/// How long a supervisor that nobody waits for may take to start.
const LONGEST_START: Duration = Duration::from_secs(20);

/// What may have happened to the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workspace {
    /// Nothing.
    Same,
    /// The program wrote to it: any file may be old, new or half written, but nothing protected may be there.
    Written,
    /// Changes were being brought back: each file is old or new, whole.
    Applied,
}

impl<'a> Stand<'a> {
    /// Makes the ground and proves that it works: without a fault a program runs behind a whole wall and nothing is left.
    pub(crate) fn new(bench: &'a Bench<'a>, name: &str, who: Who) -> Result<Self, Failure> {
        let ground = Ground::new(bench.cage, name, who)?;
        let (work, elsewhere) = (ground::snapshot(&ground.work), ground::snapshot(&ground.elsewhere));
        let before = Census::take(bench.cage, &ground);
        let mut stand = Self { bench, ground, before, work, elsewhere, span: Duration::ZERO, sound: Value::Null };
        let mut spans = Vec::new();
        for _ in 0..3 {
            let outcome = bounded::run(&mut stand.ground.stockade(["run", "--", "bash", "-c", &stand.script(CHANGES)]))?;
            let mut wrong = probe::judge_end(&outcome, &[0]);
            if outcome.code() != Some(0) {
                wrong.push(format!("{outcome:?}"));
            }
            let mut tally = Tally::default();
            stand.look(&mut tally, 0, "without a fault", Workspace::Same)?;
            wrong.extend(tally.findings.into_iter().map(|finding| finding.what));
            if !wrong.is_empty() {
                return Err(Failure::Unsound { what: format!("a run as {} is not as it must be", who.name()), told: wrong.join("; ") });
            }
            spans.push(outcome.time);
        }
        spans.sort();
        stand.span = spans.get(1).copied().unwrap_or_default();
        let outcome = bounded::run(&mut stand.ground.stockade(["--json", "run", "--", "true"]))?;
        let told: Value = serde_json::from_str(&outcome.stdout).unwrap_or(Value::Null);
        let unsound = || Failure::Unsound { what: "a run does not say what holds".into(), told: format!("{outcome:?}") };
        stand.sound = told.get("enforcement").cloned().ok_or_else(unsound)?;
        Ok(stand)
    }

    /// The program that says what holds it and then does something.
    pub(crate) fn script(&self, then: &str) -> String {
        probe::script(&self.ground.elsewhere.join("same"), then)
    }

    /// Looks at everything after a round; afterwards the ground is as in the beginning.
    pub(crate) fn look(&self, tally: &mut Tally, round: u64, scene: &str, workspace: Workspace) -> Result<(), Failure> {
        let mut told = self.bench.told.borrow_mut();
        let settled = settle::settle(self.bench.cage, &self.ground, &self.before, &told)?;
        tally.wrong(round, scene, settled.wrong);
        tally.left(round, scene, &settled.left);
        told.extend(settled.left);
        drop(told);
        let after = ground::snapshot(&self.ground.work);
        if after != self.work {
            let wrong = ground::differences(&self.work, &after).into_iter().filter(|told| !may_be(told, &after, workspace));
            tally.wrong(round, scene, wrong.map(|told| format!("the workspace: {told}")));
            self.ground.renew()?;
        }
        let elsewhere = ground::snapshot(&self.ground.elsewhere);
        tally.wrong(round, scene, ground::differences(&self.elsewhere, &elsewhere).into_iter().map(|told| format!("elsewhere: {told}")));
        self.look_at_receipts(tally, round, scene)
    }

    /// Whatever happened, the ledger holds, and every call that began and whose owner is gone has one outcome: the settling ran something, which
    /// closes what was open.
    fn look_at_receipts(&self, tally: &mut Tally, round: u64, scene: &str) -> Result<(), Failure> {
        if !self.ground.state.join("stockade/receipts/ledger.db").exists() {
            return Ok(());
        }
        let checked = bounded::run(&mut self.ground.stockade(["receipts", "verify", "--json"]))?;
        let told: Value = serde_json::from_str(&checked.stdout).unwrap_or(Value::Null);
        // A ledger that was never finished has no receipt yet.
        if told.get("holds") != Some(&Value::Bool(true)) {
            tally.wrong(round, scene, [format!("the receipts do not hold: {checked:?}")]);
        }
        Ok(())
    }

    /// Runs a command of `stockade --json run` under a fault: walled as without it, or refused with a word. Whether it ran.
    pub(crate) fn starve(&self, tally: &mut Tally, round: u64, scene: &str, command: &mut Command) -> Result<Fate, Failure> {
        let outcome = bounded::run(command)?;
        self.starved(tally, round, scene, &outcome)
    }

    /// The same for a run that has ended already.
    pub(crate) fn starved(&self, tally: &mut Tally, round: u64, scene: &str, outcome: &Outcome) -> Result<Fate, Failure> {
        tally.runs += 1;
        let wrong = probe::judge_result(outcome, &self.sound);
        tally.judged(round, scene, outcome, wrong);
        let told: Value = serde_json::from_str(&outcome.stdout).unwrap_or(Value::Null);
        let step = told.pointer("/error/step").and_then(Value::as_str).unwrap_or("not by Stockade").to_owned();
        let ran = told.get("enforcement").is_some();
        tally.phase(if ran { "ran".to_owned() } else { format!("refused: {step}") });
        self.look(tally, round, scene, Workspace::Same)?;
        Ok(if ran && outcome.code() == Some(0) { Fate::Ran } else { Fate::Refused })
    }

    /// What is wrong with a run of `--json` under a fault.
    pub(crate) fn judge_only(&self, outcome: &Outcome) -> Vec<String> {
        probe::judge_result(outcome, &self.sound)
    }

    /// Runs a command of `sandbox create` under a fault: it says an id or why not. Afterwards it is destroyed.
    pub(crate) fn create_and_end(&self, tally: &mut Tally, round: u64, scene: &str, command: &mut Command) -> Result<Fate, Failure> {
        let outcome = bounded::run(command)?;
        self.created(tally, round, scene, &outcome)
    }

    /// The same for one that has ended already.
    pub(crate) fn created(&self, tally: &mut Tally, round: u64, scene: &str, outcome: &Outcome) -> Result<Fate, Failure> {
        tally.runs += 1;
        let made = outcome.code() == Some(0);
        let wrong = if made { Vec::new() } else { probe::judge_end(outcome, &[]) };
        tally.judged(round, scene, outcome, wrong);
        tally.phase(if made { "created" } else { "create refused" });
        self.end_all(tally, round, scene)?;
        self.look(tally, round, scene, Workspace::Same)?;
        Ok(if made { Fate::Ran } else { Fate::Refused })
    }

    /// Sweeps as a later start would, so that a group around everything can be removed.
    pub(crate) fn sweep_before(&self, tally: &mut Tally, round: u64, scene: &str) -> Result<(), Failure> {
        let outcome = bounded::run(&mut self.ground.stockade(["sandbox", "prune"]))?;
        if outcome.code() != Some(0) {
            tally.wrong(round, scene, [format!("a sweep came to {outcome:?}")]);
        }
        Ok(())
    }

    /// Created sandboxes that live on are listed, and can be destroyed.
    pub(crate) fn end_all(&self, tally: &mut Tally, round: u64, scene: &str) -> Result<(), Failure> {
        let end = Instant::now() + LONGEST_START;
        loop {
            let listed = bounded::run(&mut self.ground.stockade(["sandbox", "list", "--json"]))?;
            let value: Value = serde_json::from_str(&listed.stdout).unwrap_or_default();
            let Some(sandboxes) = value.get("sandboxes").and_then(|list| list.as_array()) else {
                tally.wrong(round, scene, [format!("`sandbox list` came to {listed:?}")]);
                return Ok(());
            };
            let mut last = Vec::new();
            for id in sandboxes.iter().filter_map(|sandbox| sandbox.get("sandbox_id")?.as_str()) {
                let destroyed = bounded::run(&mut self.ground.stockade(["sandbox", "destroy", id]))?;
                // One that ended meanwhile without anything to keep is gone by itself.
                if destroyed.code() != Some(0) && !destroyed.stderr.contains("there is no sandbox") {
                    last.push(format!("`sandbox destroy` came to {destroyed:?}"));
                }
            }
            // One whose client was killed may still be starting: then it is not there yet.
            let is_over = last.is_empty() && !processes::all().iter().any(processes::is_supervisor);
            if is_over || Instant::now() > end {
                tally.wrong(round, scene, last);
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What programs do to the workspace: change, delete, add, and plant something protected; and they leave somebody behind.
pub(crate) const CHANGES: &str = "echo after >changed; rm -f deleted; echo new >new; mkdir .claude && echo x >.claude/settings.json; \
     setsid sleep 600 & sleep 0.01; exit 0";

/// Whether a difference is one that the program or an apply may have made.
fn may_be(told: &str, after: &Snapshot, workspace: Workspace) -> bool {
    let name = told.split(' ').next().unwrap_or_default();
    let contents = after.get(std::path::Path::new(name)).map(|(_, _, contents)| contents.as_slice());
    match workspace {
        Workspace::Same => false,
        Workspace::Written => {
            matches!((name, contents), ("changed", Some(b"" | b"after\n")) | ("deleted", None) | ("new", Some(b"" | b"new\n")))
        }
        Workspace::Applied => matches!((name, contents), ("changed", Some(b"after\n")) | ("deleted", None) | ("new", Some(b"new\n"))),
    }
}
