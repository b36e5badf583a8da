//! Limits that are seen from outside: time, output, processors.

use std::path::{Path, PathBuf};
use std::time::Duration;

use stockade_core::limits::{Limit, Limits};
use stockade_sandbox::backends::Start;
use stockade_sandbox::drive::{Ending, Sink, Streams};
use stockade_sandbox::guard::Guard;
use stockade_sandbox::sandbox::Sandbox;
use stockade_sandbox::state::{Owned, Sandboxes};

use crate::case::Ground;
use crate::error::SuiteError;
use crate::stage::Seen;
use crate::wall;

use super::{Came, Function, Outside, clean_up, eventually, open_if, processes_with, shell, unique_seconds};

pub(super) const TABLE: &[(&str, Function)] =
    &[("wall_time", wall_time), ("endless_output", endless_output), ("processor_time", processor_time), ("wild_fork_bomb", wild_fork_bomb)];

fn start(outside: &Outside<'_>, work: &Path, limits: Limits) -> Result<(Sandbox, Owned), SuiteError> {
    let refused = |e: &dyn std::fmt::Display| SuiteError::Sandbox(e.to_string());
    let mut spec = wall::specification(outside.target, outside.lab, work, Ground::Shared)?;
    spec.limits = limits;
    let owned = Sandboxes::open(&outside.lab.base.join("state")).and_then(|s| s.create()).map_err(|e| refused(&e))?;
    let start = Start {
        spec: &spec,
        id: &owned.id,
        directory: &owned.directory,
        home: &outside.lab.base.join("home"),
        toolchain_roots: &[],
        hidden: &[],
        guard: &Guard::default(),
        programs: None,
        way_out: None,
        meanwhile: None,
    };
    let sandbox = Sandbox::start(wall::backend(outside.target).as_ref(), &start).map_err(|e| refused(&e))?;
    Ok((sandbox, owned))
}

fn captured() -> Streams<'static> {
    Streams::Plain { stdin: None, stdout: Sink::Buffer(1 << 20), stderr: Sink::Buffer(1 << 20) }
}

/// What detaches itself ends with the rest when time is up.
fn wall_time(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let limits = Limits { time: Some(Limit::asked(Duration::from_millis(500))), ..Limits::default() };
    let (mut sandbox, _owned) = start(outside, &work, limits)?;
    let seconds = unique_seconds();
    let script = format!("(setsid sleep {seconds} > /dev/null 2>&1 < /dev/null &); trap '' TERM INT; sleep {seconds}; sleep {seconds}");
    let outcome = sandbox.exec(&shell(&script), captured(), None).map_err(|e| SuiteError::Sandbox(e.to_string()))?;
    if outcome.ending != Ending::TimedOut {
        return Ok((Seen::Open, format!("it ended as {:?}", outcome.ending)));
    }
    drop(sandbox);
    let gone = eventually(|| processes_with(&seconds).is_empty());
    clean_up(&seconds);
    Ok(open_if(!gone, format!("all gone: {gone}")))
}

/// 40 MB where one is allowed: cut, marked, and the caller's memory does not grow with it.
fn endless_output(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let (mut sandbox, _owned) = start(outside, &work, Limits::default())?;
    let outcome = sandbox.exec(&shell("head -c 40000000 /dev/zero; head -c 3000000 /dev/zero >&2"), captured(), None);
    let outcome = outcome.map_err(|e| SuiteError::Sandbox(e.to_string()))?;
    let bounded = |c: &stockade_sandbox::drive::Captured| c.bytes.len() <= 1 << 20 && c.truncated;
    Ok(open_if(!bounded(&outcome.stdout) || !bounded(&outcome.stderr), format!("{} bytes kept", outcome.stdout.bytes.len())))
}

/// A tenth of a processor, asked for: the kernel has it written down for the group that the program is in, or the start is refused. Nothing
/// is timed, since on a busy machine nobody gets more than a tenth anyway.
fn processor_time(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let limits = Limits { cpu_millis: Some(Limit::asked(100)), ..Limits::default() };
    let (mut sandbox, owned) = match start(outside, &work, limits) {
        Ok(started) => started,
        Err(error) => return Ok((Seen::Held, format!("refused: {error}"))),
    };
    // Programs that are still there when the group is looked at.
    let script = "(while :; do :; done) > /dev/null 2>&1 &";
    sandbox.exec(&shell(script), captured(), None).map_err(|e| SuiteError::Sandbox(e.to_string()))?;
    let (share, members) = quota(&owned.id.to_string());
    Ok(open_if(share != Some((1, 10)) || members < 2, format!("share {share:?}, {members} processes")))
}

/// The share of a processor that the kernel gives a sandbox's control group, as a fraction, and how many processes are in it.
fn quota(id: &str) -> (Option<(u64, u64)>, usize) {
    let mut left = vec![(PathBuf::from("/sys/fs/cgroup"), 0)];
    let (mut share, mut members) = (None, 0);
    while let Some((directory, depth)) = left.pop() {
        if directory.components().any(|c| c.as_os_str().to_string_lossy().contains(id)) {
            let number = |name: &str| std::fs::read_to_string(directory.join(name)).ok().and_then(|t| t.trim().parse::<u64>().ok());
            let second = std::fs::read_to_string(directory.join("cpu.max")).unwrap_or_default();
            let mut words = second.split_whitespace().map(str::parse::<u64>);
            let here = match (number("cpu.cfs_quota_us"), number("cpu.cfs_period_us"), words.next(), words.next()) {
                (Some(part), Some(whole), _, _) | (_, _, Some(Ok(part)), Some(Ok(whole))) => Some((part, whole)),
                _ => None,
            };
            if let Some((part, whole)) = here {
                share = Some(if part * 10 == whole { (1, 10) } else { (part, whole) });
            }
            let inside = std::fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default().lines().count();
            members = members.max(inside);
        }
        if depth < 6 {
            let inner = std::fs::read_dir(&directory).into_iter().flatten().flatten();
            left.extend(inner.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| (e.path(), depth + 1)));
        }
    }
    (share, members)
}

/// A fork bomb that nothing but the wall bounds; another sandbox works meanwhile.
fn wild_fork_bomb(outside: &Outside<'_>) -> Came {
    let place = outside.place()?;
    let work = place.join("ws");
    let limits = Limits { pids: Some(Limit::asked(100)), time: Some(Limit::asked(Duration::from_secs(2))), ..Limits::default() };
    let (mut sandbox, _owned) = start(outside, &work, limits)?;
    let (mut sibling, _other) = start(outside, &work, Limits::default())?;
    // In the background, so that it rages while the sibling is asked.
    let bomb = sandbox.exec(&shell("(:(){ :|:& };:) > /dev/null 2>&1 &"), captured(), None).map(|o| o.ending);
    let mut answered = |_: &usize| sibling.exec(&shell("echo sibling"), captured(), None).is_ok_and(|o| o.stdout.bytes == b"sibling\n");
    let answers = (0..5).filter(&mut answered).count();
    sandbox.destroy();
    Ok(open_if(answers != 5, format!("{answers} of 5 answers; the bomb: {bomb:?}")))
}
