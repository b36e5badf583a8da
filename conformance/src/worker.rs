//! One target's cases, one after another, in the process and as the user that starts the sandboxes.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use stockade_sandbox::drive::{Ending, Sink, Streams};
use stockade_sandbox::once::OnSuccess;

use crate::case::{self, Attempt, Case, Ground, Verdict};
use crate::error::SuiteError;
use crate::host;
use crate::lab::Lab;
use crate::probe;
use crate::stage::{Observation, Seen};
use crate::target::Target;
use crate::wall::Wall;

/// Runs the cases whose id begins with `only` and writes one line of JSON for each.
pub fn work(target: Target, base: &Path, only: &str, out: &mut dyn Write) -> Result<(), SuiteError> {
    let mut lab = Lab::make(base)?;
    let _leaked = leak(&lab)?;
    let cases: Vec<Case> = case::all()?.into_iter().filter(|c| c.id.starts_with(only)).collect();
    if cases.iter().any(|case| case.ground == Ground::Reach && case.expectation(target).verdict != Verdict::NotApplicable) {
        lab.start_recorder()?;
    }
    let mut say = |id: &str, seen: Seen, detail: String| -> Result<(), SuiteError> {
        let line = serde_json::to_string(&Observation { id: id.to_owned(), seen, detail });
        let line = line.map_err(|e| SuiteError::Program { step: "writing", why: e.to_string() })?;
        writeln!(out, "{line}").map_err(SuiteError::file("write", "stdout"))
    };
    let applies = |case: &&Case| case.expectation(target).verdict != Verdict::NotApplicable;
    for case in cases.iter().filter(|c| !applies(c)) {
        say(&case.id, Seen::NotApplicable, String::new())?;
    }
    for ground in [Ground::Shared, Ground::Listed, Ground::Rw] {
        let wanted = |case: &&Case| matches!(case.attempt, Attempt::Probe(_)) && case.ground == ground;
        let batch: Vec<&Case> = cases.iter().filter(applies).filter(wanted).collect();
        if !batch.is_empty() {
            for (id, seen, detail) in probes(target, &lab, ground, &batch)? {
                say(id, seen, detail)?;
            }
        }
    }
    for case in cases.iter().filter(applies) {
        let (seen, detail) = match &case.attempt {
            Attempt::Probe(_) if case.ground != Ground::Limited => continue,
            Attempt::Probe(_) => {
                let Some((_, seen, detail)) = probes(target, &lab, case.ground, &[case])?.into_iter().next() else { continue };
                (seen, detail)
            }
            Attempt::Script(script) => crate::script::attempt(target, &lab, &case.id, case.ground, script)
                .unwrap_or_else(|error| (Seen::Broken, error.to_string())),
            Attempt::Host(name) => host::attempt(target, &lab, &case.id, name).unwrap_or_else(|error| (Seen::Broken, error.to_string())),
        };
        say(&case.id, seen, detail)?;
    }
    Ok(())
}

/// Owns one sandbox and runs a script in it as `stockade run` does, for cases that kill owners.
pub fn own(target: Target, base: &Path, work: &Path, script: &str) -> Result<(), SuiteError> {
    use std::os::fd::AsFd;
    let lab = Lab::at(base)?;
    let (null, out) = (File::open("/dev/null").map_err(SuiteError::file("open", "/dev/null"))?, std::io::stdout());
    let streams =
        Streams::Plain { stdin: Some(null.as_fd()), stdout: Sink::Descriptor(out.as_fd()), stderr: Sink::Descriptor(out.as_fd()) };
    let outside = host::Outside { target, lab: &lab, id: "owner" };
    outside.once_with(work, Ground::Shared, script, OnSuccess::Keep, streams).map(drop)
}

/// A descriptor of the secret's directory that the worker failed to close: nothing inside may have it.
fn leak(lab: &Lab) -> Result<std::os::fd::OwnedFd, SuiteError> {
    let directory = File::open(&lab.base).map_err(SuiteError::file("open", &lab.base))?;
    // `dup` makes descriptors that programs inherit.
    rustix::io::dup(&directory).map_err(|e| SuiteError::Program { step: "leaking a descriptor", why: e.to_string() })
}

/// Several attempts of the probe in one program in one sandbox.
fn probes<'a>(target: Target, lab: &Lab, ground: Ground, batch: &[&'a Case]) -> Result<Vec<(&'a str, Seen, String)>, SuiteError> {
    let work = match ground {
        Ground::Shared => lab.base.join("work"),
        Ground::Listed | Ground::Rw | Ground::Limited | Ground::Granted | Ground::Reach => {
            let first = batch.first().map_or("none", |c| c.id.as_str());
            lab.for_case(&format!("ground-{first}"))?.join("ws")
        }
    };
    let mut argv: Vec<OsString> = vec![lab.probe().into(), "try".into()];
    argv.extend(lab.facts(&work).into_iter().map(OsString::from));
    argv.push("--".into());
    let name = |case: &Case| if let Attempt::Probe(name) = &case.attempt { name.clone() } else { String::new() };
    argv.extend(batch.iter().map(|case| OsString::from(name(case))));
    let mut wall = Wall::start(target, lab, &work, ground)?;
    let ran = wall.run(&argv)?;
    drop(wall);
    let lines = probe::read(&ran.stdout);
    let answer = |case: &&'a Case| {
        let (mut seen, mut detail) = lines.get(&name(case)).cloned().unwrap_or_else(|| unanswered(ground, &ran));
        if let Some(trace) = &case.trace {
            let path = lab.trace(trace, &work);
            // Only what is really there counts, whatever the attempt believes.
            let there = path.symlink_metadata().is_ok();
            detail = format!("{detail}; `{}` is {}", path.display(), if there { "there" } else { "not there" });
            seen = if there { Seen::Open } else { Seen::Held };
        }
        (case.id.as_str(), seen, detail)
    };
    Ok(batch.iter().map(answer).collect())
}

/// No word from an attempt: at a limit the sandbox was killed, which is what limits are for; otherwise something is wrong.
fn unanswered(ground: Ground, ran: &crate::wall::Ran) -> (Seen, String) {
    let said = String::from_utf8_lossy(&ran.stderr).chars().take(300).collect::<String>();
    match &ran.ending {
        Ending::Limit(demand) if ground == Ground::Limited => (Seen::Held, format!("everything was killed at the {demand} limit")),
        other => (Seen::Broken, format!("the probe ended without an answer: {other:?} {said}")),
    }
}
