//! Work that people do, inside against outside: a cargo build, `npm ci` from a warm cache, a walk over `/usr`.
//!
//! Everything starts from fresh directories in every run. Which projects is in [`super::projects`].

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::created::Created;
use super::projects::{self, Project};
use super::{Course, Measure, p50};
use crate::contest::{Contestant, contest};
use crate::failure::Failure;
use crate::ground::Ground;
use crate::load::Condition;
use crate::peers::words;
use crate::results::{Row, Section, Table, Unit, Verdict};
use crate::spawn;

const OUTSIDE: &str = "outside";
const OVERLAY: &str = "stockade run, overlay";
const WRITE: &str = "stockade run, rw";
const EXEC: &str = "stockade sandbox exec, overlay";
/// The promise.
const BOUND: f64 = 1.05;

const ABOUT: &str = "Whole commands, from spawn to reaped, so starting the sandbox and, with an overlay, finding out what changed are \
in the figures. The promise is about `stockade run` with its default, the overlay, and with `--workspace-mode rw`; the last row is the same program in \
a sandbox that stands already. Fresh target directories, fresh `node_modules`, fresh sandboxes in every run. Idle only.";

/// Takes the measure.
pub(super) fn take(course: &Course<'_>) -> Result<(Section, Vec<Verdict>), Failure> {
    let mut section = Measure::Build.section(ABOUT);
    let mut verdicts = Vec::new();
    for project in projects::make(course.ground, course.extent) {
        let (name, project) = match project {
            Ok(project) => (project.name, project),
            Err((name, message)) => {
                let rows = vec![Row::new(OUTSIDE, Err(message))];
                section.tables.push(Table { title: format!("`{name}`"), unit: Unit::Milliseconds, reference: None, rows });
                verdicts.push(Verdict::at_most(format!("`{name}` inside, against outside"), BOUND, None));
                continue;
            }
        };
        let table = table(course, &project)?;
        for (row, mode) in [(OVERLAY, "overlay"), (WRITE, "rw")] {
            verdicts.push(Verdict::at_most(format!("`{name}` inside ({mode}), against outside, p50"), BOUND, table.ratio(row, p50)));
        }
        section.tables.push(table);
        section.notes.extend(project.note);
    }
    Ok((section, verdicts))
}

fn table(course: &Course<'_>, project: &Project) -> Result<Table, Failure> {
    let ground = course.ground;
    let mut contestants = vec![Contestant::new(OUTSIDE, || {
        project.clear()?;
        spawn::timed(&mut at_home(ground, project, &project.argv))
    })];
    for (name, mode) in [(OVERLAY, "overlay"), (WRITE, "rw")] {
        contestants.push(Contestant::new(name, move || inside(ground, project, mode)));
    }
    contestants.push(Contestant::new(EXEC, || in_created(ground, project)));
    let rows = contest(contestants, course.few, Condition::Idle)?;
    Ok(Table { title: format!("`{}`", project.name), unit: Unit::Milliseconds, reference: Some(OUTSIDE.into()), rows })
}

fn inside(ground: &Ground, project: &Project, mode: &str) -> Result<Duration, String> {
    project.clear()?;
    let mut argv = vec![ground.stockade.clone().into_os_string()];
    argv.extend(words(&format!("run --backend jail --workspace-mode {mode} --workspace")));
    argv.extend([project.directory.clone().into_os_string(), "--".into()]);
    argv.extend_from_slice(&project.argv);
    let time = spawn::timed(&mut at_home(ground, project, &argv))?;
    forget(&ground.own.state())?;
    Ok(time)
}

fn in_created(ground: &Ground, project: &Project) -> Result<Duration, String> {
    project.clear()?;
    let created = Created::make_for(ground, &project.directory, &project.path)?;
    let time = spawn::timed(&mut created.exec(&project.argv))?;
    drop(created);
    Ok(time)
}

fn at_home(ground: &Ground, project: &Project, argv: &[OsString]) -> Command {
    let mut command = ground.own.command(argv);
    command.current_dir(&project.directory).env("PATH", &project.path);
    command
}

/// Throws kept changes away, as somebody who does not want them would.
fn forget(state: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(state.join("stockade/sandboxes")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("kept changes: {error}")),
        _ => Ok(()),
    }
}
