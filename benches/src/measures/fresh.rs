//! A fresh jail through the library, one program in it, against a plain spawn of the same program.

use std::time::{Duration, Instant};

use stockade_sandbox::connection::Passing;

use super::inside::{self, Site};
use super::{CONDITIONS, Course, Measure, at_the_floor, command, p50, p95};
use crate::contest::{Contestant, contest};
use crate::failure::Failure;
use crate::load::Condition;
use crate::peers::words;
use crate::results::{Section, Table, Unit, Verdict};

const FRESH: &str = "stockade, a fresh jail (library)";
const PLAIN: &str = "plain spawn+wait";
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
    for condition in CONDITIONS {
        let contestants = vec![
            command(PLAIN, &course.ground.own, &words("/bin/true")).in_every_round(),
            at_the_floor(course, &course.ground.own),
            Contestant::new(FRESH, || fresh(&site, &null)).in_every_round(),
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
    }
    section.notes.push(NOTE.into());
    Ok((section, verdicts))
}

const NOTE: &str = "Measured from nothing: this version of the library has no prepared template.";

/// One fresh jail. When the library has templates, the site prepares one before the contest and this starts from it; [`NOTE`] changes
/// with it.
fn fresh(site: &Site, null: &std::fs::File) -> Result<Duration, String> {
    let begin = Instant::now();
    let mut standing = site.start(Passing::Possible)?;
    standing.exec(&words("/bin/true"), inside::to_descriptor(inside::fd(null)))?;
    let time = begin.elapsed();
    standing.end()?;
    Ok(time)
}
