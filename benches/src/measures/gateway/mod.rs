//! What an agent's call costs: over MCP on standard input and output, through the daemon, and as Claude Code's hook.

mod client;
mod ground;

use std::time::{Duration, Instant};

use self::ground::{CALL, DENIED, LARGE, Served};
use super::{Course, Measure, absent, command, p50};
use crate::contest::{Contestant, Rounds, contest};
use crate::failure::Failure;
use crate::load::Condition;
use crate::peers::{self, REFERENCE, words};
use crate::results::{Row, Section, Table, Unit, Verdict};
use crate::spawn;
use crate::statistics::Summary;

const PLAIN: &str = "plain spawn+wait";
const CALLED: &str = "stockade mcp, a capability that runs it";
const REFUSED: &str = "stockade mcp, a call that is denied";
const THIN: &str = "stockade run, with the daemon";
const HOOK: &str = "stockade hook claude, a decision";
const TRUE: &str = "/bin/true alone";
/// The promises.
const BOUND_CALL: f64 = 2.0;
const BOUND_CALL_P99: f64 = 5.0;
const BOUND_LARGE: f64 = 1.1;
const BOUND_THIN: f64 = 0.5;
const BOUND_MANY: f64 = 0.4;
const BOUND_REFUSED: f64 = 300.0;
const BOUND_HOOK: f64 = 3.0;

/// Who calls at once, and how often each of them does in one turn.
const CALLERS: usize = 16;
const EACH: usize = 10;

const ABOUT: &str = "A client on the pipes of `stockade mcp` calls a capability of an installed pack that runs `/bin/true`, or node: the call is read, \
decided by rules, written down (durability `process`), run in a fresh jail and written down again. Against `std::process::Command` with the same \
program and null devices. Sixteen callers share one server; plain, sixteen threads spawn and wait. A call that is denied runs nothing. `stockade run` \
finds a daemon and becomes its thin client. The hook is the whole process that Claude Code starts before each use of a tool. Idle only.";

/// Takes the measure.
pub(super) fn take(course: &Course<'_>) -> Result<(Section, Vec<Verdict>), Failure> {
    let mut section = Measure::Gateway.section(ABOUT);
    let served = match Served::make(course.ground) {
        Ok(served) => served,
        Err(message) => {
            section.notes.push(format!("Not measured: {message}."));
            return Ok((section, Vec::new()));
        }
    };
    let small = calls(&served, "/bin/true", CALL, course.rounds)?;
    let large = served.node.as_deref().map(|node| calls(&served, &format!("{node} --version"), LARGE, course.few)).transpose()?;
    let many = many(course, &served);
    let denied = denied(course, &served)?;
    let whole = whole(course, &served)?;
    let p99 = |summary: &Summary| summary.p99;
    let rate = many.ratio(CALLED, p50).map(|ratio| 1.0 / ratio);
    let of_denied = denied.summary(REFUSED).map(p50);
    let verdicts = vec![
        Verdict::at_most(
            "an MCP call of a capability that runs `/bin/true`, against plain spawn, p50",
            BOUND_CALL,
            small.ratio(CALLED, p50),
        ),
        Verdict::at_most("the same, p99", BOUND_CALL_P99, small.ratio(CALLED, p99)),
        Verdict::at_most("the same with node, p50", BOUND_LARGE, large.as_ref().and_then(|table| table.ratio(CALLED, p50))),
        Verdict::at_least("calls per second, 16 callers, against plain spawn", BOUND_MANY, rate),
        Verdict::figure_at_most("an MCP call that is denied, p50", BOUND_REFUSED, "µs", of_denied),
        Verdict::at_most("`stockade run` with the daemon, against bubblewrap, p50", BOUND_THIN, whole.ratio(THIN, p50)),
        Verdict::at_most("a decision of the hook, against the start of `/bin/true`, p50", BOUND_HOOK, hook_ratio(&whole)),
    ];
    section.tables.push(small);
    section.tables.extend(large);
    section.tables.extend([many, denied, whole]);
    Ok((section, verdicts))
}

