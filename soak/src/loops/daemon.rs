//! The daemon under load: many callers at once whose runs are allowed, denied, slow, long-winded, cut short, cancelled or crash; then it is told to end
//! while they run; then it is killed, or its launcher is, at any moment, again and again. Some callers do without it, beside it: the ledger is
//! everybody's.
//!
//! Afterwards every answer has its receipts, and so has whatever ran without an answer; the daemon's memory and descriptors are what they were, and nothing of
//! it is left. That receipts are whole is stated by itself, with numbers, whatever else was found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::kill_receipts::{Yard, judge};
use super::{Bench, Stand, Workspace};
use crate::arguments::Extent;
use crate::bounded::{DEADLINE, End, Outcome, Started};
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
/// One in so many callers does not ask the daemon.
const BESIDE: u64 = 4;
/// What a call may take longer for each other caller. All share the processors and the line at the ledger, so one call waits for a part of the work of
/// each; on two processors, as many as there are need about a tenth of this. One that waits in line is slow, and does not hang.
const FOR_EACH_OTHER: Duration = Duration::from_secs(1);
/// What the daemon's runs say with `--verbose`.
const SERVED: &str = "the daemon has a sandbox ready";
/// The load comes in so many parts. What is left of it is measured between them: under load it depends on what is under way at that moment.
const PARTS: u32 = 3;
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

impl Amount {
    /// Whether it lasts long enough for its memory to say anything.
    fn judges_memory(&self) -> bool {
        self.time >= Duration::from_mins(1)
    }

    /// How long a call may take. One that takes longer hangs.
    fn patience(&self) -> Duration {
        DEADLINE + FOR_EACH_OTHER * u32::try_from(self.callers).unwrap_or(u32::MAX)
    }
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
    /// What is run. `mark` is this call's alone.
    fn words(self, mark: &str) -> Vec<String> {
        let script = |script: &str| ["--", "bash", "-c", script].map(str::to_owned).to_vec();
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match self {
            Self::Allowed => words(&["--", "true"]),
            Self::Changing => script("echo after >changed; rm deleted; echo new >new"),
            Self::Denied => words(&["--", "factor", "6"]),
            Self::Slow => words(&["--", "sleep", "0.2"]),
            Self::LongWinded => script("head -c 3000000 /dev/zero | tr '\\0' x"),
            Self::Late => words(&["--timeout", "200ms", "--", "sleep", "600"]),
            Self::Crashing => script("kill -SEGV $$"),
            Self::Told | Self::Killed => {
                script(&format!("echo {mark}; trap 'exit 9' TERM; setsid sleep 600 & while :; do sleep 0.01; done"))
            }
        }
    }

    /// Whether it is ended from outside. It says its mark then, as soon as it runs: there may be no answer that names a receipt.
    fn is_ended(self) -> bool {
        matches!(self, Self::Told | Self::Killed)
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
    /// Marks of what ran and was ended from outside.
    marks: BTreeSet<String>,
    wrong: Vec<(String, String)>,
    ends: BTreeMap<Call, u64>,
    /// How many ran that had asked the daemon, and how many of them it served.
    asked: u64,
    served: u64,
    times: Vec<Duration>,
}

/// Whom a caller asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Daemon,
    Beside,
}

