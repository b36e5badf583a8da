//! `stockade run --backend jail -- /bin/true`, the whole process from spawn to reaped, next to the field and to `/bin/true` alone.
//!
//! Also asks `stockade -v run` how long each step took, for those who want to make it faster.

use std::ffi::OsString;
use std::process::Stdio;

use super::{CONDITIONS, Course, Measure, absent, at_the_floor, command, p50, who};
use crate::contest::{Contestant, contest};
use crate::failure::Failure;
use crate::floor;
use crate::ground::Corner;
use crate::load::Condition;
use crate::machine;
use crate::peers::install::is_public;
use crate::peers::relay::Relay;
use crate::peers::{Peer, REFERENCE, Starters, words};
use crate::results::{Row, Section, Table, Unit, Verdict};
use crate::statistics::Summary;

/// Names in the tables.
pub(crate) const STOCKADE: &str = "stockade run";
const GOVERNED: &str = "stockade run, policy `developer`";
const PLAIN: &str = "/bin/true alone";
/// The promises: without a policy, and with a preset.
const BOUND: f64 = 0.75;
const BOUND_GOVERNED: f64 = 1.0;
/// How often the steps are asked for.
const STEP_RUNS: usize = 40;

const ABOUT: &str = "The whole process, from spawn to reaped: `stockade run --backend jail -- /bin/true` with every layer on and no \
policy, against `bwrap --unshare-all --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp /bin/true`, the rest of the field, and \
`/bin/true` without any wall. Contestants that take 100 ms or more run less often; the table says how often.";

/// Takes the measure.
pub(super) fn take(course: &Course<'_>) -> Result<(Section, Vec<Verdict>), Failure> {
    let mut section = Measure::Cold.section(ABOUT);
    let mut verdicts = Vec::new();
    for condition in CONDITIONS {
        let table = own_table(course, condition)?;
        if condition == Condition::Idle {
            verdicts.push(verdict(&table, who(false)));
            let measure = "cold `stockade run` with the preset `developer`, against bubblewrap, p50";
            verdicts.push(Verdict::at_most(measure, BOUND_GOVERNED, table.ratio(GOVERNED, p50)));
            section.notes.extend(floor::distance(&table, STOCKADE));
        }
        section.tables.push(table);
    }
    if machine::is_root() {
        let corner = course.ground.user()?;
        for condition in CONDITIONS {
            let table = user_table(course, &corner, condition)?;
            verdicts.extend((condition == Condition::Idle).then(|| verdict(&table, who(true))));
            section.tables.push(table);
        }
    }
    section.tables.extend(steps(course));
    Ok((section, verdicts))
}

fn verdict(table: &Table, who: &str) -> Verdict {
    Verdict::at_most(format!("cold `stockade run`, against bubblewrap, p50, {who}"), BOUND, table.ratio(STOCKADE, p50))
}

/// The command that is promised.
fn stockade(course: &Course<'_>) -> Vec<OsString> {
    [course.ground.stockade.clone().into_os_string()].into_iter().chain(words("run --backend jail -- /bin/true")).collect()
}

fn own_table(course: &Course<'_>, condition: Condition) -> Result<Table, Failure> {
    let corner = &course.ground.own;
    let mut contestants = vec![
        command(PLAIN, corner, &words("/bin/true")).in_every_round(),
        command(STOCKADE, corner, &stockade(course)).in_every_round(),
        match course.ground.governed("developer") {
            Ok(governed) => command(GOVERNED, &governed, &stockade(course)).in_every_round(),
            Err(message) => absent(GOVERNED, message),
        },
        at_the_floor(course, corner),
    ];
    for peer in &course.peers {
        contestants.push(peer_contestant(peer, corner, course));
    }
    match &course.docker {
        Ok(docker) => {
            contestants.push(command("docker run", corner, &docker.run_argv()));
            contestants.push(command("docker exec", corner, &docker.exec_argv()));
        }
        Err(message) => contestants.push(absent("docker run", message.as_str())),
    }
    table(contestants, course, condition, who(false))
}

