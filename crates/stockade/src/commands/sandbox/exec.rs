//! `sandbox exec` and `sandbox shell`: a program in a sandbox that stands.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use stockade_core::demand::Demand;
use stockade_core::limits::Origin;
use stockade_core::path::SafePath;
use stockade_core::result::Decision;
use stockade_sandbox::drive::{self, Ending, Outcome, Sink, Streams, Watch};
use stockade_sandbox::keeper::Charge;
use stockade_sandbox::signals::Signals;
use stockade_sandbox::state::{Found, Record};
use stockade_sandbox::wire::{Exec, Stdio};
use stockade_sandbox::{keeper, once};

use super::super::run::{CAPTURE, DENIED, SIGNALS, code, explain, killed, refuse_directories, text_or_base64};
use super::{connect, find};
use crate::Context;
use crate::admission::{self, Answer, Ground, Rules, Wanted};
use crate::assemble::writable;
use crate::cli::{EnvFlag, ExecArgs, OneSandbox};
use crate::failure::Failure;
use crate::terminal::RawTerminal;

/// The supervisor watches limits; from here a program ends when its connection does.
struct Afar;

impl Watch for Afar {
    fn tick(&mut self) -> Option<Demand> {
        None
    }

    fn is_needed(&self) -> bool {
        false
    }

    fn kill(&mut self) {}
}

pub(super) fn exec(args: &ExecArgs, context: &Context) -> Result<ExitCode, Failure> {
    let found = find(&args.sandbox, context)?;
    refuse_plain_secrets(&args.env, &found)?;
    let told = match admitted(&args.program, args.cwd.as_ref(), &found, context)? {
        Ok(told) => told,
        Err(told) => return denied(&told, &found, context),
    };
    let exec = program(&args.program, &args.env, args.cwd.as_ref(), &found.record, context)?;
    let known = keeper::violations(&found.directory).len();
    let outcome = in_sandbox(&found, exec, shorter(args.timeout, found.record.time), context)?;
    let violations: Vec<String> = keeper::violations(&found.directory).into_iter().skip(known).collect();
    for violation in &violations {
        context.printer.warning(violation.as_str());
    }
    if let Ending::NotStarted { missing, message } = &outcome.ending {
        return Err(if *missing { Failure::no_program("exec", message) } else { Failure::new("exec", message) });
    }
    if context.printer.is_json() {
        let (stdout, stdout_base64) = text_or_base64(&outcome.stdout.bytes);
        let (stderr, stderr_base64) = text_or_base64(&outcome.stderr.bytes);
        let mut value = json!({
            "sandbox_id": found.record.id,
            "exit_code": if let Ending::Code(code) = outcome.ending { Some(code) } else { None },
            "signal": match outcome.ending {
                Ending::Signal(signal) => Some(signal),
                Ending::Limit(_) => Some(libc::SIGKILL),
                Ending::Code(_) | Ending::TimedOut | Ending::NotStarted { .. } => None,
            },
            "timed_out": outcome.ending == Ending::TimedOut,
            "limit": match outcome.ending {
                Ending::Limit(demand) => Some(demand.name()),
                Ending::TimedOut => Some(Demand::Time.name()),
                Ending::Code(_) | Ending::Signal(_) | Ending::NotStarted { .. } => None,
            },
            "truncated": { "stdout": outcome.stdout.truncated, "stderr": outcome.stderr.truncated },
            "duration_ms": once::millis(outcome.duration),
            "violations": violations,
            "decision": told,
        });
        let texts = [("stdout", stdout), ("stdout_base64", stdout_base64), ("stderr", stderr), ("stderr_base64", stderr_base64)];
        for (key, text) in texts.into_iter().filter_map(|(k, t)| t.map(|t| (k, t))) {
            if let Some(map) = value.as_object_mut() {
                map.insert(key.to_owned(), text.into());
            }
        }
        context.printer.json(&value)?;
    } else {
        if let Ending::Limit(demand) = &outcome.ending {
            context.printer.warning(killed(*demand));
        }
        if outcome.ending == Ending::TimedOut {
            context.printer.warning("the time limit was reached; the program was killed");
        }
        if outcome.stdout.truncated || outcome.stderr.truncated {
            context.printer.warning("output was cut at the limit");
        }
    }
    Ok(ExitCode::from(code(&outcome.ending)))
}

pub(super) fn shell(args: &OneSandbox, context: &Context) -> Result<ExitCode, Failure> {
    let found = find(&args.sandbox, context)?;
    let shell = found.record.environment.iter().find(|(name, _)| name == "SHELL").map(|(_, value)| value.clone());
    let shell = shell.filter(|s| std::path::Path::new(s).starts_with("/bin") || std::path::Path::new(s).starts_with("/usr/bin"));
    let argv = [shell.unwrap_or_else(|| "/bin/sh".into())];
    if let Err(told) = admitted(&argv, None, &found, context)? {
        return denied(&told, &found, context);
    }
    let exec = program(&argv, &[], None, &found.record, context)?;
    let outcome = in_sandbox(&found, exec, found.record.time, context)?;
    match outcome.ending {
        Ending::NotStarted { message, .. } => Err(Failure::no_program("shell", message)),
        ending => Ok(ExitCode::from(code(&ending))),
    }
}

