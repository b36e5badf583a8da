//! `stockade run`: one command in a fresh sandbox.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;

use base64::Engine as _;
use stockade_core::demand::{Demand, Enforcement, Level};
use stockade_core::limits::Origin;
use stockade_core::result::{Decision, RunResult, Truncated};
use stockade_core::spec::SandboxSpec;
use stockade_sandbox::background;
use stockade_sandbox::drive::{Ending, Sink, Streams};
use stockade_sandbox::gate::Gate;
use stockade_sandbox::once::{self, Done, Job, JobError, OnSuccess, Remains};
use stockade_sandbox::signals::Signals;
use stockade_sandbox::state::KEEP;
use stockade_sandbox::sweep;

use crate::Context;
use crate::admission::{self, SHELL, Wanted};
use crate::assemble::{self, Assembled};
use crate::cli::RunArgs;
use crate::egress::outlet::Closed;
use crate::egress::{Outlet, summary};
use crate::failure::Failure;
use crate::terminal::RawTerminal;

/// The exit code of what policy denies.
pub(crate) const DENIED: u8 = 126;
/// Bytes of output that are captured where nobody said otherwise.
pub(crate) const CAPTURE: u64 = 10 << 20;
/// Signals that are passed on to the program.
pub(crate) const SIGNALS: [i32; 7] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH];

pub(crate) fn run(args: &RunArgs, context: &Context) -> Result<ExitCode, Failure> {
    let mut assembled = assemble::assemble(&args.sandbox, context)?;
    let argv = argv(args)?;
    let wanted = args.shell.as_deref().map_or(Wanted::Program(&argv), Wanted::Shell);
    if let Some(told) = assembled.admit(wanted, context)? {
        return denied(told, &assembled, context);
    }
    assemble::warn_if_local(assembled.backend.as_ref(), context);
    // Signals wait from here on: what arrives while the sandbox starts reaches the program.
    let signals = Signals::catch(&SIGNALS).map_err(|e| Failure::new("signals", e.to_string()))?;
    let outlet = Outlet::of(&assembled.reach, &assembled.given, context)?;
    let job = Job {
        backend: assembled.backend.as_ref(),
        spec: &assembled.spec,
        state: &assembled.state,
        runtime: &assembled.runtime,
        home: &assembled.home,
        toolchain_roots: &assembled.toolchain_roots,
        argv: &argv,
        on_success: if args.sandbox.apply { OnSuccess::Apply } else { OnSuccess::Keep },
        gate: outlet.as_ref().map(|outlet| outlet as &dyn Gate),
    };
    let run = |streams: Streams<'_>| once::run(&job, streams, Some(&signals)).map_err(|e| explain(&e));
    let ran = in_streams(&assembled.spec, context, run);
    let traffic = outlet.map(|outlet| outlet.close()).unwrap_or_default();
    let (done, remains) = ran?;
    let code = finish(&done, &traffic, &assembled, context).unwrap_or_else(|failure| {
        context.printer.failure(&failure);
        failure.kind.code()
    });
    end(code, remains, assembled)
}

/// Nothing ran: says why, in the shape of a result where one is wanted.
pub(super) fn denied(told: Decision, assembled: &Assembled, context: &Context) -> Result<ExitCode, Failure> {
    if context.printer.is_json() {
        context.printer.json(&RunResult {
            receipt_id: None,
            sandbox_id: String::new(),
            backend: assembled.backend.kind().name().to_owned(),
            exit_code: None,
            signal: None,
            timed_out: false,
            limit: None,
            stdout: Some(String::new()),
            stdout_base64: None,
            stderr: Some(String::new()),
            stderr_base64: None,
            truncated: Truncated::default(),
            duration_ms: 0,
            changes: Vec::new(),
            network: Vec::new(),
            enforcement: BTreeMap::new(),
            decision: told,
            violations: Vec::new(),
        })?;
    } else {
        admission::explain_denial(&told, context);
    }
    Ok(ExitCode::from(DENIED))
}

/// Ends here and now, so that the caller has the result, and takes down what is left meanwhile. What fails is found and told by
/// the next sweep.
pub(super) fn end(code: u8, remains: Remains, assembled: Assembled) -> ! {
    background::end_while(code, move || {
        let _ = remains.clear();
        let _ = sweep::sweep(&assembled.state, &assembled.runtime, KEEP, sweep::Extent::Directories);
    })
}

