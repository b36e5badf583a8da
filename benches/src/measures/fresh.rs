//! A fresh jail through the library, one program in it, against a plain spawn of the same program.

use std::time::{Duration, Instant};

use stockade_sandbox::connection::Passing;
use stockade_sandbox::drive::Ending;
use stockade_sandbox::template::Template;

use super::inside::{self, Site};
use super::{CONDITIONS, Course, Measure, at_the_floor, command, p50, p95};
use crate::contest::{Contestant, contest};
use crate::failure::Failure;
use crate::load::Condition;
use crate::peers::words;
use crate::results::{Section, Table, Unit, Verdict};
use crate::spawn;

const FRESH: &str = "stockade, a fresh jail from a template (library)";
const FROM_NOTHING: &str = "stockade, a fresh jail from nothing (library)";
const PLAIN: &str = "plain spawn+wait";
/// How many in a row.
const ROW: u32 = 10;
/// The promises: at the median, and at the 95th percentile of a busy machine.
const BOUND: f64 = 2.0;
const BOUND_BUSY: f64 = 3.0;

const ABOUT: &str = "From a call of the library until `/bin/true` has ended inside a jail that did not exist before, against \
`std::process::Command` with the same null device as streams. Removing the jail afterwards is not counted: nobody waits for it.";

/// Takes the measure.
pub(super) fn take(course: &Course<'_>) -> Result<(Section, Vec<Verdict>), Failure> {
    let mut section = Measure::Fresh.section(ABOUT);
    let mut verdicts = Vec::new();
    let site = Site::make(&course.ground.own)?;
    let null = inside::null()?;
    let template = site.template();
    for condition in CONDITIONS {
        let contestants = vec![
            command(PLAIN, &course.ground.own, &words("/bin/true")).in_every_round(),
            at_the_floor(course, &course.ground.own),
            Contestant::new(FRESH, || fresh(&template, &null)).in_every_round(),
            Contestant::new(FROM_NOTHING, || from_nothing(&site, &null)),
        ];
        let rows = contest(contestants, course.rounds, condition)?;
        let table = Table { title: condition.to_string(), unit: Unit::Milliseconds, reference: Some(PLAIN.into()), rows };
        verdicts.push(match condition {
            Condition::Idle => {
                Verdict::at_most("a fresh jail through the library, against plain spawn, p50", BOUND, table.ratio(FRESH, p50))
            }
            Condition::Busy => {
                Verdict::at_most("a fresh jail through the library, against plain spawn, p95 busy", BOUND_BUSY, table.ratio(FRESH, p95))
            }
        });
        section.tables.push(table);
        let in_a_row = vec![
            Contestant::new(PLAIN, || row(|| spawn::timed(&mut course.ground.own.command(&words("/bin/true"))))),
            Contestant::new(FRESH, || row(|| fresh(&template, &null))),
        ];
        let rows = contest(in_a_row, course.few, condition)?;
        let title = format!("{condition}, {ROW} in a row without a pause, each");
        section.tables.push(Table { title, unit: Unit::Milliseconds, reference: Some(PLAIN.into()), rows });
    }
    section.notes.push(NOTE.into());
    Ok((section, verdicts))
}

const NOTE: &str = "From a template with two jails waiting. Threads of its own refill the stock and clear used jails away while the others run, so \
what they take from the processors is in these figures. In a row without a pause the stock is empty after the second, and each waits until \
the kernel has made one: making and taking down network namespaces, most of all. That is no promise, but it is what a caller \
sees who asks for more than there are.";

/// One fresh jail from a template.
fn fresh(template: &Result<Template, String>, null: &std::fs::File) -> Result<Duration, String> {
    let template = template.as_ref().map_err(Clone::clone)?;
    let begin = Instant::now();
    let mut taken = template.take().map_err(|e| e.to_string())?;
    let outcome = taken.exec(&words("/bin/true"), inside::to_descriptor(inside::fd(null)), None).map_err(|e| e.to_string())?;
    let time = begin.elapsed();
    if outcome.ending == Ending::Code(0) { Ok(time) } else { Err(format!("{:?}", outcome.ending)) }
}

/// The mean time of many in a row, from the first call to the last end.
fn row(mut one: impl FnMut() -> Result<Duration, String>) -> Result<Duration, String> {
    let begin = Instant::now();
    for _ in 0..ROW {
        one()?;
    }
    Ok(begin.elapsed() / ROW)
}

/// One jail from nothing.
fn from_nothing(site: &Site, null: &std::fs::File) -> Result<Duration, String> {
    let begin = Instant::now();
    let mut standing = site.start(Passing::Possible)?;
    standing.exec(&words("/bin/true"), inside::to_descriptor(inside::fd(null)))?;
    let time = begin.elapsed();
    standing.end()?;
    Ok(time)
}