/// Many callers for a while, in parts between which nobody calls; then it is told to end while somebody runs, who notices nothing.
fn load(tally: &mut Tally, yard: &mut Yard<'_>, round: u64, amount: &Amount, bench: &Bench<'_>) -> Result<(), Failure> {
    let ground = &yard.stand.ground;
    let scene = format!("as {}, {} callers", ground.who.name(), amount.callers);
    let daemon = start(ground)?;
    let answers = Mutex::new(Answers::default());
    let count = AtomicU64::new(0);
    let (mut wrong, mut sizes) = (Vec::new(), Vec::new());
    for part in 0..PARTS {
        let end = Instant::now() + amount.time / PARTS;
        std::thread::scope(|scope| {
            for caller in 0..amount.callers {
                let (answers, count) = (&answers, &count);
                let number = (round * u64::from(PARTS) + u64::from(part)) * 1000 + caller;
                let mut random = Random::of_round(bench.arguments.seed, "daemon-caller", number);
                let door = if caller % BESIDE == BESIDE - 1 { Door::Beside } else { Door::Daemon };
                scope.spawn(move || {
                    while Instant::now() < end {
                        let call = random.pick(Call::Allowed, &CALLS);
                        let mark = format!("began-{round}-{caller}-{}.", count.fetch_add(1, Ordering::Relaxed));
                        let outcome = one_call(ground, call, door, &mark, amount.patience(), &mut random);
                        note(&mut answers.lock().unwrap_or_else(PoisonError::into_inner), call, door, &mark, outcome);
                    }
                });
            }
        });
        // What callers that were killed left behind is this process's to bury.
        processes::reap();
        // When nobody calls, what is open is what waits.
        let quiet = Instant::now() + LONGEST_START;
        while size(daemon.pid()).is_some_and(|(_, open)| open > SPARE) && Instant::now() < quiet {
            std::thread::sleep(Duration::from_millis(50));
        }
        match size(daemon.pid()) {
            Some((_, open)) if open > SPARE => {
                wrong.push(format!("descriptors are open though nobody calls: {open}, {}", open_files(daemon.pid())));
            }
            Some(_) => {}
            None => wrong.push("it is gone".to_owned()),
        }
        sizes.extend(size(daemon.pid()).map(|(kib, _)| kib));
    }
    // A short load ends before everything that waits is there; what it says of memory is printed, and judged in the long form alone.
    if let (Some(first), Some(last)) = (sizes.first(), sizes.last())
        && amount.judges_memory()
        && *last > first + SLACK
    {
        wrong.push(format!("its memory grew under the same load, measured when nobody called, in KiB: {sizes:?}"));
    }
    tally.proofs.push(format!("{scene}: the daemon and its launcher had {sizes:?} KiB after each part, when nobody called"));
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
    // Each asked for its own reason to be here: a load that the daemon never saw proves nothing about it.
    if answers.served < answers.asked / 2 {
        wrong.push(format!("the daemon served {} of {} runs that asked it", answers.served, answers.asked));
    }
    for (call, many) in &answers.ends {
        *tally.phases.entry(format!("{call:?}").to_lowercase()).or_default() += many;
    }
    *tally.phases.entry("served".into()).or_default() += answers.served;
    tally.wrong(round, &scene, wrong);
    for (kind, what) in &answers.wrong {
        tally.wrong_as(round, &scene, kind.clone(), what.clone());
    }
    tally.proofs.push(format!("{scene}: {}", spans(&answers.times)));
    let before = tally.findings.len();
    yard.stand.look(tally, round, &scene, Workspace::Same)?;
    let holds = !tally.findings.iter().skip(before).any(|finding| finding.what.starts_with("the receipts do not hold"));
    let news = all_news(yard)?;
    let lost = unwritten(&news, &answers);
    let many = |kind: &str| news.iter().filter(|receipt| receipt.get("kind").and_then(Value::as_str) == Some(kind)).count();
    tally.proofs.push(format!(
        "{scene}: {} receipts ({} intents, {} outcomes, {} denials); named by answers {} runs and {} denials, and {} ran without an answer: {} lost or \
         doubled; the chain {}",
        news.len(),
        many("intent"),
        many("outcome"),
        many("denied"),
        answers.ran.len(),
        answers.denied.len(),
        answers.marks.len(),
        lost.len(),
        if holds { "holds" } else { "DOES NOT HOLD" },
    ));
    for what in lost {
        tally.wrong_as(round, &scene, "receipts lost or doubled".into(), what);
    }
    Ok(())
}

/// How long calls took.
fn spans(times: &[Duration]) -> String {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = |part: f64| times.get(((times.len() as f64 - 1.0) * part).max(0.0) as usize).copied().unwrap_or_default().as_secs_f64();
    format!("{} calls took {:.1} s in the middle, {:.1} s for 99 in 100, {:.1} s at most", times.len(), at(0.5), at(0.99), at(1.0))
}

fn one_call(ground: &Ground, call: Call, door: Door, mark: &str, patience: Duration, random: &mut Random) -> Result<Outcome, Failure> {
    // The thin client knows a run by its first word; with another word before it, it is none of the daemon's.
    let mut words = match door {
        Door::Daemon => vec!["run".to_owned(), "--verbose".to_owned()],
        Door::Beside => vec!["--verbose".to_owned(), "run".to_owned()],
    };
    if !call.is_ended() {
        words.push("--json".to_owned());
    }
    let started = Started::new(&mut ground.stockade(words.into_iter().chain(call.words(mark))))?;
    let signal = match call {
        Call::Told => Some(Signal::TERM),
        Call::Killed => Some(Signal::KILL),
        _ => None,
    };
    if let Some(signal) = signal {
        std::thread::sleep(Duration::from_millis(random.below(60)));
        tell(started.pid(), signal);
    }
    Ok(started.finish_within(patience))
}

fn note(answers: &mut Answers, call: Call, door: Door, mark: &str, outcome: Result<Outcome, Failure>) {
    *answers.ends.entry(call).or_default() += 1;
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(failure) => return answers.wrong.push(("not started".into(), failure.to_string())),
    };
    answers.times.push(outcome.time);
    // Whatever came of it.
    if call.is_ended() && outcome.stdout.contains(mark) {
        answers.marks.insert(mark.to_owned());
    }
    if let Some(id) = receipt_of(&outcome.stdout) {
        if call == Call::Denied {
            answers.denied.push(id.to_owned());
        } else {
            answers.ran.insert(id.to_owned(), call);
        }
    } else if !call.is_ended() && call.ends().contains(&outcome.end) {
        answers.wrong.push(("answered without a receipt".into(), format!("{call:?} was answered without a receipt")));
    }
    if door == Door::Daemon && !call.is_ended() && call != Call::Denied {
        answers.asked += 1;
        answers.served += u64::from(outcome.stderr.contains(SERVED));
    }
    if !call.ends().contains(&outcome.end) {
        let said = outcome.stdout.get(..outcome.stdout.len().min(300)).unwrap_or_default();
        let what = format!(
            "{call:?} ({door:?}) came to {:?} after {:.1} s: {said} {}",
            outcome.end,
            outcome.time.as_secs_f64(),
            outcome.stderr.trim_end()
        );
        answers.wrong.push((format!("{} ({door:?})", kind_of(&outcome)), what));
    }
}

