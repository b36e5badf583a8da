//! SIGKILL at a random moment of a `stockade agent run`: of Stockade, of its helpers (egress, broker), of the guest.
//!
//! The agent makes file after file, and says so after each. Whatever it said it made must be there afterwards: listed, shown, and brought back
//! whole by `agent apply`, though a sweep came between.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Bench, Stand, Workspace};
use crate::bounded::{self, End, Outcome, Started};
use crate::failure::Failure;
use crate::ground::Who;
use crate::probe;
use crate::processes;
use crate::random::Random;
use crate::report::Tally;

/// Name of the loop, from which its randomness comes.
const NAME: &str = "kill-agent";
/// How many files an agent makes.
const FILES: usize = 40;
/// How long to look for somebody who may never come, and how often.
const LOOK: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_micros(200);
/// How long everything may take to go.
const PATIENCE: Duration = Duration::from_secs(10);
/// A key, and a model that is nowhere: enough for egress and a broker to be started.
const KEY: [(&str, &str); 2] = [
    ("ANTHROPIC_API_KEY", "sk-ant-api03-R3alK3yOfTheSoak-aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6AA"),
    ("ANTHROPIC_BASE_URL", "http://127.0.0.1:9"),
];

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Stockade,
    Helper,
    Guest,
}

pub(super) fn run(bench: &Bench<'_>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let root = Yard::new(Stand::new(bench, NAME, Who::Root)?)?;
    let ordinary = Yard::new(Stand::new(bench, NAME, Who::Ordinary)?)?;
    // Each takes several times as long as a plain run.
    let rounds = bench.arguments.only.map_or(0..bench.arguments.rounds.div_ceil(2), |only| only..only + 1);
    for round in rounds {
        let mut random = Random::of_round(bench.arguments.seed, NAME, round);
        let yard = if random.below(2) == 0 { &root } else { &ordinary };
        one(&mut tally, yard, round, &mut random)?;
        (bench.progress)(&format!("{NAME}: {} rounds, {} findings", round + 1, tally.findings.len()));
    }
    Ok(tally)
}

/// A ground, and how long an agent takes there without a fault.
struct Yard<'a> {
    stand: Stand<'a>,
    span: Duration,
}

impl<'a> Yard<'a> {
    fn new(stand: Stand<'a>) -> Result<Self, Failure> {
        let mut yard = Self { stand, span: Duration::ZERO };
        let outcome = yard.agent(0, Helpers::Some)?.finish();
        let mut wrong = Vec::new();
        if outcome.code() != Some(0) || made(&outcome.stdout) != FILES {
            wrong.push(format!("{outcome:?}"));
        }
        wrong.extend(yard.lost(0, FILES)?);
        yard.clear()?;
        if !wrong.is_empty() {
            return Err(Failure::Unsound { what: "an agent without a fault is not as it must be".into(), told: wrong.join("; ") });
        }
        yard.span = outcome.time;
        Ok(yard)
    }

    /// Starts an agent.
    fn agent(&self, round: u64, helpers: Helpers) -> Result<Started, Failure> {
        let work = format!(
            "for i in $(seq {FILES}); do echo whole-$i >half && mv half made-$i && echo made $i; done; setsid sleep 600 & sleep 0.01; exit 0"
        );
        let (name, script) = (name(round), self.stand.script(&work));
        let profile = if helpers == Helpers::Some { "claude" } else { "generic" };
        let mut command = self.stand.ground.stockade(["agent", "run", "--profile", profile, "--name", &name, "--", "bash", "-c", &script]);
        Started::new(command.envs(KEY))
    }

    /// What of the files that an agent said it made is not there.
    fn lost(&self, round: u64, count: usize) -> Result<Vec<String>, Failure> {
        let ground = &self.stand.ground;
        let verb = |words: &[&str]| bounded::run(&mut ground.stockade(words));
        // A later start sweeps what belongs to nobody. An agent's work is not that.
        let mut wrong = Vec::new();
        let swept = verb(&["sandbox", "prune"])?;
        if swept.code() != Some(0) {
            wrong.push(format!("a sweep came to {swept:?}"));
        }
        let listed = verb(&["agent", "list", "--json"])?;
        let value: Value = serde_json::from_str(&listed.stdout).unwrap_or_default();
        let name = name(round);
        let agents = value.get("agents").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let agent = agents.iter().find(|agent| agent.get("name").and_then(Value::as_str) == Some(&name));
        if agent.is_some_and(|agent| agent.get("running") != Some(&Value::Bool(false))) {
            wrong.push(format!("an agent that nobody runs is said to run: {agent:?}"));
        }
        if count == 0 {
            return Ok(wrong);
        }
        let waiting = agent.and_then(|agent| agent.get("waiting_changes")).and_then(Value::as_u64).unwrap_or_default();
        if waiting < count as u64 {
            wrong.push(format!("{count} files were made and `agent list` says {waiting}: {agent:?}"));
        }
        let shown = verb(&["agent", "diff", &name, "--stat"])?;
        if !shown.stdout.contains(&format!("made-{count}")) {
            wrong.push(format!("`agent diff` does not show made-{count}: {shown:?}"));
        }
        let applied = verb(&["agent", "apply", &name])?;
        if applied.code() != Some(0) {
            wrong.push(format!("`agent apply` came to {applied:?}"));
        }
        for number in 1..=count {
            let contents = fs::read_to_string(ground.work.join(format!("made-{number}"))).unwrap_or_default();
            if contents != format!("whole-{number}\n") {
                wrong.push(format!("made-{number} came back as {contents:?}"));
            }
        }
        Ok(wrong)
    }