fn user_table(course: &Course<'_>, corner: &Corner, condition: Condition) -> Result<Table, Failure> {
    let mut contestants = vec![
        command(PLAIN, corner, &words("/bin/true")).in_every_round(),
        command(STOCKADE, corner, &stockade(course)).in_every_round(),
        at_the_floor(course, corner),
    ];
    for peer in course.peers.iter().filter(|p| p.recipe.starters == Starters::Everybody) {
        contestants.push(match &peer.program {
            Ok(program) if is_public(program) => {
                let contestant = command(peer.recipe.name, corner, &peer.argv(program, course.ground.path()));
                if peer.recipe.name == REFERENCE { contestant.in_every_round() } else { contestant }
            }
            Ok(program) => {
                let name = program.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
                let lent = course.ground.lend(program, &name)?;
                command(peer.recipe.name, corner, &peer.argv(&lent, course.ground.path()))
            }
            Err(message) => absent(peer.recipe.name, message.as_str()),
        });
    }
    table(contestants, course, condition, who(true))
}

fn table(contestants: Vec<Contestant<'_>>, course: &Course<'_>, condition: Condition, who: &str) -> Result<Table, Failure> {
    let mut rows = contest(contestants, course.rounds, condition)?;
    let rank = |row: &Row| row.summary.as_ref().map_or(f64::INFINITY, |s| s.p50);
    rows.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    Ok(Table { title: format!("{who}, {condition}"), unit: Unit::Milliseconds, reference: Some(REFERENCE.into()), rows })
}

fn peer_contestant<'a>(peer: &Peer, corner: &Corner, course: &Course<'_>) -> Contestant<'a> {
    let program = match &peer.program {
        Ok(program) => program,
        Err(message) => return absent(peer.recipe.name, message.as_str()),
    };
    let argv = peer.argv(program, course.ground.path());
    if peer.recipe.name != "crun" {
        let contestant = command(peer.recipe.name, corner, &argv);
        return if peer.recipe.name == REFERENCE { contestant.in_every_round() } else { contestant };
    }
    match Relay::start(corner, &argv) {
        Ok(mut relay) => Contestant::new(peer.recipe.name, move || relay.run()),
        Err(message) => absent(peer.recipe.name, message),
    }
}

/// What `stockade -v run` says about its own steps; nothing where it says nothing.
fn steps(course: &Course<'_>) -> Option<Table> {
    let mut argv = stockade(course);
    argv.insert(1, "-v".into());
    let mut command = course.ground.own.command(&argv);
    command.stderr(Stdio::piped());
    let mut seen: Vec<(String, Vec<f64>)> = Vec::new();
    for _ in 0..STEP_RUNS.min(course.rounds.fast) {
        let output = command.output().ok()?;
        for (step, time) in String::from_utf8_lossy(&output.stderr).lines().filter_map(step) {
            match seen.iter_mut().find(|(name, _)| *name == step) {
                Some((_, times)) => times.push(time),
                None => seen.push((step, vec![time])),
            }
        }
    }
    let rows: Vec<Row> = seen.into_iter().filter_map(|(name, times)| Some(Row::new(name, Ok(Summary::of(&times)?)))).collect();
    let title = format!("where the time goes: what `stockade -v run` says, {}, idle", who(false));
    (!rows.is_empty()).then_some(Table { title, unit: Unit::Microseconds, reference: None, rows })
}

/// `stockade: mounting the root: 123 µs` → the step and its microseconds.
fn step(line: &str) -> Option<(String, f64)> {
    let (name, value) = line.trim().strip_suffix(" µs")?.rsplit_once(": ")?;
    let name = name.strip_prefix("stockade: ").unwrap_or(name);
    Some((name.to_owned(), value.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::step;

    #[test]
    fn steps_are_read_and_other_lines_are_not() {
        assert_eq!(step("stockade: clone: 123 µs"), Some(("clone".into(), 123.0)));
        assert_eq!(step("new root: old: 7 µs"), Some(("new root: old".into(), 7.0)));
        assert_eq!(step("stockade: 3 files changed"), None);
    }
}
