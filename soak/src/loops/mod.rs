//! The loops, each one fault, and what they share: a ground that is known to work, and the look at it after every round.

mod kill_created;
mod kill_run;

use std::cell::RefCell;
use std::time::Duration;

use crate::arguments::Arguments;
use crate::bounded::{self, Outcome};
use crate::cage::Cage;
use crate::census::{Census, Left};
use crate::failure::Failure;
use crate::ground::{self, Ground, Snapshot, Who};
use crate::report::Tally;
use crate::{probe, settle};

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
}

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
        let mut stand = Self { bench, ground, before, work, elsewhere, span: Duration::ZERO };
        let mut spans = Vec::new();
        for _ in 0..3 {
            let outcome = bounded::run(&mut stand.ground.stockade(["run", "--", "bash", "-c", &stand.script(CHANGES)]))?;
            let mut wrong = probe::judge_refusal(&outcome, &[0]);
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
        Ok(())
    }

    /// Counts a run's end and what is wrong with it.
    pub(crate) fn judge(&self, tally: &mut Tally, round: u64, scene: &str, outcome: &Outcome, wrong: Vec<String>) {
        tally.end(outcome.name());
        tally.wrong(round, scene, wrong);
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
        Workspace::Written => matches!(
            (name, contents),
            ("changed", Some(b"" | b"after\n")) | ("deleted", None) | ("new", Some(b"" | b"new\n"))
        ),
        Workspace::Applied => matches!((name, contents), ("changed", Some(b"after\n")) | ("deleted", None) | ("new", Some(b"new\n"))),
    }
}
