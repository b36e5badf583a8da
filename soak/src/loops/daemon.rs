//! The daemon under load: many callers at once whose runs are allowed, denied, slow, long-winded, cut short, cancelled or crash; then it is told to end
//! while they run; then it is killed, or its launcher is, at any moment, again and again.
//!
//! Afterwards every answer has its receipts, its memory and descriptors are what they were, and nothing of it is left.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::kill_receipts::{Yard, judge};
use super::{Bench, Stand, Workspace};
use crate::arguments::Extent;
use crate::bounded::{End, Outcome, Started};
use crate::failure::Failure;
use crate::ground::{Ground, Who};
use crate::processes;
use crate::random::Random;
use crate::report::Tally;

/// Name of the loop, from which its randomness comes.
const NAME: &str = "daemon";
/// How many runs are under way when it is killed.
const TOGETHER: u64 = 5;
/// How long it may take to be there.
const LONGEST_START: Duration = Duration::from_secs(20);
/// Memory that it may have more at the end than after the first part, in KiB: what an allocator keeps.
const SLACK: u64 = 24 << 10;
/// Descriptors that it may have more when nobody calls: jails that wait come and go.
const SPARE: usize = 24;
/// Permits everything but one program.
const RULES: &str = "permit (principal, action, resource);
@id(\"never\") @reason(\"not this one\")
forbid (principal, action == Stockade::Action::\"exec\", resource == Stockade::Program::\"factor\");\n";

/// How much of it.
struct Amount {
    callers: u64,
    time: Duration,
    kills: u64,
}

pub(super) fn run(bench: &Bench<'_>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let amount = match bench.arguments.extent {
        Extent::Long => Amount { callers: 200, time: Duration::from_mins(5), kills: bench.arguments.rounds },
        Extent::Short => Amount { callers: 16, time: Duration::from_secs(4), kills: 6 },
    };
    for (round, who) in (0_u64..).zip(Who::BOTH) {
        // There before anything is counted.
        let ground = Ground::new(bench.cage, NAME, who)?;
        ground.plant(&ground.home.join(".config/stockade/policy/rules.cedar"), RULES)?;
        let mut yard = Yard::new(Stand::new(bench, NAME, who)?)?;
        all_news(&mut yard)?;
        load(&mut tally, &mut yard, round, &amount, bench)?;
        let kills = bench.arguments.only.map_or(0..amount.kills / 2, |only| only..only + 1);
        for kill in kills {
            killed(&mut tally, &mut yard, kill, &mut Random::of_round(bench.arguments.seed, NAME, kill))?;
            (bench.progress)(&format!("{NAME}: {} runs, {} findings", tally.runs, tally.findings.len()));
        }
    }
    Ok(tally)
}

/// What callers ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Call {
    Allowed,
    Changing,
    Denied,
    Slow,
    LongWinded,
    Late,
    Crashing,
    Told,
    Killed,
}

const CALLS: [Call; 9] =
    [Call::Allowed, Call::Changing, Call::Denied, Call::Slow, Call::LongWinded, Call::Late, Call::Crashing, Call::Told, Call::Killed];

impl Call {
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Allowed => &["--", "true"],
            Self::Changing => &["--", "bash", "-c", "echo after >changed; rm deleted; echo new >new"],
            Self::Denied => &["--", "factor", "6"],
            Self::Slow => &["--", "sleep", "0.2"],
            Self::LongWinded => &["--", "bash", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"],
            Self::Late => &["--timeout", "200ms", "--", "sleep", "600"],
            Self::Crashing => &["--", "bash", "-c", "kill -SEGV $$"],
            Self::Told | Self::Killed => &["--", "bash", "-c", "trap 'exit 9' TERM; setsid sleep 600 & while :; do sleep 0.01; done"],
        }
    }

    /// How it may end.
    fn ends(self) -> &'static [End] {
        match self {
            Self::Allowed | Self::Changing | Self::Slow | Self::LongWinded => &[End::Code(0)],
            Self::Denied => &[End::Code(126)],
            Self::Late => &[End::Code(124)],
            Self::Crashing => &[End::Code(139)],
            // Before the trap is there the signal itself ends it.
            Self::Told => &[End::Code(9), End::Code(143), End::Signal(15)],
            Self::Killed => &[End::Signal(9)],
        }
    }
}

/// What was answered, and how.
#[derive(Default)]
struct Answers {
    /// Receipts of what ran to its end, by the call's kind.
    ran: BTreeMap<String, Call>,
    denied: Vec<String>,
    wrong: Vec<String>,
    ends: BTreeMap<Call, u64>,
}

