//! SIGKILL at a random moment in the life of a created sandbox: while it is made, used or destroyed; of the client that asks for it, of
//! its supervisor, of its guest, of a program in it.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Bench, CHANGES, Stand, Workspace};
use crate::bounded::{self, End, Outcome, Started};
use crate::failure::Failure;
use crate::ground::Who;
use crate::probe;
use crate::processes;
use crate::random::Random;
use crate::report::Tally;

/// Name of the loop, from which its randomness comes.
const NAME: &str = "kill-created";
/// How long to look for somebody who may never come, and how often.
const LOOK: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_micros(200);

/// What is done to the sandbox when the kill comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Create,
    Exec,
    Destroy,
}

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Client,
    Supervisor,
    Guest,
    Program,
}

/// How the workspace is given to the sandbox.
const MODES: [(&str, Workspace); 3] = [("overlay", Workspace::Same), ("ro", Workspace::Same), ("rw", Workspace::Written)];

pub(super) fn run(bench: &Bench<'_>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let mut root = Yard::new(Stand::new(bench, NAME, Who::Root)?)?;
    let mut ordinary = Yard::new(Stand::new(bench, NAME, Who::Ordinary)?)?;
    let rounds = bench.arguments.only.map_or(0..bench.arguments.rounds.div_ceil(2), |only| only..only + 1);
    for round in rounds {
        let mut random = Random::of_round(bench.arguments.seed, NAME, round);
        let yard = if random.below(2) == 0 { &mut root } else { &mut ordinary };
        one(&mut tally, yard, round, &mut random)?;
        (bench.progress)(&format!("{NAME}: {} rounds, {} findings", round + 1, tally.findings.len()));
    }
    Ok(tally)
}

/// A ground, and how long each step takes there without a fault.
struct Yard<'a> {
    stand: Stand<'a>,
    create: Duration,
    exec: Duration,
    destroy: Duration,
}

impl<'a> Yard<'a> {
    fn new(stand: Stand<'a>) -> Result<Self, Failure> {
        let ground = &stand.ground;
        let made = bounded::run(&mut ground.stockade(["sandbox", "create"]))?;
        let id = made.stdout.trim();
        let used = bounded::run(&mut ground.stockade(["sandbox", "exec", id, "--", "bash", "-c", &stand.script(CHANGES)]))?;
        let gone = bounded::run(&mut ground.stockade(["sandbox", "destroy", id]))?;
        if [&made, &used, &gone].iter().any(|outcome| outcome.code() != Some(0)) {
            return Err(Failure::Unsound { what: "a created sandbox does not work".into(), told: format!("{made:?} {used:?} {gone:?}") });
        }
        Ok(Self { create: made.time, exec: used.time, destroy: gone.time, stand })
    }
}

fn one(tally: &mut Tally, yard: &mut Yard<'_>, round: u64, random: &mut Random) -> Result<(), Failure> {
    let [overlay, others @ ..] = MODES;
    let (mode, workspace) = random.pick(overlay, &others);
    let step = random.pick(Step::Create, &[Step::Exec, Step::Destroy]);
    let victim = random.pick(Victim::Client, &[Victim::Supervisor, Victim::Guest, Victim::Program]);
    let span = match step {
        Step::Create => yard.create,
        Step::Exec => yard.exec,
        Step::Destroy => yard.destroy,
    };
    // Who has to be found first has been there for a while when it is found.
    let delay = span.mul_f64(random.below(if victim == Victim::Client { 1200 } else { 700 }) as f64 / 1000.0);
    let stand = &mut yard.stand;
    let scene = format!("as {}, {mode}, {step:?}, {victim:?} after {} µs", stand.ground.who.name(), delay.as_micros());
    let create = ["sandbox", "create", "--workspace-mode", mode];
    let mut id = String::new();
    if step != Step::Create {
        let made = bounded::run(&mut stand.ground.stockade(create))?;
        made.stdout.trim().clone_into(&mut id);
        if made.code() != Some(0) {
            tally.wrong(round, &scene, [format!("before the fault: {made:?}")]);
            return stand.look(tally, round, &scene, workspace);
        }
    }
    let script = stand.script(CHANGES);
    let words: Vec<&str> = match step {
        Step::Create => create.to_vec(),
        Step::Exec => vec!["sandbox", "exec", &id, "--", "bash", "-c", &script],
        Step::Destroy => vec!["sandbox", "destroy", &id],
    };
    if step == Step::Destroy {
        // So that there is something to destroy, and somebody in it.
        let used = bounded::run(&mut stand.ground.stockade(["sandbox", "exec", &id, "--", "bash", "-c", &script]))?;
        tally.wrong(round, &scene, probe::judge_end(&used, &[0]));
    }
    let mut started = Started::new(&mut stand.ground.stockade(words))?;
    let hit = strike(&mut started, victim, delay, random);
    let outcome = started.finish();
    tally.runs += 1;
    tally.phase(format!("{} {} {hit}", format!("{step:?}").to_lowercase(), format!("{victim:?}").to_lowercase()));
    tally.judged(round, &scene, &outcome, judge(&outcome, victim));
    stand.end_all(tally, round, &scene)?;
    stand.look(tally, round, &scene, workspace)
}

/// Waits and kills; whether the victim was there.
fn strike(started: &mut Started, victim: Victim, delay: Duration, random: &mut Random) -> &'static str {
    let client = started.pid();
    if victim != Victim::Client {
        let end = Instant::now() + LOOK;
        while find(client, victim, random).is_none() && !started.has_ended() && Instant::now() < end {
            std::thread::sleep(PAUSE);
        }
    }
    std::thread::sleep(delay);
    let phase = if started.has_ended() { "after" } else { "during" };
    let target = if victim == Victim::Client && phase == "after" { None } else { find(client, victim, random) };
    match target.and_then(|pid| Pid::from_raw(pid.cast_signed())) {
        // It may end this very moment.
        Some(pid) => {
            let _ = kill_process(pid, Signal::KILL);
            phase
        }
        None => "too late",
    }
}

fn find(client: u32, victim: Victim, random: &mut Random) -> Option<u32> {
    let all = processes::all();
    // There is one sandbox at a time, and its supervisor is the only process of that name.
    let supervisor = all.iter().find(|process| processes::is_supervisor(process)).map(|process| process.pid);
    match victim {
        Victim::Client => Some(client),
        Victim::Supervisor => supervisor,
        Victim::Guest => processes::guest_below(&all, supervisor?).map(|guest| guest.pid),
        Victim::Program => {
            let programs = processes::programs_below(&all, supervisor?);
            programs.get(random.below(programs.len() as u64) as usize).map(|program| program.pid)
        }
    }
}

/// A client that was not killed itself must end by itself; it may say that the sandbox is gone.
fn judge(outcome: &Outcome, victim: Victim) -> Vec<String> {
    let mut wrong = probe::judge(&outcome.stdout);
    match (victim, &outcome.end) {
        (Victim::Client, End::Signal(9)) | (_, End::Code(0)) | (Victim::Program, End::Code(137)) => {}
        (Victim::Supervisor | Victim::Guest | Victim::Program, End::Code(125)) if !outcome.stderr.is_empty() => {}
        (_, end) => wrong.push(format!("{end:?} with `{}`", outcome.stderr.trim_end())),
    }
    wrong
}
