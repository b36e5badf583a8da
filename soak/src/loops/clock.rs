//! Clock jumps. The machine's clock is not the soak's to change and no namespace has another, so the traces of a jump are made instead:
//! records and files from the past and from the future. The monotonic clock can be another, in a time namespace.

use std::fs::{self, FileTimes};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::{Bench, Stand, Workspace};
use crate::bounded;
use crate::failure::Failure;
use crate::ground::Who;
use crate::probe;
use crate::report::Tally;

const NAME: &str = "clock";
const CENTURY: i64 = 100 * 365 * 86400;

pub(super) fn run(bench: &Bench<'_>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    for who in Who::BOTH {
        let stand = Stand::new(bench, NAME, who)?;
        kept(&mut tally, &stand)?;
        conflict(&mut tally, &stand)?;
        files(&mut tally, &stand)?;
        if who == Who::Root {
            monotonic(&mut tally, &stand)?;
        }
        (bench.progress)(&format!("{NAME}: {} runs, {} findings", tally.runs, tally.findings.len()));
    }
    Ok(tally)
}

/// A run that keeps its changes; the file of its record.
fn keep(tally: &mut Tally, stand: &Stand<'_>, scene: &str) -> Result<Option<PathBuf>, Failure> {
    let outcome = bounded::run(&mut stand.ground.stockade(["run", "--", "bash", "-c", &stand.script("echo after >changed; exit 0")]))?;
    tally.runs += 1;
    tally.wrong(0, scene, probe::judge_end(&outcome, &[0]));
    let mut kept = fs::read_dir(stand.ground.sandboxes()).into_iter().flatten().flatten();
    Ok(kept.next().map(|entry| entry.path().join("record.json")))
}

/// Puts the beginning of a kept run elsewhere in time.
fn shift(record: &PathBuf, by: i64) -> Result<(), Failure> {
    let text = fs::read(record).map_err(Failure::at("reading", record))?;
    let mut value: Value = serde_json::from_slice(&text).unwrap_or_default();
    if let Some(seconds) = value.pointer_mut("/started/seconds") {
        *seconds = Value::from(seconds.as_i64().unwrap_or(0) + by);
    }
    fs::write(record, value.to_string()).map_err(Failure::at("writing", record))
}

/// What was kept stays through a clock that was put back, and goes when a person says so.
fn kept(tally: &mut Tally, stand: &Stand<'_>) -> Result<(), Failure> {
    for (by, stays) in [(CENTURY, true), (3600, true), (-3600, true), (-CENTURY, false)] {
        let scene = format!("as {}, kept {by} s from now", stand.ground.who.name());
        let Some(record) = keep(tally, stand, &scene)? else {
            tally.wrong(0, &scene, ["nothing was kept".to_owned()]);
            continue;
        };
        shift(&record, by)?;
        let outcome = bounded::run(&mut stand.ground.stockade(["sandbox", "prune"]))?;
        if outcome.code() != Some(0) || record.exists() != stays {
            tally.wrong(0, &scene, [format!("after a sweep it is {}: {outcome:?}", if record.exists() { "there" } else { "gone" })]);
        }
        tally.phase("kept");
        // `look` prunes all.
        stand.look(tally, 0, &scene, Workspace::Same)?;
    }
    Ok(())
}

/// A file that somebody changed after the sandbox began is not overwritten, though the clock says that it was before.
fn conflict(tally: &mut Tally, stand: &Stand<'_>) -> Result<(), Failure> {
    let scene = format!("as {}, the clock was put back before an apply", stand.ground.who.name());
    let Some(record) = keep(tally, stand, &scene)? else { return Ok(()) };
    shift(&record, CENTURY)?;
    stand.ground.plant(&stand.ground.work.join("changed"), "somebody else's\n")?;
    let id = record.parent().and_then(|directory| directory.file_name()).unwrap_or_default().to_string_lossy().into_owned();
    let outcome = bounded::run(&mut stand.ground.stockade(["sandbox", "apply", &id]))?;
    let now = fs::read_to_string(stand.ground.work.join("changed")).unwrap_or_default();
    if now != "somebody else's\n" || outcome.code() == Some(0) {
        tally.wrong(0, &scene, [format!("somebody else's change was overwritten: {outcome:?}")]);
    }
    stand.ground.renew()?;
    tally.phase("conflict");
    stand.look(tally, 0, &scene, Workspace::Same)
}

/// Files of the workspace from any time are changed and brought back as others are.
fn files(tally: &mut Tally, stand: &Stand<'_>) -> Result<(), Failure> {
    let century = Duration::from_secs(CENTURY.unsigned_abs());
    for (name, time) in [("the future", SystemTime::now() + century), ("1970", SystemTime::UNIX_EPOCH)] {
        let scene = format!("as {}, files of {name}", stand.ground.who.name());
        for file in ["changed", "deleted"] {
            let path = stand.ground.work.join(file);
            let set = fs::File::options().write(true).open(&path).and_then(|f| f.set_times(FileTimes::new().set_modified(time)));
            set.map_err(Failure::at("changing the time of", &path))?;
        }
        let script = stand.script("echo after >changed; rm deleted; exit 0");
        let outcome = bounded::run(&mut stand.ground.stockade(["run", "--apply", "--", "bash", "-c", &script]))?;
        tally.runs += 1;
        tally.wrong(0, &scene, probe::judge_end(&outcome, &[0]));
        let applied = fs::read_to_string(stand.ground.work.join("changed")).is_ok_and(|text| text == "after\n");
        if !applied || stand.ground.work.join("deleted").exists() {
            tally.wrong(0, &scene, [format!("the changes were not brought back: {outcome:?}")]);
        }
        stand.ground.renew()?;
        tally.phase("files");
        stand.look(tally, 0, &scene, Workspace::Same)?;
    }
    Ok(())
}

/// Time limits count on a clock that began long ago.
fn monotonic(tally: &mut Tally, stand: &Stand<'_>) -> Result<(), Failure> {
    let scene = "another monotonic clock";
    let before = ["unshare", "--time", "--fork", "--kill-child", "--monotonic", "1000000000", "--boottime", "1000000000"];
    let script = stand.script("exit 0");
    stand.starve(tally, 0, scene, &mut stand.ground.behind(&before, &["--json", "run", "--", "bash", "-c", &script]))?;
    let outcome = bounded::run(&mut stand.ground.behind(&before, &["run", "--timeout", "300ms", "--", "sleep", "600"]))?;
    tally.runs += 1;
    if outcome.code() != Some(124) {
        tally.wrong(0, scene, [format!("the time limit came to {outcome:?}")]);
    }
    stand.look(tally, 0, scene, Workspace::Same)
}
