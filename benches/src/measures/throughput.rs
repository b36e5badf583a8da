//! A gibibyte of standard output from inside, against the same program into a plain pipe.

use std::ffi::OsString;
use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stockade_sandbox::connection::Passing;
use stockade_sandbox::drive::{Sink, Streams};

use super::inside::{self, Site};
use super::{Course, Measure, p50};
use crate::contest::{Contestant, contest};
use crate::failure::Failure;
use crate::ground::Corner;
use crate::load::Condition;
use crate::peers::words;
use crate::results::{Extent, Section, Table, Unit, Verdict};

const PASSED: &str = "stockade, the caller's pipe (library)";
const STREAM: &str = "stockade, over the stream into a pipe (library)";
const CAPTURED: &str = "stockade, captured into memory (library)";
const COMMAND: &str = "stockade run (command)";
const PLAIN: &str = "plain pipe";
/// The promise.
const BOUND: f64 = 0.95;
/// What is kept of captured output: the rest is counted and dropped, as `--output-limit` does.
const KEPT: u64 = 1 << 20;
const READ_SIZE: usize = 1 << 18;

const ABOUT: &str = "`head -c 1G /dev/zero` with standard output to a pipe whose other end is read as fast as it goes. The promise is \
about what `stockade run PROGRAM | reader` does: the program gets the caller's own pipe. The rows over the stream are what happens \
where output is limited or captured, or where the wall cannot pass descriptors. `stockade run` is the whole process, start included. Idle only.";

/// Takes the measure.
pub(super) fn take(course: &Course<'_>) -> Result<(Section, Vec<Verdict>), Failure> {
    let mut section = Measure::Throughput.section(ABOUT);
    let bytes: u64 = if course.extent == Extent::Full { 1 << 30 } else { 1 << 28 };
    let program: Vec<OsString> = words(&format!("/usr/bin/head -c {bytes} /dev/zero"));
    let scale = (1u64 << 30) as f64 / bytes as f64;
    let site = Site::make(&course.ground.own)?;
    let null = inside::null()?;
    let corner = &course.ground.own;
    let stockade: Vec<OsString> = [course.ground.stockade.clone().into_os_string()]
        .into_iter()
        .chain(words("run --backend jail --"))
        .chain(program.clone())
        .collect();
    let mut contestants = vec![
        Contestant::new(PLAIN, || spawned(corner, &program, bytes).map(|t| t.mul_f64(scale))),
        Contestant::new(COMMAND, || spawned(corner, &stockade, bytes).map(|t| t.mul_f64(scale))),
    ];
    for (name, passing) in [(PASSED, Passing::Possible), (STREAM, Passing::Impossible)] {
        let mut standing = site.start(passing);
        let (program, null) = (&program, &null);
        contestants.push(Contestant::new(name, move || {
            let standing = standing.as_mut().map_err(|message| message.clone())?;
            let begin = Instant::now();
            let (reader, writer) = std::io::pipe().map_err(|e| e.to_string())?;
            let count = count_in_background(reader);
            let null = inside::fd(null);
            let streams = Streams::Plain { stdin: Some(null), stdout: Sink::Descriptor(writer.as_fd()), stderr: Sink::Descriptor(null) };
            standing.exec(program, streams)?;
            drop(writer);
            finished(count, bytes)?;
            Ok(begin.elapsed().mul_f64(scale))
        }));
    }
    let mut standing = site.start(Passing::Possible);
    let whole = &program;
    let captured = move || {
        let standing = standing.as_mut().map_err(|message| message.clone())?;
        let begin = Instant::now();
        standing.exec(whole, Streams::Plain { stdin: None, stdout: Sink::Buffer(KEPT), stderr: Sink::Buffer(KEPT) })?;
        Ok(begin.elapsed().mul_f64(scale))
    };
    contestants.push(Contestant::new(CAPTURED, captured));
    let rows = contest(contestants, course.few, Condition::Idle)?;
    let table = Table { title: "idle".into(), unit: Unit::MillisecondsPerGibibyte, reference: Some(PLAIN.into()), rows };
    // Times are measured and rates are promised.
    let rate = table.ratio(PASSED, p50).map(|r| 1.0 / r);
    section.tables.push(table);
    Ok((section, vec![Verdict::at_least("stdout, 1 GiB from inside, against a pipe, rate at p50", BOUND, rate)]))
}

/// Spawns with a pipe as standard output; from before the spawn until everything is read and the program reaped.
fn spawned(corner: &Corner, argv: &[OsString], bytes: u64) -> Result<Duration, String> {
    let mut command = corner.command(argv);
    let begin = Instant::now();
    let (reader, writer) = std::io::pipe().map_err(|e| e.to_string())?;
    let count = count_in_background(reader);
    let mut child = command.stdout(Stdio::from(writer)).spawn().map_err(|e| e.to_string())?;
    // The command holds the pipe's other end too.
    drop(command);
    let status = child.wait().map_err(|e| e.to_string())?;
    finished(count, bytes)?;
    if status.success() { Ok(begin.elapsed()) } else { Err(status.to_string()) }
}

fn count_in_background(mut reader: PipeReader) -> JoinHandle<std::io::Result<u64>> {
    std::thread::spawn(move || {
        let mut buffer = vec![0; READ_SIZE];
        let mut total = 0;
        loop {
            match reader.read(&mut buffer)? {
                0 => return Ok(total),
                count => total += count as u64,
            }
        }
    })
}

/// A figure counts only if every byte arrived.
fn finished(count: JoinHandle<std::io::Result<u64>>, bytes: u64) -> Result<(), String> {
    match count.join() {
        Ok(Ok(total)) if total == bytes => Ok(()),
        Ok(Ok(total)) => Err(format!("{total} of {bytes} bytes arrived")),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the reader ended early".into()),
    }
}
