//! So many processes and no more: of a user, or of a control group around everything.
//!
//! The program forks nothing: what a shell does without processes is not the question.

use super::{Bench, Stand, Workspace, until_enough};
use crate::bounded;
use crate::failure::Failure;
use crate::ground::Who;
use crate::report::Tally;

const NAME: &str = "pids";

pub(super) fn run(bench: &Bench<'_>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let words = ["--json", "run", "--", "true"];
    // The kernel counts a user's processes on the whole machine, so this user is nobody else.
    let stand = Stand::new(bench, NAME, Who::Alone)?;
    until_enough(0..40, bench.arguments.extent, |round, amount| {
        let scene = format!("{amount} processes of a user");
        (bench.progress)(&format!("{NAME}: {scene}"));
        let limit = format!("--nproc={amount}:{amount}");
        stand.starve(&mut tally, round, &scene, &mut stand.ground.behind(&["prlimit", &limit], &words))
    })?;
    until_enough(0..40, bench.arguments.extent, |round, amount| {
        let scene = format!("create with {amount} processes of a user");
        let limit = format!("--nproc={amount}:{amount}");
        stand.create_and_end(&mut tally, round, &scene, &mut stand.ground.behind(&["prlimit", &limit], &["sandbox", "create"]))
    })?;
    let stand = Stand::new(bench, NAME, Who::Root)?;
    until_enough(1..40, bench.arguments.extent, |round, amount| {
        let scene = format!("{amount} processes in a control group");
        (bench.progress)(&format!("{NAME}: {scene}"));
        let tight = bench.cage.groups.tight("pids", amount)?;
        let door = tight.door().display().to_string();
        let outcome = bounded::run(&mut stand.ground.behind(&["bash", "-c", "echo 0 >\"$0\"; exec \"$@\"", &door], &words))?;
        tally.runs += 1;
        tally.judged(round, &scene, &outcome, stand.judge_only(&outcome));
        stand.sweep_before(&mut tally, round, &scene)?;
        drop(tight);
        stand.look(&mut tally, round, &scene, Workspace::Same)?;
        Ok(if outcome.code() == Some(0) { super::Fate::Ran } else { super::Fate::Refused })
    })?;
    Ok(tally)
}