/// What kind of wrong end it is: Stockade's own word for it, where there is one.
fn kind_of(outcome: &Outcome) -> String {
    let told: Value = serde_json::from_str(&outcome.stdout).unwrap_or(Value::Null);
    let text = |pointer: &str| told.pointer(pointer).and_then(Value::as_str);
    match (&outcome.end, text("/error/step"), text("/error/message")) {
        (End::Hung(_), ..) => "hung".into(),
        (_, Some(step), Some(message)) => format!("refused: {step}: {message}"),
        (end, ..) => format!("came to {end:?}: {}", outcome.stderr.lines().find(|line| line.contains("error")).unwrap_or_default()),
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

/// What was answered, or ran, and has no receipt, or not the right ones; and what began and never ended.
fn unwritten(news: &[Value], answers: &Answers) -> Vec<String> {
    let mut kinds: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut marked: BTreeMap<&str, u64> = BTreeMap::new();
    for receipt in news {
        let text = |name: &str| receipt.get(name).and_then(Value::as_str).unwrap_or_default();
        *kinds.entry((text("receipt_id"), text("kind"))).or_default() += 1;
        if text("kind") == "intent" {
            *marked.entry(mark_of(receipt)).or_default() += 1;
        }
    }
    let many = |id: &str, kind: &str| kinds.get(&(id, kind)).copied().unwrap_or(0);
    let mut wrong = Vec::new();
    for (id, call) in &answers.ran {
        let found = (many(id, "intent"), many(id, "outcome"));
        if found != (1, 1) {
            wrong.push(format!("{call:?} was answered with {id}, which has {} intents and {} outcomes", found.0, found.1));
        }
    }
    wrong.extend(answers.denied.iter().filter(|id| many(id, "denied") != 1).map(|id| format!("the denial {id} is not written once")));
    wrong.extend(
        answers.marks.iter().filter(|mark| marked.get(mark.as_str()) != Some(&1)).map(|mark| format!("{mark} ran and has no intent")),
    );
    for (id, kind) in kinds.keys() {
        if *kind == "intent" && many(id, "outcome") != 1 {
            wrong.push(format!("the intent {id} has no outcome"));
        }
    }
    wrong
}

/// The mark of the call that an intent is for.
fn mark_of(intent: &Value) -> &str {
    let words = intent.get("argv").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let script = words.iter().filter_map(Value::as_str).find_map(|word| word.strip_prefix("echo "));
    script.and_then(|script| script.split(';').next()).unwrap_or_default()
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
        Started::new(&mut ground.stockade(["run", "--json", "--", "bash", "-c", &script]))
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

/// What a process has open, by name.
fn open_files(pid: u32) -> String {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| std::fs::read_link(entry.path()).ok()).map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names.join(" ")
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
        let marked = |id: &str, mark: &str| json!({"receipt_id": id, "kind": "intent", "argv": Call::Killed.words(mark).split_off(1)});
        let answers = Answers {
            ran: BTreeMap::from([("a".to_owned(), Call::Allowed)]),
            denied: vec!["b".to_owned()],
            marks: BTreeSet::from(["began-0-1-2.".to_owned()]),
            ..Answers::default()
        };
        let whole = [of("a", "outcome"), of("b", "denied"), marked("c", "began-0-1-2."), of("c", "outcome"), of("a", "intent")];
        assert_eq!(unwritten(&whole, &answers), Vec::<String>::new());
        for (missing, wrong) in [(0, 2), (1, 1), (2, 1), (3, 1), (4, 1)] {
            let mut some = whole.to_vec();
            some.remove(missing);
            assert_eq!(unwritten(&some, &answers).len(), wrong, "without {}", whole[missing]);
        }
        let twice: Vec<Value> = whole.iter().chain(&whole[4..]).cloned().collect();
        assert_eq!(unwritten(&twice, &answers).len(), 1, "two intents");
    }

    #[test]
    fn a_wrong_end_is_of_the_kind_that_stockade_names() {
        let of = |end: End, stdout: &str, stderr: &str| {
            kind_of(&Outcome { end, stdout: stdout.into(), stderr: stderr.into(), time: Duration::ZERO })
        };
        let refused = r#"{"error":{"step":"receipts","message":"held"}}"#;
        assert_eq!(of(End::Code(125), refused, ""), "refused: receipts: held");
        assert_eq!(of(End::Hung("a story".into()), refused, ""), "hung");
        assert_eq!(of(End::Code(1), "", "note\nerror: no"), "came to Code(1): error: no");
    }
}
