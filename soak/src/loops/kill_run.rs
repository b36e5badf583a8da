//! SIGKILL at a random moment of a `stockade run`: of Stockade, of the guest, of a program.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Bench, CHANGES, Stand, Workspace};
use crate::bounded::{End, Outcome, Started};
use crate::failure::Failure;
use crate::ground::{Ground, Who};
use crate::probe;
use crate::processes::{self, Process};
use crate::random::Random;
use crate::report::Tally;

/// Name of the loop, from which its randomness comes.
const NAME: &str = "kill-run";
/// How long to look for somebody who may never come, and how often.
const LOOK: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_micros(200);

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Stockade,
    Guest,
    Program,
}

/// How the workspace is given to the program.
const MODES: [(&str, &[&str], Workspace); 4] = [
    ("overlay", &["--workspace-mode", "overlay"], Workspace::Same),
    ("ro", &["--workspace-mode", "ro"], Workspace::Same),
    ("rw", &["--workspace-mode", "rw"], Workspace::Written),
    ("apply", &["--workspace-mode", "overlay", "--apply"], Workspace::Applied),
];

pub(super) fn run(bench: &Bench<'_>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let mut root = Stand::new(bench, NAME, Who::Root)?;
    let mut ordinary = Stand::new(bench, NAME, Who::Ordinary)?;
    let rounds = bench.arguments.only.map_or(0..bench.arguments.rounds, |only| only..only + 1);
    for round in rounds {
        let mut random = Random::of_round(bench.arguments.seed, NAME, round);
        let stand = if random.below(2) == 0 { &mut root } else { &mut ordinary };
        one(&mut tally, stand, round, &mut random)?;
        (bench.progress)(&format!("{NAME}: {} rounds, {} findings", round + 1, tally.findings.len()));
    }
    Ok(tally)
}

fn one(tally: &mut Tally, stand: &mut Stand<'_>, round: u64, random: &mut Random) -> Result<(), Failure> {
    let [overlay, others @ ..] = MODES;
    let (mode, flags, workspace) = random.pick(overlay, &others);
    let victim = random.pick(Victim::Stockade, &[Victim::Guest, Victim::Program]);
    let delay = stand.span.mul_f64(random.below(1200) as f64 / 1000.0);
    let scene = format!("as {}, {mode}, {victim:?} after {} µs", stand.ground.who.name(), delay.as_micros());
    let words = ["run"].iter().chain(flags).chain(&["--", "bash", "-c"]).map(|word| (*word).to_owned()).chain([stand.script(CHANGES)]);
    if random.below(4) == 0 {
        // A first start also makes what later ones find. What is not there need not go.
        let _ = std::fs::remove_dir_all(stand.ground.state.join("stockade/guest"));
    }
    let mut started = Started::new(&mut stand.ground.stockade(words))?;
    let phase = strike(&mut started, victim, delay, &stand.ground, random);
    let outcome = started.finish();
    tally.runs += 1;
    tally.phase(format!("{} {phase}", format!("{victim:?}").to_lowercase()));
    let scene = format!("{scene} ({phase})");
    tally.judged(round, &scene, &outcome, judge(&outcome, victim));
    stand.look(tally, round, &scene, workspace)
}

/// Waits, kills, and says where the run was at that moment.
fn strike(started: &mut Started, victim: Victim, delay: Duration, ground: &Ground, random: &mut Random) -> &'static str {
    let pid = started.pid();
    if victim == Victim::Stockade {
        std::thread::sleep(delay);
    } else {
        let end = Instant::now() + LOOK;
        while find(pid, victim, random).is_none() && !started.has_ended() && Instant::now() < end {
            std::thread::sleep(PAUSE);
        }
        std::thread::sleep(delay);
    }
    if started.has_ended() {
        return "after";
    }
    let phase = phase(pid, started, ground);
    let target = if victim == Victim::Stockade { Some(pid) } else { find(pid, victim, random) };
    match target.and_then(|pid| Pid::from_raw(pid.cast_signed())) {
        // It may end this very moment.
        Some(pid) => {
            let _ = kill_process(pid, Signal::KILL);
            phase
        }
        None => "too late",
    }
}

fn find(stockade: u32, victim: Victim, random: &mut Random) -> Option<u32> {
    let all = processes::all();
    match victim {
        Victim::Stockade => Some(stockade),
        Victim::Guest => processes::guest_below(&all, stockade).map(|guest| guest.pid),
        Victim::Program => {
            let programs: Vec<&Process> = processes::programs_below(&all, stockade);
            programs.get(random.below(programs.len() as u64) as usize).map(|program| program.pid)
        }
    }
}

/// Where a run is: what exists of it.
fn phase(pid: u32, started: &Started, ground: &Ground) -> &'static str {
    let all = processes::all();
    let has_run = probe::has_run(&started.said());
    if !processes::programs_below(&all, pid).is_empty() {
        return "running";
    }
    if has_run {
        return "ending";
    }
    if processes::guest_below(&all, pid).is_some() {
        return "building";
    }
    let directories = std::fs::read_dir(ground.sandboxes()).map_or(0, Iterator::count);
    if directories == 0 { "before" } else { "planning" }
}

/// Killed itself, Stockade has no say. Otherwise it must notice, end by itself, and tell.
fn judge(outcome: &Outcome, victim: Victim) -> Vec<String> {
    let mut wrong = probe::judge(&outcome.stdout);
    match (victim, &outcome.end) {
        (Victim::Stockade, End::Signal(9)) | (_, End::Code(0)) | (Victim::Program, End::Code(137)) => {}
        (Victim::Guest | Victim::Program, End::Code(125)) if !outcome.stderr.is_empty() => {}
        (_, end) => wrong.push(format!("{end:?} with `{}`", outcome.stderr.trim_end())),
    }
    wrong
}
