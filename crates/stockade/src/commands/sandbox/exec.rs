//! `sandbox exec` and `sandbox shell`: a program in a sandbox that stands.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use stockade_core::demand::Demand;
use stockade_core::limits::Origin;
use stockade_core::path::SafePath;
use stockade_core::result::Decision;
use stockade_ledger::receipt::Trace;
use stockade_sandbox::drive::{self, Ending, Outcome, Sink, Streams, Watch};
use stockade_sandbox::keeper::Charge;
use stockade_sandbox::once;
use stockade_sandbox::signals::Signals;
use stockade_sandbox::state::{Found, Record};
use stockade_sandbox::wire::{Exec, Stdio};

use super::super::run::{CAPTURE, DENIED, SIGNALS, code, explain, killed, refuse_directories, text_or_base64};
use super::{connect, find};
use crate::Context;
use crate::admission::{self, Answer, Ground, Rules, Wanted};
use crate::approval;
use crate::assemble::writable;
use crate::cli::{EnvFlag, ExecArgs, OneSandbox};
use crate::engine::asker::Asker;
use crate::failure::Failure;
use crate::receipts::{Asked, Book, Capture, Inside, Program, Secrets, policy_of, weight_in};
use crate::terminal::RawTerminal;

/// The supervisor watches limits; from here a program ends when its connection does.
pub(crate) struct Afar;

impl Watch for Afar {
    fn tick(&mut self) -> Option<Demand> {
        None
    }

    fn is_needed(&self) -> bool {
        false
    }

    fn kill(&mut self) {}
}

/// What is to run in a sandbox that stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Errand<'a> {
    /// The program and its arguments.
    pub(crate) argv: &'a [OsString],
    /// Variables besides the sandbox's own.
    pub(crate) env: &'a [EnvFlag],
    /// Where it starts.
    pub(crate) cwd: Option<&'a PathBuf>,
    /// How long it may take, if not so long as the sandbox allows.
    pub(crate) time: Option<Duration>,
    /// A denial that was decided before the rules were asked.
    pub(crate) refused: Option<&'a Decision>,
}

/// Who asks for it.
pub(crate) struct Errander<'a> {
    /// Who.
    pub(crate) asker: Asker,
    /// What they were doing.
    pub(crate) trace: Option<&'a Trace>,
}

/// What came of it.
pub(crate) struct Ended {
    /// What `--json` prints.
    pub(crate) value: Value,
    /// How the program ended; nothing where it was denied.
    pub(crate) outcome: Option<Outcome>,
    told: Decision,
    violations: Vec<String>,
}