/// Asks the rules. Which programs may run was fixed when the sandbox was made, so a verdict that depends on it holds only there.
fn admitted(argv: &[OsString], cwd: Option<&PathBuf>, found: &Found, context: &Context) -> Result<Result<Decision, Decision>, Failure> {
    let workspace = found.record.workspace_path();
    let rules = Rules::load(context.places()?, &workspace)?;
    if rules.policies().is_none() {
        return Ok(Ok(Decision::no_policy()));
    }
    let path = found.record.environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| std::env::split_paths(value).collect());
    let path: Vec<PathBuf> = path.unwrap_or_default();
    let spec = Charge::read(&found.directory).map_err(|e| explain(&e))?.spec;
    let current = working_directory(cwd, &found.record)?;
    let ground = Ground { path: &path, current: current.as_path(), writable: writable(&spec) };
    match rules.admit(Wanted::Program(argv), &ground, context)? {
        Answer::Denied(told) => Ok(Err(told)),
        Answer::Admitted(admission) => {
            if admission.is_held_by(spec.exec_list.as_deref()) {
                return Ok(Ok(admission.told));
            }
            Err(Failure::new("policy", "the rules name the programs that may run, and this sandbox was made without that list")
                .with_hint("use `stockade run`, or make the sandbox with --exec-allow"))
        }
    }
}

fn denied(told: &Decision, found: &Found, context: &Context) -> Result<ExitCode, Failure> {
    if context.printer.is_json() {
        context.printer.json(&json!({ "sandbox_id": found.record.id, "exit_code": null, "decision": told }))?;
    } else {
        admission::explain_denial(told, context);
    }
    Ok(ExitCode::from(DENIED))
}

/// A variable that holds a placeholder keeps it: the caller's own value would be inside.
fn refuse_plain_secrets(env: &[EnvFlag], found: &Found) -> Result<(), Failure> {
    if env.is_empty() {
        return Ok(());
    }
    let secrets = Charge::read(&found.directory).map_err(|e| explain(&e))?.reach.secrets;
    match env.iter().find(|flag| secrets.iter().any(|secret| secret.name.as_str() == flag.name)) {
        None => Ok(()),
        Some(flag) => Err(Failure::new("arguments", format!("`{}` is a secret of this sandbox", flag.name))
            .with_hint(format!("leave out --env {}: inside, the variable holds a placeholder", flag.name))),
    }
}

/// The sandbox's own time limit holds whatever the caller asks for.
fn shorter(asked: Option<Duration>, limit: Option<Duration>) -> Option<Duration> {
    [asked, limit].into_iter().flatten().min()
}

fn program(argv: &[OsString], env: &[EnvFlag], cwd: Option<&PathBuf>, record: &Record, context: &Context) -> Result<Exec, Failure> {
    let mut variables = record.environment.clone();
    for flag in env {
        variables.retain(|(name, _)| *name != flag.name);
        if let Some(value) = flag.value.clone().or_else(|| context.environment.variable(&flag.name)) {
            variables.push((flag.name.clone(), value));
        }
    }
    // The terminal is the caller's, not the creator's.
    if let Some(term) = context.environment.variable("TERM") {
        variables.retain(|(name, _)| name != "TERM");
        variables.push(("TERM".into(), term));
    }
    let cwd = working_directory(cwd, record)?;
    Ok(Exec {
        argv: argv.iter().map(|a| a.as_bytes().into()).collect(),
        env: variables.iter().map(|(n, v)| (n.as_str().into(), v.as_bytes().into())).collect(),
        cwd: cwd.as_bytes().into(),
        stdio: Stdio::Piped { stdin: false },
    })
}

/// Where a program starts: beneath the sandbox's own directory, unless the path is absolute.
fn working_directory(cwd: Option<&PathBuf>, record: &Record) -> Result<SafePath, Failure> {
    let workspace = record.workspace_path();
    let base = record.cwd.as_ref().map_or(workspace.as_path(), SafePath::as_path);
    SafePath::new(cwd.map_or_else(|| base.to_owned(), |c| base.join(c))).map_err(|e| Failure::from_error("working directory", &e))
}

fn in_sandbox(found: &Found, exec: Exec, timeout: Option<Duration>, context: &Context) -> Result<Outcome, Failure> {
    let mut remote = connect(found, context)?;
    let signals = Signals::catch(&SIGNALS).map_err(|e| Failure::new("signals", e.to_string()))?;
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let (stdin, stdout, stderr) = (stdin.as_fd(), stdout.as_fd(), stderr.as_fd());
    refuse_directories(&[stdin, stdout, stderr])?;
    let interactive = !context.printer.is_json() && [stdin, stdout, stderr].iter().all(rustix::termios::isatty);
    let raw = if interactive { Some(RawTerminal::enter(stdin)?) } else { None };
    let streams = if interactive {
        Streams::Terminal { terminal: stdin }
    } else if context.printer.is_json() {
        let limit = found.record.output.map_or(CAPTURE, |l| l.value);
        Streams::Plain { stdin: Some(stdin), stdout: Sink::Buffer(limit), stderr: Sink::Buffer(limit) }
    } else if let Some(limit) = found.record.output.filter(|l| l.origin == Origin::Asked) {
        Streams::Plain { stdin: Some(stdin), stdout: Sink::Limited(stdout, limit.value), stderr: Sink::Limited(stderr, limit.value) }
    } else {
        Streams::Plain { stdin: Some(stdin), stdout: Sink::Descriptor(stdout), stderr: Sink::Descriptor(stderr) }
    };
    let outcome = drive::drive(&mut remote.connection, exec, streams, timeout, Some(&signals), &mut Afar);
    drop(raw);
    outcome.map_err(|e| Failure::from_error("sandbox", &e))
}
