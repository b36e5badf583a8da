//! One more program in a sandbox that stands, against a plain spawn of the same program.

use std::time::Instant;

use stockade_sandbox::connection::Passing;

use super::created::Created;
use super::inside::{self, Site};
use super::{CONDITIONS, Course, Measure, command, p50, p95};
use crate::contest::{Contestant, contest};
use crate::failure::Failure;
use crate::load::Condition;
use crate::peers::words;
use crate::results::{Section, Table, Unit, Verdict};
use crate::spawn;

const EXEC: &str = "stockade, exec (library)";
const STREAM: &str = "stockade, exec over the stream alone (library)";
const COMMAND: &str = "stockade sandbox exec (command)";
const PLAIN: &str = "plain spawn+wait";
/// The promises: at the median, and at the 95th percentile of a busy machine.
const BOUND: f64 = 1.15;
const BOUND_BUSY: f64 = 1.5;

const ABOUT: &str = "`/bin/true` in a sandbox that stands already, from the call until its end is known, against \
`std::process::Command` with the same null device as streams. The promise is about the library with descriptors passed. The \
second row gives no descriptors and carries everything over the stream, as containers and virtual machines must; the third is \
the whole process of the command line.";

/// Takes the measure.
pub(super) fn take(course: &Course<'_>) -> Result<(Section, Vec<Verdict>), Failure> {
    let mut section = Measure::Exec.section(ABOUT);
    let mut verdicts = Vec::new();
    let site = Site::make(&course.ground.own)?;
    let null = inside::null()?;
    let program = words("/bin/true");
    for condition in CONDITIONS {
        let mut contestants = vec![command(PLAIN, &course.ground.own, &program).in_every_round()];
        for (name, passing) in [(EXEC, Passing::Possible), (STREAM, Passing::Impossible)] {
            let mut standing = site.start(passing);
            let (null, program) = (&null, &program);
            let act = move || {
                let standing = standing.as_mut().map_err(|message| message.clone())?;
                let begin = Instant::now();
                standing.exec(program, inside::to_descriptor(inside::fd(null)))?;
                Ok(begin.elapsed())
            };
            contestants.push(Contestant::new(name, act).in_every_round());
        }
        let created = Created::make(course.ground);
        let mut whole = created.as_ref().map(|c| c.exec(&program)).map_err(Clone::clone);
        contestants.push(Contestant::new(COMMAND, move || spawn::timed(whole.as_mut().map_err(|message| message.clone())?)));
        let rows = contest(contestants, course.rounds, condition)?;
        let table = Table { title: condition.to_string(), unit: Unit::Milliseconds, reference: Some(PLAIN.into()), rows };
        verdicts.push(match condition {
            Condition::Idle => Verdict::at_most("`exec` in a running sandbox, against plain spawn, p50", BOUND, table.ratio(EXEC, p50)),
            Condition::Busy => {
                Verdict::at_most("`exec` in a running sandbox, against plain spawn, p95 busy", BOUND_BUSY, table.ratio(EXEC, p95))
            }
        });
        section.tables.push(table);
    }
    Ok((section, verdicts))
}
