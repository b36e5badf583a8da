//! SIGKILL of Stockade at any moment while several write receipts at once. Afterwards everything that was answered has its receipts, whatever ran has
//! an intent, every intent has exactly one outcome, and the chain holds.
//!
//! What ran leaves a mark outside its sandbox, in a directory that is mounted for that, so that a run without an intent would show.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Bench, Stand, Workspace};
use crate::bounded::{self, End, Started};
use crate::failure::Failure;
use crate::ground::Who;
use crate::random::Random;
use crate::report::Tally;

/// Name of the loop, from which its randomness comes.
const NAME: &str = "kill-receipts";
/// How many run at once.
const TOGETHER: u64 = 5;

pub(super) fn run(bench: &Bench<'_>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let mut yards = [Yard::new(Stand::new(bench, NAME, Who::Root)?)?, Yard::new(Stand::new(bench, NAME, Who::Ordinary)?)?];
    let rounds = bench.arguments.only.map_or(0..bench.arguments.rounds.div_ceil(TOGETHER), |only| only..only + 1);
    for round in rounds {
        let mut random = Random::of_round(bench.arguments.seed, NAME, round);
        let [root, ordinary] = &mut yards;
        let yard = if random.below(2) == 0 { root } else { ordinary };
        one(&mut tally, yard, round, &mut random)?;
        (bench.progress)(&format!("{NAME}: {} runs, {} findings", tally.runs, tally.findings.len()));
    }
    Ok(tally)
}

/// A ground, and how far its ledger was looked at.
pub(super) struct Yard<'a> {
    pub(super) stand: Stand<'a>,
    marks: PathBuf,
    /// The number of the first receipt that was not looked at yet.
    next: u64,
}

impl<'a> Yard<'a> {
    pub(super) fn new(stand: Stand<'a>) -> Result<Self, Failure> {
        let marks = stand.ground.base.join("marks");
        stand.ground.directory(&marks)?;
        Ok(Self { stand, marks, next: 0 })
    }

    /// What was written since the last look.
    pub(super) fn news(&mut self) -> Result<Vec<Value>, Failure> {
        let from = self.next.to_string();
        let told = bounded::run(&mut self.stand.ground.stockade(["receipts", "tail", "--json", "--from", &from]))?;
        let news: Vec<Value> = told.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        self.next += news.len() as u64;
        Ok(news)
    }
}