    /// Makes workspace and roll what they were: what ended agents came to is kept for a week on purpose.
    fn clear(&self) -> Result<(), Failure> {
        self.stand.ground.renew()?;
        let roll = self.stand.ground.state.join("stockade/agents");
        match fs::remove_dir_all(&roll) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Failure::at("removing", &roll)(error)),
            _ => Ok(()),
        }
    }
}

/// Whether an agent has a way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Helpers {
    Some,
    None,
}

fn name(round: u64) -> String {
    format!("agent-{round}")
}

/// How many files an agent said it made.
fn made(said: &str) -> usize {
    said.lines().filter_map(|line| line.strip_prefix("made ")?.parse().ok()).max().unwrap_or_default()
}

fn one(tally: &mut Tally, yard: &Yard<'_>, round: u64, random: &mut Random) -> Result<(), Failure> {
    let victim = random.pick(Victim::Stockade, &[Victim::Stockade, Victim::Guest, Victim::Helper]);
    let helpers = if victim == Victim::Helper || random.below(2) == 0 { Helpers::Some } else { Helpers::None };
    let delay = yard.span.mul_f64(random.below(if victim == Victim::Stockade { 1200 } else { 700 }) as f64 / 1000.0);
    let mut started = yard.agent(round, helpers)?;
    let phase = strike(&mut started, victim, delay, random);
    let outcome = started.finish();
    let count = made(&outcome.stdout);
    tally.runs += 1;
    let when = if phase != "killed" {
        phase
    } else if count == 0 {
        "before work"
    } else if count < FILES {
        "at work"
    } else {
        "ending"
    };
    tally.phase(format!("{} {when}", format!("{victim:?}").to_lowercase()));
    let scene = format!("as {}, {victim:?} after {} µs, {count} files ({phase})", yard.stand.ground.who.name(), delay.as_micros());
    tally.judged(round, &scene, &outcome, judge(&outcome, victim));
    quiet();
    tally.wrong(round, &scene, yard.lost(round, count)?);
    yard.clear()?;
    yard.stand.look(tally, round, &scene, Workspace::Same)
}

/// Waits, kills, and says whether there was somebody to kill.
fn strike(started: &mut Started, victim: Victim, delay: Duration, random: &mut Random) -> &'static str {
    let pid = started.pid();
    if victim != Victim::Stockade {
        let end = Instant::now() + LOOK;
        while find(pid, victim, random).is_none() && !started.has_ended() && Instant::now() < end {
            std::thread::sleep(PAUSE);
        }
    }
    std::thread::sleep(delay);
    if started.has_ended() {
        return "after";
    }
    match find(pid, victim, random).and_then(|pid| Pid::from_raw(pid.cast_signed())) {
        // It may end this very moment.
        Some(pid) => {
            let _ = kill_process(pid, Signal::KILL);
            "killed"
        }
        None => "too late",
    }
}

fn find(stockade: u32, victim: Victim, random: &mut Random) -> Option<u32> {
    let all = processes::all();
    match victim {
        Victim::Stockade => Some(stockade),
        Victim::Guest => processes::guest_below(&all, stockade).map(|guest| guest.pid),
        Victim::Helper => {
            let is_helper = |process: &&processes::Process| {
                process.parent == stockade
                    && !process.is_zombie
                    && ["exe egress]", "exe broker]"].iter().any(|end| process.command.ends_with(end))
            };
            let helpers: Vec<u32> = all.iter().filter(is_helper).map(|process| process.pid).collect();
            helpers.get(random.below(helpers.len() as u64) as usize).copied()
        }
    }
}

/// Waits until nobody is left who could still write.
fn quiet() {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        processes::reap();
        if processes::all().is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Killed itself, Stockade has no say. Otherwise it must notice, end by itself, and tell.
fn judge(outcome: &Outcome, victim: Victim) -> Vec<String> {
    let mut wrong = probe::judge(&outcome.stdout);
    match (victim, &outcome.end) {
        (Victim::Stockade, End::Signal(9)) | (_, End::Code(0)) => {}
        (Victim::Guest | Victim::Helper, End::Code(125)) if !outcome.stderr.is_empty() => {}
        (_, end) => wrong.push(format!("{end:?} with `{}`", outcome.stderr.trim_end())),
    }
    wrong
}
