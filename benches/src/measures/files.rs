//! 100 MB into a sandbox and out again through the library, against `cp` there and back on the same file system.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use stockade_core::path::SafePath;
use stockade_sandbox::connection::Passing;

use super::inside::{Site, Standing};
use super::{Course, Measure, p50};
use crate::contest::{Contestant, contest};
use crate::failure::Failure;
use crate::ground::Corner;
use crate::load::Condition;
use crate::results::{Section, Table, Unit, Verdict};
use crate::spawn;

const FILES: &str = "stockade, write_file + read_file (library)";
const STREAM: &str = "stockade, the same without passing descriptors";
const PLAIN: &str = "cp there and back";
/// The promise.
const BOUND: f64 = 2.0;
/// 100 MB.
const SIZE: usize = 100_000_000;

const ABOUT: &str = "A file of 100 MB, in the page cache, is written into the workspace of a running sandbox (an overlay, so it lands in \
the state directory) and read back into another file, against `cp` twice. All files lie on one file system; what was written is \
removed and the file system synced before each run, which is not counted. Idle only.";

/// Takes the measure.
pub(super) fn take(course: &Course<'_>) -> Result<(Section, Vec<Verdict>), Failure> {
    let mut section = Measure::Files.section(ABOUT);
    let base = &course.ground.own.base;
    let (given, there, back) = (base.join("given"), base.join("there"), base.join("back"));
    let contents: Vec<u8> = (0..SIZE).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(&given, contents).map_err(Failure::io("write", &given))?;
    let site = Site::make(&course.ground.own)?;
    let inside = site.path("copied")?;
    let corner = &course.ground.own;
    let mut contestants = vec![Contestant::new(PLAIN, || copied(corner, &given, &there, &back))];
    for (name, passing) in [(FILES, Passing::Possible), (STREAM, Passing::Impossible)] {
        let mut standing = site.start(passing);
        let (given, back, inside) = (&given, &back, &inside);
        contestants.push(Contestant::new(name, move || moved(standing.as_mut().map_err(|message| message.clone())?, given, inside, back)));
    }
    let rows = contest(contestants, course.few, Condition::Idle)?;
    let table = Table { title: "idle".into(), unit: Unit::Milliseconds, reference: Some(PLAIN.into()), rows };
    let verdict = Verdict::at_most("`write_file` + `read_file` of 100 MB, against `cp`, p50", BOUND, table.ratio(FILES, p50));
    section.tables.push(table);
    Ok((section, vec![verdict]))
}

fn copied(corner: &Corner, given: &Path, there: &Path, back: &Path) -> Result<Duration, String> {
    clear(&[there, back])?;
    let copy = |from: &Path, to: &Path| {
        let argv: [OsString; 3] = ["/bin/cp".into(), from.into(), to.into()];
        spawn::timed(&mut corner.command(&argv))
    };
    Ok(copy(given, there)? + copy(there, back)?)
}

fn moved(standing: &mut Standing, given: &Path, inside: &SafePath, back: &Path) -> Result<Duration, String> {
    clear(&[back])?;
    // It is not there in the first run.
    let _ = standing.sandbox.remove(inside);
    let begin = Instant::now();
    let mut from = File::open(given).map_err(|e| e.to_string())?;
    standing.sandbox.write_file(inside, 0o644, &mut from).map_err(|e| e.to_string())?;
    let mut to = File::create(back).map_err(|e| e.to_string())?;
    let read = standing.sandbox.read_file(inside, &mut to).map_err(|e| e.to_string())?;
    let time = begin.elapsed();
    if read == SIZE as u64 { Ok(time) } else { Err(format!("{read} of {SIZE} bytes came back")) }
}

/// Removes files and waits until the disk is at rest.
fn clear(files: &[&Path]) -> Result<(), String> {
    for file in files {
        match std::fs::remove_file(file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.to_string()),
            _ => {}
        }
    }
    let parent = files.first().and_then(|f| f.parent()).ok_or("no directory")?;
    let directory = File::open(parent).map_err(|e| e.to_string())?;
    rustix::fs::syncfs(&directory).map_err(|e| e.to_string())
}