/// Several at once, most of them killed at moments of their own.
fn one(tally: &mut Tally, yard: &mut Yard<'_>, round: u64, random: &mut Random) -> Result<(), Failure> {
    let ground = &yard.stand.ground;
    let scene = format!("as {}, {TOGETHER} at once", ground.who.name());
    let mount = format!("{}:/marks:rw", yard.marks.display());
    let name = |number: u64| format!("{round}-{number}");
    let start = |number: u64| {
        let script = format!("echo x >/marks/{}; exit 0", name(number));
        Started::new(&mut ground.stockade(["--json", "run", "--mount", &mount, "--", "bash", "-c", &script]))
    };
    let mut started = (0..TOGETHER).map(start).collect::<Result<Vec<Started>, Failure>>()?;
    // Several at once take longer than one alone.
    let mut moments: Vec<(u64, usize)> = (0..started.len()).map(|at| (random.below(3000), at)).collect();
    moments.sort_unstable();
    let mut before = 0;
    for (moment, at) in moments {
        std::thread::sleep(yard.stand.span.mul_f64((moment - before) as f64 / 1000.0));
        before = moment;
        // One in five is left alone.
        let Some(victim) = started.get_mut(at).filter(|_| random.below(5) > 0) else { continue };
        if let (false, Some(pid)) = (victim.has_ended(), Pid::from_raw(victim.pid().cast_signed())) {
            // It may end this very moment.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let mut answered = BTreeMap::new();
    for (number, one) in (0..).zip(started) {
        let outcome = one.finish();
        tally.runs += 1;
        let is_told = matches!(outcome.end, End::Signal(9) | End::Code(0));
        let wrong = (!is_told).then(|| format!("{:?} with `{}`", outcome.end, outcome.stderr.trim_end()));
        tally.judged(round, &scene, &outcome, wrong.into_iter().collect());
        let told: Value = serde_json::from_str(&outcome.stdout).unwrap_or(Value::Null);
        if let (Some(0), Some(id)) = (outcome.code(), told.get("receipt_id").and_then(Value::as_str)) {
            answered.insert(id.to_owned(), name(number));
        }
    }
    // The look runs something, which closes what was left open, and checks the chain.
    yard.stand.look(tally, round, &scene, Workspace::Same)?;
    let news = yard.news()?;
    let marked: Vec<String> = (0..TOGETHER).map(name).filter(|name| yard.marks.join(name).exists()).collect();
    tally.wrong(round, &scene, judge(&news, &answered, &marked));
    for kind in ["intent", "outcome"] {
        let many = news.iter().filter(|receipt| is(receipt, kind)).count();
        *tally.phases.entry(format!("{kind}s")).or_default() += many as u64;
    }
    *tally.phases.entry("interrupted".into()).or_default() += news.iter().filter(|receipt| was_interrupted(receipt)).count() as u64;
    Ok(())
}

/// What is wrong with the receipts of a round. All that begins in it ends in it.
pub(super) fn judge(news: &[Value], answered: &BTreeMap<String, String>, marked: &[String]) -> Vec<String> {
    let mut wrong = Vec::new();
    let id = |receipt: &Value| receipt.get("receipt_id").and_then(Value::as_str).unwrap_or_default().to_owned();
    let intents: Vec<&Value> = news.iter().filter(|receipt| is(receipt, "intent")).collect();
    for intent in &intents {
        let ends = news.iter().filter(|receipt| is(receipt, "outcome") && id(receipt) == id(intent)).count();
        if ends != 1 {
            wrong.push(format!("the intent {} has {ends} outcomes", id(intent)));
        }
    }
    for (receipt, name) in answered {
        let ended = |one: &&Value| is(one, "outcome") && id(one) == *receipt && one.pointer("/result/exit_code") == Some(&Value::from(0));
        if news.iter().filter(ended).count() != 1 {
            wrong.push(format!("{name} was answered with {receipt}, which has no such outcome"));
        }
    }
    for name in marked {
        let of = |intent: &&&Value| intent.get("argv").is_some_and(|argv| argv.to_string().contains(&format!("/marks/{name};")));
        let many = intents.iter().filter(of).count();
        if many != 1 {
            wrong.push(format!("{name} ran, and has {many} intents"));
        }
    }
    wrong
}

fn is(receipt: &Value, kind: &str) -> bool {
    receipt.get("kind").and_then(Value::as_str) == Some(kind)
}

fn was_interrupted(receipt: &Value) -> bool {
    receipt.pointer("/result/interrupted") == Some(&Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_lost_doubled_or_ran_unannounced_is_told() {
        let intent = |id: &str| json!({"kind": "intent", "receipt_id": id, "argv": ["bash", "-c", format!("echo x >/marks/{id}; exit 0")]});
        let outcome = |id: &str| json!({"kind": "outcome", "receipt_id": id, "result": {"exit_code": 0}});
        let whole = [intent("a"), outcome("a")];
        let answered = BTreeMap::from([("a".to_owned(), "a".to_owned())]);
        assert_eq!(judge(&whole, &answered, &["a".to_owned()]), Vec::<String>::new());
        assert_eq!(judge(&whole[..1], &BTreeMap::new(), &[]).len(), 1, "no outcome");
        assert_eq!(judge(&[intent("a"), outcome("a"), outcome("a")], &BTreeMap::new(), &[]).len(), 1, "two outcomes");
        assert_eq!(judge(&[], &answered, &[]).len(), 1, "lost");
        assert_eq!(judge(&whole, &BTreeMap::new(), &["b".to_owned()]).len(), 1, "ran unannounced");
    }
}
