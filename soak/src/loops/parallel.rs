//! Many sandboxes at once, runs and created ones, some of them killed on the way.

use rustix::process::{Pid, Signal, kill_process};

use super::{Bench, Stand, Workspace};
use crate::arguments::Extent;
use crate::bounded::{self, End, Started};
use crate::failure::Failure;
use crate::ground::Who;
use crate::random::Random;
use crate::report::Tally;
use crate::{probe, processes};

/// Name of the loop, from which its randomness comes.
const NAME: &str = "parallel";

pub(super) fn run(bench: &Bench<'_>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let count = match bench.arguments.extent {
        Extent::Long => 50,
        Extent::Short => 10,
    };
    for (round, who) in (0_u64..).zip(Who::BOTH) {
        let stand = Stand::new(bench, NAME, who)?;
        let mut random = Random::of_round(bench.arguments.seed, NAME, round);
        runs(&mut tally, &stand, round, count, &mut random)?;
        created(&mut tally, &stand, round, count, &mut random)?;
        (bench.progress)(&format!("{NAME}: {} runs, {} findings", tally.runs, tally.findings.len()));
    }
    Ok(tally)
}

/// Runs at once; every fifth is killed.
fn runs(tally: &mut Tally, stand: &Stand<'_>, round: u64, count: u64, random: &mut Random) -> Result<(), Failure> {
    let scene = format!("as {}, {count} runs at once", stand.ground.who.name());
    let script = |number: u64| stand.script(&format!("echo {number} >new; sleep 0.3; exit {number}"));
    let started: Result<Vec<Started>, Failure> =
        (0..count).map(|number| Started::new(&mut stand.ground.stockade(["run", "--", "bash", "-c", &script(number)]))).collect();
    let started = started?;
    std::thread::sleep(stand.span.mul_f64(random.below(2000) as f64 / 1000.0));
    let killed: Vec<u32> = started.iter().step_by(5).map(Started::pid).collect();
    for pid in &killed {
        kill(*pid);
    }
    for (number, one) in (0_i32..).zip(started) {
        let may_be_killed = killed.contains(&one.pid());
        let outcome = one.finish();
        tally.runs += 1;
        let mut wrong = probe::judge(&outcome.stdout);
        if outcome.end != End::Code(number) && !(may_be_killed && outcome.end == End::Signal(9)) {
            wrong.push(format!("{:?} instead of {number}: {}", outcome.end, outcome.stderr.trim_end()));
        }
        tally.phase(if outcome.end == End::Signal(9) { "run killed" } else { "run ended" });
        tally.wrong(round, &scene, wrong);
    }
    stand.look(tally, round, &scene, Workspace::Same)
}

/// Created at once, used at once, every fifth supervisor killed, the rest destroyed at once.
fn created(tally: &mut Tally, stand: &Stand<'_>, round: u64, count: u64, random: &mut Random) -> Result<(), Failure> {
    let scene = format!("as {}, {count} created at once", stand.ground.who.name());
    let started: Result<Vec<Started>, Failure> =
        (0..count).map(|_| Started::new(&mut stand.ground.stockade(["sandbox", "create"]))).collect();
    let mut ids = Vec::new();
    for one in started? {
        let outcome = one.finish();
        tally.runs += 1;
        if outcome.code() == Some(0) {
            ids.push(outcome.stdout.trim().to_owned());
        } else {
            tally.wrong(round, &scene, [format!("create came to {outcome:?}")]);
        }
    }
    let script = stand.script("echo new >new; sleep 0.2; exit 7");
    let started: Result<Vec<Started>, Failure> =
        ids.iter().map(|id| Started::new(&mut stand.ground.stockade(["sandbox", "exec", id, "--", "bash", "-c", &script]))).collect();
    let started = started?;
    std::thread::sleep(stand.span.mul_f64(random.below(2000) as f64 / 1000.0));
    let supervisors: Vec<u32> = processes::all().iter().filter(|p| processes::is_supervisor(p)).map(|p| p.pid).collect();
    for pid in supervisors.iter().step_by(5) {
        kill(*pid);
    }
    for one in started {
        let outcome = one.finish();
        let wrong = probe::judge_end(&outcome, &[7]);
        tally.phase(if outcome.code() == Some(7) { "exec ended" } else { "exec cut short" });
        tally.wrong(round, &scene, wrong);
    }
    let listed = bounded::run(&mut stand.ground.stockade(["sandbox", "list"]))?;
    if listed.code() != Some(0) {
        tally.wrong(round, &scene, [format!("list came to {listed:?}")]);
    }
    stand.end_all(tally, round, &scene)?;
    stand.look(tally, round, &scene, Workspace::Same)
}

fn kill(pid: u32) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::KILL);
    }
}