/// Many callers for a while; it is told to end while they call, and they notice nothing but that it is slower.
fn load(tally: &mut Tally, yard: &mut Yard<'_>, round: u64, amount: &Amount, bench: &Bench<'_>) -> Result<(), Failure> {
    let ground = &yard.stand.ground;
    let scene = format!("as {}, {} callers", ground.who.name(), amount.callers);
    let daemon = start(ground)?;
    let answers = Mutex::new(Answers::default());
    let count = AtomicU64::new(0);
    let end = Instant::now() + amount.time;
    let (early, ended) = std::thread::scope(|scope| {
        for caller in 0..amount.callers {
            let (answers, count) = (&answers, &count);
            let mut random = Random::of_round(bench.arguments.seed, "daemon-caller", round * 1000 + caller);
            scope.spawn(move || {
                while Instant::now() < end {
                    let call = random.pick(Call::Allowed, &CALLS);
                    let outcome = one_call(ground, call, &mut random);
                    count.fetch_add(1, Ordering::Relaxed);
                    note(&mut answers.lock().unwrap_or_else(PoisonError::into_inner), call, outcome);
                }
            });
        }
        std::thread::sleep(amount.time / 4);
        let early = size(daemon.pid());
        std::thread::sleep((amount.time / 2).min(end.saturating_duration_since(Instant::now())));
        let late = size(daemon.pid());
        (early, late)
    });
    let mut wrong = Vec::new();
    if let (Some((early, _)), Some((late, _))) = (early, ended)
        && late > early + SLACK
    {
        wrong.push(format!("its memory grew from {early} to {late} KiB under the same load"));
    }
    // When nobody calls, what is open is what waits.
    let quiet = Instant::now() + LONGEST_START;
    while size(daemon.pid()).is_some_and(|(_, open)| open > SPARE) && Instant::now() < quiet {
        std::thread::sleep(Duration::from_millis(50));
    }
    match size(daemon.pid()) {
        Some((_, open)) if open > SPARE => wrong.push(format!("{open} descriptors are open though nobody calls")),
        Some(_) => {}
        None => wrong.push("it is gone".to_owned()),
    }
    // Told to end while somebody runs: that one finishes.
    let last = Started::new(&mut ground.stockade(["run", "--", "bash", "-c", "sleep 0.5; exit 3"]))?;
    std::thread::sleep(Duration::from_millis(250));
    tell(daemon.pid(), Signal::TERM);
    let (last, daemon) = (last.finish(), daemon.finish());
    if last.end != End::Code(3) || daemon.end != End::Code(0) {
        wrong.push(format!("told to end it came to {:?} and the run to {:?}: {}", daemon.end, last.end, last.stderr));
    }
    let answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
    tally.runs += count.load(Ordering::Relaxed);
    wrong.extend(answers.wrong);
    for (call, many) in answers.ends {
        *tally.phases.entry(format!("{call:?}").to_lowercase()).or_default() += many;
    }
    tally.wrong(round, &scene, wrong);
    yard.stand.look(tally, round, &scene, Workspace::Same)?;
    let news = all_news(yard)?;
    tally.wrong(round, &scene, unwritten(&news, &answers.ran, &answers.denied));
    Ok(())
}

fn one_call(ground: &Ground, call: Call, random: &mut Random) -> Result<Outcome, Failure> {
    let words = ["--json", "run"].iter().chain(call.words());
    let started = Started::new(&mut ground.stockade(words))?;
    let signal = match call {
        Call::Told => Some(Signal::TERM),
        Call::Killed => Some(Signal::KILL),
        _ => None,
    };
    if let Some(signal) = signal {
        std::thread::sleep(Duration::from_millis(random.below(60)));
        tell(started.pid(), signal);
    }
    Ok(started.finish())
}

fn note(answers: &mut Answers, call: Call, outcome: Result<Outcome, Failure>) {
    *answers.ends.entry(call).or_default() += 1;
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(failure) => return answers.wrong.push(failure.to_string()),
    };
    if !call.ends().contains(&outcome.end) {
        let said = outcome.stdout.get(..outcome.stdout.len().min(300)).unwrap_or_default();
        answers.wrong.push(format!("{call:?} came to {:?}: {said} {}", outcome.end, outcome.stderr.trim_end()));
        return;
    }
    let Some(id) = receipt_of(&outcome.stdout) else {
        if !matches!(call, Call::Told | Call::Killed) {
            answers.wrong.push(format!("{call:?} was answered without a receipt"));
        }
        return;
    };
    if call == Call::Denied {
        answers.denied.push(id.to_owned());
    } else {
        answers.ran.insert(id.to_owned(), call);
    }
}

/// Everything that was written since the last look: more than is kept of one command's output.
fn all_news(yard: &mut Yard<'_>) -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    loop {
        let some = yard.news()?;
        if some.is_empty() {
            return Ok(all);
        }
        all.extend(some);
    }
}

/// The receipt that an answer names. Of a long answer only the beginning is kept.
fn receipt_of(said: &str) -> Option<&str> {
    said.split("\"receipt_id\":\"").nth(1)?.split('"').next()
}