/// One caller, one call after the other, against the same program spawned plainly.
fn calls(served: &Served<'_>, program: &str, tool: &'static str, rounds: Rounds) -> Result<Table, Failure> {
    let mut client = served.client();
    let called = Contestant::new(CALLED, move || client.as_mut().map_err(|message| message.clone())?.call(tool));
    let contestants = vec![command(PLAIN, &served.corner, &words(program)).in_every_round(), called.in_every_round()];
    let rows = contest(contestants, rounds, Condition::Idle)?;
    Ok(Table { title: format!("one call after the other, `{program}`"), unit: Unit::Milliseconds, reference: Some(PLAIN.into()), rows })
}

/// Many at once, as time per call.
fn many(course: &Course<'_>, served: &Served<'_>) -> Table {
    let program = words("/bin/true");
    let plain = || {
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let spawned: Vec<_> = (0..CALLERS)
                .map(|_| {
                    let mut command = served.corner.command(&program);
                    scope.spawn(move || (0..EACH).try_for_each(|_| spawn::timed(&mut command).map(drop)))
                })
                .collect();
            spawned.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
        })?;
        Ok(begin.elapsed())
    };
    let mut client = served.client();
    let mut called = || client.as_mut().map_err(|message| message.clone())?.call_many(CALL, CALLERS, EACH);
    let turns = course.few.fast;
    let rows = vec![turned(PLAIN, turns, plain), turned(CALLED, turns, &mut called)];
    Table { title: format!("{CALLERS} callers at once"), unit: Unit::MicrosecondsPerRequest, reference: Some(PLAIN.into()), rows }
}

/// A few turns of many calls each, as microseconds for one.
fn turned(name: &str, turns: usize, mut turn: impl FnMut() -> Result<Duration, String>) -> Row {
    let one = |time: Duration| time.as_secs_f64() * 1e6 / (CALLERS * EACH) as f64;
    // The first is a warm-up.
    let all: Result<Vec<f64>, String> = (0..=turns).map(|_| turn().map(one)).collect();
    let summary = all.and_then(|all| Summary::of(all.get(1..).unwrap_or_default()).ok_or_else(|| "was never run".to_owned()));
    Row::new(name, summary)
}

/// A call that rules deny, in microseconds.
fn denied(course: &Course<'_>, served: &Served<'_>) -> Result<Table, Failure> {
    let mut client = served.client();
    let act = move || client.as_mut().map_err(|message| message.clone())?.call(DENIED).map(|time| time * 1000);
    let rows = contest(vec![Contestant::new(REFUSED, act).in_every_round()], course.rounds, Condition::Idle)?;
    Ok(Table { title: "a call that is denied".into(), unit: Unit::Microseconds, reference: None, rows })
}

/// Whole processes: the thin client, the hook, and what they are compared with.
fn whole(course: &Course<'_>, served: &Served<'_>) -> Result<Table, Failure> {
    let corner = &served.corner;
    let bubblewrap = peers::reference(&course.store, course.ground.path());
    let mut contestants = vec![
        command(TRUE, corner, &words("/bin/true")).in_every_round(),
        match &bubblewrap {
            Ok(argv) => command(REFERENCE, corner, argv).in_every_round(),
            Err(message) => absent(REFERENCE, message.as_str()),
        },
    ];
    let daemon = served.daemon();
    contestants.push(match &daemon {
        Ok(_) => command(THIN, corner, &served.stockade("run --backend jail -- /bin/true")).in_every_round(),
        Err(message) => absent(THIN, message.as_str()),
    });
    contestants.push(Contestant::new(HOOK, || served.hook()).in_every_round());
    let rows = contest(contestants, course.rounds, Condition::Idle)?;
    drop(daemon);
    Ok(Table { title: "whole processes".into(), unit: Unit::Milliseconds, reference: Some(REFERENCE.into()), rows })
}

fn hook_ratio(table: &Table) -> Option<f64> {
    let (ours, plain) = (table.summary(HOOK)?.p50, table.summary(TRUE)?.p50);
    (plain > 0.0).then_some(ours / plain)
}