/// The program and its arguments; a script runs under `bash`.
fn argv(args: &RunArgs) -> Result<Vec<OsString>, Failure> {
    let argv: Vec<OsString> = match &args.shell {
        Some(script) => vec![SHELL.into(), "-c".into(), script.clone()],
        None => args.program.clone(),
    };
    if argv.first().is_none_or(|program| program.is_empty()) {
        return Err(Failure::new("arguments", "the program's name is empty"));
    }
    Ok(argv)
}

/// Chooses where the program's streams lead, and restores the terminal afterwards.
pub(super) fn in_streams<T>(
    spec: &SandboxSpec,
    context: &Context,
    act: impl FnOnce(Streams<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let (stdin, stdout, stderr) = (stdin.as_fd(), stdout.as_fd(), stderr.as_fd());
    refuse_directories(&[stdin, stdout, stderr])?;
    if context.printer.is_json() {
        let limit = spec.limits.output.map_or(CAPTURE, |l| l.value);
        return act(Streams::Plain { stdin: Some(stdin), stdout: Sink::Buffer(limit), stderr: Sink::Buffer(limit) });
    }
    if let Some(limit) = spec.limits.output.filter(|l| l.origin == Origin::Asked) {
        return act(Streams::Plain {
            stdin: Some(stdin),
            stdout: Sink::Limited(stdout, limit.value),
            stderr: Sink::Limited(stderr, limit.value),
        });
    }
    if [stdin, stdout, stderr].iter().all(|fd: &BorrowedFd<'_>| rustix::termios::isatty(fd)) {
        let terminal = RawTerminal::enter(stdin)?;
        let result = act(Streams::Terminal { terminal: stdin });
        drop(terminal);
        return result;
    }
    act(Streams::Plain { stdin: Some(stdin), stdout: Sink::Descriptor(stdout), stderr: Sink::Descriptor(stderr) })
}

/// A directory passed as a stream would lead out of the sandbox: everything beneath and above it could be looked at.
pub(crate) fn refuse_directories(streams: &[BorrowedFd<'_>]) -> Result<(), Failure> {
    let is_directory = |fd: &BorrowedFd<'_>| {
        rustix::fs::fstat(fd).is_ok_and(|s| rustix::fs::FileType::from_raw_mode(s.st_mode) == rustix::fs::FileType::Directory)
    };
    if streams.iter().any(is_directory) {
        return Err(Failure::new("streams", "a standard stream is a directory").with_hint("redirect from /dev/null or a file"));
    }
    Ok(())
}

/// Says what is to be said and gives the exit code.
fn finish(done: &Done, traffic: &Closed, assembled: &Assembled, context: &Context) -> Result<u8, Failure> {
    if let Ending::NotStarted { missing, message } = &done.outcome.ending {
        return Err(if *missing { Failure::no_program("exec", message) } else { Failure::new("exec", message) });
    }
    for (step, micros) in &done.steps {
        context.printer.detail(format!("{step}: {micros} µs"));
    }
    for note in &done.notes {
        context.printer.note(note.as_str());
    }
    mention_partial(&done.enforcement, assembled, context);
    if context.printer.is_json() {
        context.printer.json(&result(done, traffic, assembled))?;
    } else {
        if let Ending::Limit(demand) = &done.outcome.ending {
            context.printer.warning(killed(*demand));
        }
        if done.outcome.ending == Ending::TimedOut {
            context.printer.warning("the time limit was reached; everything in the sandbox was killed");
        }
        if done.outcome.stdout.truncated || done.outcome.stderr.truncated {
            context.printer.warning("output was cut at the limit");
        }
    }
    summary::tell(traffic, context);
    for violation in &done.violations {
        context.printer.warning(violation.as_str());
    }
    if done.applied > 0 {
        context.printer.note(format!("{} applied", files(done.applied)));
    }
    if let Some(left) = done.kept {
        let id = &done.id;
        context.printer.note(format!("{} changed: stockade sandbox diff {id} · apply · discard", files(left)));
    }
    Ok(code(&done.outcome.ending))
}

/// Why everything in a sandbox was killed.
pub(crate) fn killed(demand: Demand) -> String {
    if demand == Demand::Secrets {
        return "a secret was on its way to a host that it is not for; everything in the sandbox was killed".to_owned();
    }
    format!("the {demand} limit was reached; everything in the sandbox was killed")
}

pub(super) fn files(count: usize) -> String {
    format!("{count} {}", if count == 1 { "file" } else { "files" })
}

/// The exit code of CONTRACT for an ending.
pub(crate) fn code(ending: &Ending) -> u8 {
    match ending {
        Ending::Code(code) => u8::try_from(*code & 0xff).unwrap_or(125),
        Ending::Signal(signal) => u8::try_from(128 + signal).unwrap_or(137),
        Ending::TimedOut => 124,
        Ending::Limit(_) => 137,
        Ending::NotStarted { missing: true, .. } => 127,
        Ending::NotStarted { missing: false, .. } => 125,
    }
}

/// Built-in limits that are held in part are said once, not at every run.
pub(super) fn mention_partial(enforcement: &Enforcement, assembled: &Assembled, context: &Context) {
    let partial: Vec<(&Demand, &str)> = enforcement
        .0
        .iter()
        .filter(|(demand, answer)| !demand.is_isolation() && answer.level != Level::Enforced && !assembled.spec.limits.is_asked(**demand))
        .map(|(demand, answer)| (demand, answer.how.as_str()))
        .collect();
    if partial.is_empty() {
        return;
    }
    let marker = assembled.state.join("said-partial");
    let said = std::fs::read_to_string(&marker).unwrap_or_default();
    if partial.iter().all(|(demand, _)| said.lines().any(|line| line == demand.name())) {
        return;
    }
    let text: Vec<String> = partial.iter().map(|(demand, how)| format!("{demand} ({how})")).collect();
    context.printer.note(format!("default limits held in part: {}; `stockade doctor` says more", text.join("; ")));
    // When it cannot be written down it is said again, which does no harm.
    let names = partial.iter().flat_map(|(demand, _)| [demand.name(), "\n"]);
    let _ = std::fs::write(&marker, said.lines().flat_map(|line| [line, "\n"]).chain(names).collect::<String>());
}

pub(super) fn result(done: &Done, traffic: &Closed, assembled: &Assembled) -> RunResult {
    let outcome = &done.outcome;
    let (stdout, stdout_base64) = text_or_base64(&outcome.stdout.bytes);
    let (stderr, stderr_base64) = text_or_base64(&outcome.stderr.bytes);
    RunResult {
        receipt_id: None,
        sandbox_id: done.id.to_string(),
        backend: assembled.backend.kind().name().to_owned(),
        exit_code: if let Ending::Code(code) = outcome.ending { Some(code) } else { None },
        signal: match outcome.ending {
            Ending::Signal(signal) => Some(signal),
            Ending::Limit(_) => Some(9),
            Ending::Code(_) | Ending::TimedOut | Ending::NotStarted { .. } => None,
        },
        timed_out: outcome.ending == Ending::TimedOut,
        limit: match outcome.ending {
            Ending::Limit(demand) => Some(demand.to_string()),
            Ending::TimedOut => Some(Demand::Time.to_string()),
            Ending::Code(_) | Ending::Signal(_) | Ending::NotStarted { .. } => None,
        },
        stdout,
        stdout_base64,
        stderr,
        stderr_base64,
        truncated: Truncated { stdout: outcome.stdout.truncated, stderr: outcome.stderr.truncated },
        duration_ms: once::millis(outcome.duration),
        changes: done.changes.clone(),
        network: summary::listed(&traffic.rows),
        enforcement: done.enforcement.levels(),
        decision: assembled.told.clone(),
        violations: done.violations.clone(),
    }
}

/// Text where it is text, base64 where it is not.
pub(crate) fn text_or_base64(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(base64::engine::general_purpose::STANDARD.encode(bytes))),
    }
}

/// A job's error as a failure with its step and fix.
pub(crate) fn explain(error: &JobError) -> Failure {
    let (step, hint) = match error {
        JobError::State(_) => ("state".to_owned(), None),
        JobError::Backend(error) => (error.step(), error.hint()),
        JobError::Gate(error) => (error.step.clone(), error.hint.clone()),
        JobError::Connection(_) => ("sandbox".to_owned(), None),
        JobError::Furnish { .. } => ("files of the agent".to_owned(), None),
        JobError::Layer(error) => ("changes".to_owned(), error.hint().map(str::to_owned)),
        JobError::Keep(_) => ("changes".to_owned(), None),
    };
    let failure = Failure::from_error(step, error);
    match hint {
        Some(hint) => failure.with_hint(super::runnable(&hint)),
        None => failure,
    }
}