/// What was answered and has no receipt, or not the right ones; and what began and never ended.
fn unwritten(news: &[Value], ran: &BTreeMap<String, Call>, denied: &[String]) -> Vec<String> {
    let mut kinds: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for receipt in news {
        let text = |name: &str| receipt.get(name).and_then(Value::as_str).unwrap_or_default();
        *kinds.entry((text("receipt_id"), text("kind"))).or_default() += 1;
    }
    let many = |id: &str, kind: &str| kinds.iter().find(|((of, is), _)| *of == id && *is == kind).map_or(0, |(_, many)| *many);
    let mut wrong = Vec::new();
    for (id, call) in ran {
        let found = (kinds.get(&(id.as_str(), "intent")).copied().unwrap_or(0), kinds.get(&(id.as_str(), "outcome")).copied().unwrap_or(0));
        if found != (1, 1) {
            wrong.push(format!("{call:?} was answered with {id}, which has {} intents and {} outcomes", found.0, found.1));
        }
    }
    wrong.extend(denied.iter().filter(|id| many(id, "denied") != 1).map(|id| format!("the denial {id} is not written once")));
    for (id, kind) in kinds.keys() {
        if *kind == "intent" && kinds.get(&(*id, "outcome")) != Some(&1) {
            wrong.push(format!("the intent {id} has no outcome"));
        }
    }
    wrong
}

/// Runs are under way when the daemon, or its launcher, is killed.
fn killed(tally: &mut Tally, yard: &mut Yard<'_>, round: u64, random: &mut Random) -> Result<(), Failure> {
    let ground = &yard.stand.ground;
    let victim = random.pick("the daemon", &["the daemon", "its launcher"]);
    let scene = format!("as {}, {victim} is killed", ground.who.name());
    let daemon = start(ground)?;
    let name = |number: u64| format!("{round}-{number}");
    let run = |number: u64| {
        let script = format!(": /marks/{}; sleep 0.05; exit 0", name(number));
        Started::new(&mut ground.stockade(["--json", "run", "--", "bash", "-c", &script]))
    };
    let started = (0..TOGETHER).map(run).collect::<Result<Vec<Started>, Failure>>()?;
    std::thread::sleep(Duration::from_millis(random.below(120)));
    let launcher = || processes::all().into_iter().find(|process| process.parent == daemon.pid()).map(|process| process.pid);
    match victim {
        "the daemon" => tell(daemon.pid(), Signal::KILL),
        _ => tell(launcher().unwrap_or_else(|| daemon.pid()), Signal::KILL),
    }
    let mut answered = BTreeMap::new();
    for (number, one) in (0..).zip(started) {
        let outcome = one.finish();
        tally.runs += 1;
        let is_told = matches!(outcome.end, End::Code(0 | 125));
        let wrong = (!is_told).then(|| format!("{:?} with `{}`", outcome.end, outcome.stderr.trim_end()));
        tally.judged(round, &scene, &outcome, wrong.into_iter().collect());
        let told: Value = serde_json::from_str(&outcome.stdout).unwrap_or(Value::Null);
        if let (Some(0), Some(id)) = (outcome.code(), told.get("receipt_id").and_then(Value::as_str)) {
            answered.insert(id.to_owned(), name(number));
        }
    }
    daemon.finish();
    tally.phase(victim);
    yard.stand.look(tally, round, &scene, Workspace::Same)?;
    let news = yard.news()?;
    tally.wrong(round, &scene, judge(&news, &answered, &[]));
    Ok(())
}

/// A daemon that answers.
fn start(ground: &Ground) -> Result<Started, Failure> {
    let base = ground.base.to_string_lossy().into_owned();
    let mut daemon = Started::new(&mut ground.stockade(["serve", "--root", &base]))?;
    let socket = ground.state.join("stockade/run/daemon.sock");
    let end = Instant::now() + LONGEST_START;
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        if daemon.has_ended() || Instant::now() > end {
            return Err(Failure::Unsound { what: "the daemon does not start".into(), told: format!("{:?}", daemon.finish()) });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(daemon)
}

/// Memory of the daemon and its launcher in KiB, and how many descriptors both have open.
fn size(daemon: u32) -> Option<(u64, usize)> {
    let launcher = processes::all().into_iter().find(|process| process.parent == daemon)?.pid;
    let mut all = (0, 0);
    for pid in [daemon, launcher] {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().split(' ').next()?.parse::<u64>().ok()?;
        all.0 += kib;
        // What the launcher holds is of the pool, which is bounded by itself.
        if pid == daemon {
            all.1 = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
        }
    }
    Some(all)
}

fn tell(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        // It may have ended by itself.
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_has_no_receipt_is_told() {
        let of = |id: &str, kind: &str| json!({"receipt_id": id, "kind": kind});
        let ran = BTreeMap::from([("a".to_owned(), Call::Allowed)]);
        let whole = [of("a", "intent"), of("a", "outcome"), of("b", "denied")];
        assert_eq!(unwritten(&whole, &ran, &["b".to_owned()]), Vec::<String>::new());
        assert_eq!(unwritten(&whole[..2], &ran, &["b".to_owned()]).len(), 1, "no denial");
        assert_eq!(unwritten(&whole[1..], &ran, &["b".to_owned()]).len(), 1, "no intent");
        assert_eq!(unwritten(&[of("c", "intent")], &BTreeMap::new(), &[]).len(), 1, "no outcome");
    }
}
