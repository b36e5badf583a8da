//! What is said when an agent has ended: lines for people, an object for `--json` and the roll, an exit code.

use serde_json::{Value, json};
use stockade_core::result::RunResult;
use stockade_sandbox::drive::Ending;
use stockade_sandbox::once::Done;
use stockade_store::settings::Price;

use super::super::run::{code, files, mention_partial};
use super::run::Prepared;
use crate::Context;
use crate::agent::budget::Spent;
use crate::agent::memory::Memory;
use crate::agent::roll::Agent;
use crate::agent::summary::Traffic;
use crate::egress::outlet::Closed;
use crate::egress::summary;
use crate::failure::Failure;

/// The most of a kind that is named in one line.
const MAX_NAMED: usize = 8;

/// The object of `--json`, which is also kept on the roll.
pub(super) fn described(
    agent: &Agent,
    result: &RunResult,
    left_running: &[String],
    spent: Option<Spent>,
    summary: &Traffic,
    prices: &[Price],
) -> Value {
    let mut value = serde_json::to_value(result).unwrap_or(Value::Null);
    let more = json!({ "agent": agent.profile, "name": agent.name, "left_running": left_running });
    if let Value::Object(members) = &mut value {
        for part in [more, summary.json(prices)] {
            if let Value::Object(part) = part {
                members.extend(part);
            }
        }
        if let Some(spent) = spent {
            members.insert("limit".into(), spent.word().into());
            members.insert("timed_out".into(), (spent == Spent::Time).into());
            members.insert("exit_code".into(), Value::Null);
        }
    }
    value
}

/// What is kept: not what the agent printed, which may be long.
pub(super) fn without_output(mut value: Value) -> Value {
    if let Value::Object(members) = &mut value {
        for name in ["stdout", "stderr", "stdout_base64", "stderr_base64"] {
            members.remove(name);
        }
    }
    value
}

/// Says what is to be said and gives the exit code.
pub(super) fn finish(
    done: &Done,
    traffic: &Closed,
    spent: Option<Spent>,
    sum: &Traffic,
    value: &Value,
    prepared: &Prepared,
    context: &Context,
) -> Result<u8, Failure> {
    if let Ending::NotStarted { missing, message } = &done.outcome.ending {
        let failure = if *missing { Failure::no_program("exec", message) } else { Failure::new("exec", message) };
        return Err(if *missing { failure.with_hint("is the agent installed, and is its directory in PATH?") } else { failure });
    }
    let printer = &context.printer;
    for (step, micros) in &done.steps {
        printer.detail(format!("{step}: {micros} µs"));
    }
    done.notes.iter().for_each(|note| printer.note(note.as_str()));
    mention_partial(&done.enforcement, &prepared.assembled, context);
    if printer.is_json() {
        printer.json(value)?;
    }
    summary::tell(traffic, context);
    done.violations.iter().for_each(|violation| printer.warning(violation.as_str()));
    match (spent, &done.outcome.ending) {
        (Some(Spent::Tokens), _) => printer.warning("the budget of tokens was used up; the agent was ended"),
        (Some(Spent::Dollars), _) => printer.warning("the budget of dollars was used up; the agent was ended"),
        (Some(Spent::Time), _) | (None, Ending::TimedOut) => printer.warning("the time limit was reached; the agent was ended"),
        (None, Ending::Limit(demand)) => printer.warning(format!("the {demand} limit was reached; everything in the sandbox was killed")),
        (None, Ending::Code(_) | Ending::Signal(_) | Ending::NotStarted { .. }) => {}
    }
    let seconds = done.outcome.duration.as_secs_f64();
    printer.note(format!("{} {} after {seconds:.1} s", prepared.profile.title, ended(&done.outcome.ending)));
    sum.lines(&prepared.prices).into_iter().for_each(|line| printer.note(line));
    if !done.left_running.is_empty() {
        printer.note(format!("ended with it: {}", some(done.left_running.iter().cloned())));
    }
    let protected: Vec<String> = done.changes.iter().filter(|change| change.protected).map(|change| change.path.clone()).collect();
    if !protected.is_empty() {
        printer
            .note(format!("protected, so apply leaves it out: {}", some(protected.iter().map(|path| stockade_core::escape::escape(path)))));
    }
    if let Some(why) = prepared.memory.as_ref().and_then(Memory::failure) {
        printer.warning(format!("its conversations could not be kept for another run of that name: {why}"));
    }
    if done.applied > 0 {
        printer.note(format!("{} applied", files(done.applied)));
    }
    if let Some(branch) = &prepared.branch {
        let name = branch.name.trim_start_matches("stockade/");
        let tree = stockade_core::escape::escape(&branch.worktree.to_string_lossy());
        printer.note(format!("its branch is {} in {tree}: stockade agent diff {name} · apply {name}", branch.name));
        return Ok(exit_code(spent, &done.outcome.ending));
    }
    match done.kept {
        Some(left) => printer.note(format!("{} changed: stockade agent diff {id} · apply {id}", files(left), id = done.id)),
        None if done.applied == 0 => printer.note("nothing changed in the workspace"),
        None => {}
    }
    Ok(exit_code(spent, &done.outcome.ending))
}

/// The first few of many.
fn some(words: impl ExactSizeIterator<Item = String>) -> String {
    let more = words.len().saturating_sub(MAX_NAMED);
    let mut named: Vec<String> = words.take(MAX_NAMED).collect();
    if more > 0 {
        named.push(format!("{more} more"));
    }
    named.join(", ")
}

fn exit_code(spent: Option<Spent>, ending: &Ending) -> u8 {
    match spent {
        Some(Spent::Time) => 124,
        Some(Spent::Tokens | Spent::Dollars) => 137,
        None => code(ending),
    }
}

fn ended(ending: &Ending) -> String {
    match ending {
        Ending::Code(code) => format!("ended with code {code}"),
        Ending::Signal(signal) => format!("was ended by signal {signal}"),
        Ending::TimedOut | Ending::Limit(_) => "was ended".to_owned(),
        Ending::NotStarted { .. } => "did not start".to_owned(),
    }
}