pub(super) fn exec(args: &ExecArgs, context: &Context) -> Result<ExitCode, Failure> {
    let found = find(&args.sandbox, context)?;
    let errand = Errand { argv: &args.program, env: &args.env, cwd: args.cwd.as_ref(), time: args.timeout, refused: None };
    let who = Errander { asker: Asker::Person, trace: None };
    let ended = run_in(&found, errand, &who, context, |exec, time| driven(&found, exec, time, context))?;
    for violation in &ended.violations {
        context.printer.warning(violation.as_str());
    }
    if context.printer.is_json() {
        context.printer.json(&ended.value)?;
    }
    let Some(outcome) = &ended.outcome else {
        if !context.printer.is_json() {
            admission::explain_denial(&ended.told, context);
        }
        return Ok(ExitCode::from(DENIED));
    };
    if !context.printer.is_json() {
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

/// Runs something in a sandbox that stands: asks the rules, writes the intent, has it driven and writes the outcome; or writes that it was denied.
pub(crate) fn run_in(
    found: &Found,
    errand: Errand<'_>,
    who: &Errander<'_>,
    context: &Context,
    drive: impl FnOnce(Exec, Option<Duration>) -> Result<Outcome, Failure>,
) -> Result<Ended, Failure> {
    refuse_plain_secrets(errand.env, found)?;
    let rules = Rules::load_for(who.asker.clone(), context.places()?, &found.record.workspace_path())?;
    let book = Book::of(context)?;
    let charge = Charge::read(&found.directory).ok();
    let secrets = Secrets::of(charge.as_ref(), context);
    let inside = Inside::new(&book, Asked::Program(errand.argv), weight_in(found), found, &secrets)?;
    if let Some(agent) = who.asker.agent() {
        inside.deed.of_agent(agent.whole(), agent.client().to_owned());
    }
    inside.deed.note(|draft| draft.trace = who.trace.cloned());
    let judged = match errand.refused {
        Some(told) => Err(told.clone()),
        None => admitted(errand.argv, errand.cwd, &rules, found, context)?,
    };
    let told = match judged {
        Ok(told) => told,
        Err(told) => {
            inside.deed.deny(&told, &rules)?;
            let value = json!({ "receipt_id": inside.deed.id(), "sandbox_id": found.record.id, "exit_code": null, "decision": told });
            return Ok(Ended { value, outcome: None, told, violations: Vec::new() });
        }
    };
    let exec = program(errand.argv, errand.env, errand.cwd, &found.record, context)?;
    let receipt = receipt_of(inside, errand.argv, &exec, &told, &rules, context)?;
    receipt.begin()?;
    let time = shorter(errand.time, found.record.time);
    let outcome = drive(exec, time).inspect_err(|failure| receipt.fail(failure, context))?;
    let violations = receipt.finish(&outcome, context);
    let receipt_id = receipt.id();
    drop(receipt);
    drop(secrets);
    book.close().tidy();
    if let Ending::NotStarted { missing, message } = &outcome.ending {
        return Err(if *missing { Failure::no_program("exec", message) } else { Failure::new("exec", message) });
    }
    let value = described(&receipt_id, found, &outcome, &violations, &told);
    Ok(Ended { value, outcome: Some(outcome), told, violations })
}

fn described(receipt_id: &str, found: &Found, outcome: &Outcome, violations: &[String], told: &Decision) -> Value {
    let (stdout, stdout_base64) = text_or_base64(&outcome.stdout.bytes);
    let (stderr, stderr_base64) = text_or_base64(&outcome.stderr.bytes);
    let mut value = json!({
        "receipt_id": receipt_id,
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
    value
}

pub(super) fn shell(args: &OneSandbox, context: &Context) -> Result<ExitCode, Failure> {
    let found = find(&args.sandbox, context)?;
    let shell = found.record.environment.iter().find(|(name, _)| name == "SHELL").map(|(_, value)| value.clone());
    let shell = shell.filter(|s| std::path::Path::new(s).starts_with("/bin") || std::path::Path::new(s).starts_with("/usr/bin"));
    let argv = [shell.unwrap_or_else(|| "/bin/sh".into())];
    let rules = Rules::load(context.places()?, &found.record.workspace_path())?;
    let book = Book::of(context)?;
    let charge = Charge::read(&found.directory).ok();
    let secrets = Secrets::of(charge.as_ref(), context);
    let inside = Inside::new(&book, Asked::Program(&argv), weight_in(&found), &found, &secrets)?;
    let told = match admitted(&argv, None, &rules, &found, context)? {
        Ok(told) => told,
        Err(told) => return denied(&inside, &told, &rules, &found, context),
    };
    let exec = program(&argv, &[], None, &found.record, context)?;
    let receipt = receipt_of(inside, &argv, &exec, &told, &rules, context)?;
    let outcome = in_sandbox(&found, exec, found.record.time, &receipt, context)?;
    for violation in receipt.finish(&outcome, context) {
        context.printer.warning(violation);
    }
    drop(receipt);
    drop(secrets);
    book.close().tidy();
    match outcome.ending {
        Ending::NotStarted { message, .. } => Err(Failure::no_program("shell", message)),
        ending => Ok(ExitCode::from(code(&ending))),
    }
}

/// Asks the rules. Which programs may run was fixed when the sandbox was made, so a verdict that depends on it holds only there.
fn admitted(
    argv: &[OsString],
    cwd: Option<&PathBuf>,
    rules: &Rules,
    found: &Found,
    context: &Context,
) -> Result<Result<Decision, Decision>, Failure> {
    if let Some(told) = rules.refusal_of_agents() {
        return Ok(Err(told));
    }
    if rules.layers().is_empty() {
        return Ok(Ok(Decision::no_policy()));
    }
    let path = found.record.environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| std::env::split_paths(value).collect());
    let path: Vec<PathBuf> = path.unwrap_or_default();
    let spec = Charge::read(&found.directory).map_err(|e| explain(&e))?.spec;
    let current = working_directory(cwd, &found.record)?;
    let ground = Ground { path: &path, current: current.as_path(), writable: writable(&spec) };
    let (admission, question) = match rules.admit(Wanted::Program(argv), &ground, context)? {
        Answer::Denied(told) => return Ok(Err(told)),
        Answer::Admitted(admission) => (admission, None),
        Answer::Asked(admission, question) => (admission, Some(question)),
    };
    if !admission.is_held_by(spec.exec_list.as_deref()) {
        context.printer.note("use `stockade run`, or make the sandbox with --exec-allow");
        let reason = Some("the rules name the programs that may run, and this sandbox was made without that list".to_owned());
        let rule = "no-exec-list".to_owned();
        return Ok(Err(Decision { verdict: "deny".into(), rule, reason, source: None, suggest: None, approval_id: None }));
    }
    match question.map(|question| question.ask_here(context)).transpose()? {
        None | Some(approval::Answer::Approved(_) | approval::Answer::Yes(_)) => Ok(Ok(admission.told)),
        Some(approval::Answer::No(_, told) | approval::Answer::Refused(told) | approval::Answer::Waits(told, _)) => Ok(Err(told)),
    }
}

/// What is about to run, with everything that is known of it.
fn receipt_of<'a>(
    inside: Inside<'a>,
    argv: &[OsString],
    exec: &Exec,
    told: &Decision,
    rules: &Rules,
    context: &Context,
) -> Result<Program<'a>, Failure> {
    inside.deed.note(|draft| draft.policy = Some(policy_of(told, rules)));
    let text = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    let env: Vec<(String, OsString)> =
        exec.env.iter().map(|(name, value)| (String::from_utf8_lossy(&name.0).into_owned(), text(&value.0))).collect();
    inside.program(argv, Path::new(&text(&exec.cwd.0)), &env, Capture::of(context), context)
}

fn denied(inside: &Inside<'_>, told: &Decision, rules: &Rules, found: &Found, context: &Context) -> Result<ExitCode, Failure> {
    inside.deed.deny(told, rules)?;
    if context.printer.is_json() {
        context
            .printer
            .json(&json!({ "receipt_id": inside.deed.id(), "sandbox_id": found.record.id, "exit_code": null, "decision": told }))?;
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

/// Runs a program between its intent and its outcome; the outcome is the caller's to write, unless it failed.
fn in_sandbox(found: &Found, exec: Exec, timeout: Option<Duration>, receipt: &Program<'_>, context: &Context) -> Result<Outcome, Failure> {
    receipt.begin()?;
    driven(found, exec, timeout, context).inspect_err(|failure| receipt.fail(failure, context))
}

fn driven(found: &Found, exec: Exec, timeout: Option<Duration>, context: &Context) -> Result<Outcome, Failure> {
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
