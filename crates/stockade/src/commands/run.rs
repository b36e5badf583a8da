//! `stockade run`: one command in a fresh sandbox.

use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;

use stockade_core::demand::{Demand, Enforcement, Level};
use stockade_core::limits::Origin;
use stockade_core::result::Decision;
use stockade_core::spec::SandboxSpec;
use stockade_sandbox::background;
use stockade_sandbox::drive::{Ending, Sink, Streams};
use stockade_sandbox::once::{Done, Remains};
use stockade_sandbox::signals::Signals;
use stockade_sandbox::state::KEEP;
use stockade_sandbox::sweep;

use crate::Context;
use crate::admission;
use crate::assemble::{self, Assembled, Autostart};
use crate::cli::RunArgs;
use crate::daemon;
use crate::egress::outlet::Closed;
use crate::egress::summary;
pub(crate) use crate::engine::explain;
pub(crate) use crate::engine::result::text_or_base64;
use crate::engine::{self, Asks, Call, Came, End, Ran, Subject, result};
use crate::failure::Failure;
use crate::receipts::{Book, Capture};
use crate::terminal::RawTerminal;

/// The exit code of what policy denies.
pub(crate) const DENIED: u8 = 126;
/// Bytes of output that are captured where nobody said otherwise.
pub(crate) const CAPTURE: u64 = 10 << 20;
/// Signals that are passed on to the program.
pub(crate) const SIGNALS: [i32; 7] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH];

pub(crate) fn run(args: &RunArgs, context: &Context) -> Result<ExitCode, Failure> {
    let assembled = assemble::assemble(&args.sandbox, context)?;
    if args.shell.is_none() && args.program.first().is_none_or(|program| program.is_empty()) {
        return Err(Failure::new("arguments", "the program's name is empty"));
    }
    let subject = args.shell.as_ref().map_or(Subject::Program(&args.program), Subject::Script);
    launch(assembled, subject, context)
}

/// Runs what is asked for, and ends with its exit code; or says that it was refused.
pub(super) fn launch(assembled: Assembled, subject: Subject<'_>, context: &Context) -> Result<ExitCode, Failure> {
    // Whoever types is asked; an agent that has something typed is not.
    let asks = if assembled.rules.asker().agent().is_some() { Asks::Nobody } else { Asks::Here };
    let call = Call { assembled, subject, refused: None, capture: Capture::of(context), asks };
    let came = engine::invoke(call, context, |assembled, perform| {
        // Signals wait from here on: what arrives while the sandbox starts reaches the program.
        let signals = Signals::catch(&SIGNALS).map_err(|e| Failure::new("signals", e.to_string()))?;
        in_streams(&assembled.spec, context, |streams| perform(streams, Some(&signals)))
    })?;
    match tell(came, context)? {
        Told { code, remains: None, .. } => Ok(ExitCode::from(code)),
        Told { code, remains: Some(remains), assembled, book } => end(code, remains, assembled, book, context),
    }
}

/// A call of which everything was said.
pub(crate) struct Told {
    /// The exit code.
    pub(crate) code: u8,
    /// What is left to clear away; nothing where nothing ran.
    pub(crate) remains: Option<Remains>,
    /// The sandbox.
    pub(crate) assembled: Assembled,
    /// The ledger, to be closed.
    pub(crate) book: Book,
}

/// Says what came of a call.
pub(crate) fn tell(came: Came, context: &Context) -> Result<Told, Failure> {
    let Came { end, assembled, book, receipt_id, filed: _ } = came;
    let Ran { done, traffic, remains } = match end {
        End::Denied(told) => {
            denied(told, receipt_id, &assembled, context)?;
            return Ok(Told { code: DENIED, remains: None, assembled, book });
        }
        End::Elsewhere => return Err(Failure::new("approval", "a person must be asked")),
        End::Ran(ran) => *ran,
    };
    let code = finish(&done, &traffic, &receipt_id, &assembled, context).unwrap_or_else(|failure| {
        context.printer.failure(&failure);
        failure.kind.code()
    });
    Ok(Told { code, remains: Some(remains), assembled, book })
}

/// Nothing ran: says why, in the shape of a result where one is wanted.
pub(super) fn denied(told: Decision, receipt_id: String, assembled: &Assembled, context: &Context) -> Result<ExitCode, Failure> {
    if context.printer.is_json() {
        context.printer.json(&result::of_denial(told, receipt_id, assembled))?;
    } else {
        admission::explain_denial(&told, context);
    }
    Ok(ExitCode::from(DENIED))
}

/// Ends here and now, so that the caller has the result, and takes down what is left meanwhile. What fails is found and told by
/// the next sweep.
pub(super) fn end(code: u8, remains: Remains, assembled: Assembled, book: Book, context: &Context) -> ! {
    // Closed here: the child must not go on with what this process has open.
    let untidy = book.close();
    let daemon = (assembled.daemon == Autostart::Yes).then(|| daemon::Starting::of(&assembled, context));
    background::end_while(code, move || {
        let _ = remains.clear();
        let _ = sweep::sweep(&assembled.state, &assembled.runtime, KEEP, sweep::Extent::Directories);
        untidy.tidy();
        if let Some(daemon) = daemon {
            daemon.start();
        }
    })
}

/// Chooses where the program's streams lead, and restores the terminal afterwards.
pub(crate) fn in_streams<T>(
    spec: &SandboxSpec,
    context: &Context,
    act: impl FnOnce(Streams<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let [stdin, stdout, stderr] = match context.printer.visitor() {
        Some(visitor) => [visitor.stdin.as_fd(), visitor.stdout.as_fd(), visitor.stderr.as_fd()],
        None => [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()],
    };
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
fn finish(done: &Done, traffic: &Closed, receipt_id: &str, assembled: &Assembled, context: &Context) -> Result<u8, Failure> {
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
        context.printer.json(&result::of_run(done, traffic, receipt_id, assembled))?;
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
