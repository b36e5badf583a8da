//! Does what a call asks for, on a thread of its own: puts the engine's call together. What came of it is worded by the surface that asked.

use std::cell::OnceCell;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use stockade_core::limits::Limit;
use stockade_core::path::SafePath;
use stockade_core::result::{Decision, RunResult};
use stockade_core::spec::MountMode;
use stockade_ledger::receipt::Trace;
use stockade_policy::{Floor, shell};
use stockade_sandbox::drive::{Ending, Sink, Streams};
use stockade_sandbox::once::Remains;

use super::calls::Entered;
use super::granted::Granted;
use super::tools::{Changes, Order, Shell, Work};
use super::{MAIN, Session};
use crate::approval::{Consent, Filed, input};
use crate::assemble::{Additions, Assembled, assemble_with};
use crate::cli::{EnvFlag, SandboxFlags};
use crate::commands::run::CAPTURE;
use crate::daemon::warm::{self, Guess};
use crate::engine::asker::{AgentName, Asker};
use crate::engine::capability::{Apply, Called, Inputs, Wish};
use crate::engine::files::{self, Act, Handled};
use crate::engine::overlay::{Overlay, Turn};
use crate::engine::{self, Asks, Call, Came, End, Ground, Subject, result};
use crate::failure::Failure;
use crate::receipts::{Book, Capture};

/// Bytes of a file that is read.
const MOST_READ: u64 = CAPTURE;
/// Names of one directory.
const MOST_NAMES: usize = 10_000;

/// What is left when the client has its answer.
#[derive(Default)]
pub(crate) struct Rest {
    remains: Option<Remains>,
    book: Option<Book>,
    /// The request that waits because of the call.
    pub(super) filed: Option<Filed>,
}

impl Rest {
    /// Does it.
    pub(crate) fn clear(self) {
        // What fails is found by the next sweep.
        let _ = self.remains.map(Remains::clear);
        if let Some(book) = self.book {
            book.close().tidy();
        }
    }
}

/// What came of an order.
pub(crate) enum Answered {
    /// A program ran.
    Run(Box<RunResult>),
    /// A program did not run.
    Denied(Box<RunResult>),
    /// A file was handled, or was not to be.
    File(SafePath, Box<Handled>),
    /// It only says something.
    Value(Value),
}

/// Who asks, and what their call holds while it goes on.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    /// Who.
    pub(crate) asker: &'a Asker,
    /// The server.
    pub(crate) session: &'a Session,
    /// Their place, and what ends the call.
    pub(crate) entered: &'a Entered,
    /// Whoever wants to know how it goes on.
    pub(crate) listener: Option<&'a dyn Listener>,
    /// The span of theirs that the call belongs to.
    pub(crate) trace: Option<&'a Trace>,
    /// What their client said yes to.
    pub(crate) consent: Option<&'a Consent>,
}

impl Caller<'_> {
    /// Says that a program is about to run, and gives it streams that are captured and told to whoever listens.
    pub(crate) fn in_streams<T>(&self, stdin: Option<BorrowedFd<'_>>, limit: u64, run: impl FnOnce(Streams<'_>) -> T) -> T {
        let Some(listener) = self.listener else {
            return run(Streams::Plain { stdin, stdout: Sink::Buffer(limit), stderr: Sink::Buffer(limit) });
        };
        listener.begun();
        let stdout = |bytes: &[u8]| listener.heard(Stream::Stdout, bytes);
        let stderr = |bytes: &[u8]| listener.heard(Stream::Stderr, bytes);
        run(Streams::Plain { stdin, stdout: Sink::Told(limit, &stdout), stderr: Sink::Told(limit, &stderr) })
    }
}

/// Hears how a call goes on. It must not wait: the program does meanwhile.
pub(crate) trait Listener {
    /// It was admitted, and is about to run.
    fn begun(&self);
    /// A piece of output.
    fn heard(&self, stream: Stream, bytes: &[u8]);
}

/// A stream of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Its output.
    Stdout,
    /// Its errors.
    Stderr,
}

impl Stream {
    /// What it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Carries an order out.
pub(crate) fn act(order: Order, caller: &Caller<'_>) -> (Result<Answered, Failure>, Rest) {
    let mut rest = Rest::default();
    let done = match order {
        Order::Shell(script) => run_shell(&script, caller, &mut rest),
        Order::Capability(name, inputs) => run_capability(&name, inputs, caller, &mut rest),
        Order::ReadFile(path) => handle_file(path, Act::Read(MOST_READ), caller, &mut rest),
        Order::ListDir(path) => handle_file(path, Act::List(MOST_NAMES), caller, &mut rest),
        Order::WriteFile(path, bytes) => handle_file(path, Act::Write(&bytes), caller, &mut rest),
        Order::Search(query) => {
            Granted::to(caller.asker, caller.session).map(|granted| Answered::Value(json!({ "capabilities": granted.search(&query) })))
        }
        Order::Status => status(caller.asker, caller.session),
    };
    (done, rest)
}

fn run_shell(order: &Shell, caller: &Caller<'_>, rest: &mut Rest) -> Result<Answered, Failure> {
    // What may write has the agent's overlay, and no jail that stands ready.
    let guess = match order.changes {
        Changes::Refused => {
            let Shell { work, cwd, variables, time, changes: _, stdin: _ } = order;
            Guess::at(&(caller.asker, work, cwd, variables, time), caller.session.context.standing.as_deref())
        }
        Changes::Kept => Guess::default(),
    };
    let variables = order.variables.iter().map(|(name, value)| EnvFlag { name: name.clone(), value: Some(value.into()) });
    let flags = SandboxFlags {
        workspace_mode: (order.changes == Changes::Refused).then_some(MountMode::Ro),
        // From the workspace, wherever the server was started: so that one script means one thing.
        cwd: Some(order.cwd.clone().unwrap_or_else(|| ".".into())),
        env: variables.collect(),
        ..of_session(caller.session)
    };
    let mut assembled = assemble_with(&flags, &additions(caller.asker), &caller.session.context)?;
    shorten(&mut assembled, order.time);
    let refused = refusal_of(order.variables.keys());
    let subject = match &order.work {
        Work::Script(script) => Subject::Script(script),
        Work::Program(argv) => Subject::Program(argv),
    };
    let asks = Asks::ByRequest { consent: caller.consent, input: &order.stdin };
    let call = Call { assembled, subject, refused, capture: Capture::Kept, asks };
    let stdin = if order.stdin.is_empty() { None } else { Some(input::sealed(&order.stdin)) };
    let stdin = stdin.transpose().map_err(|error| Failure::new("server", format!("keeping the input: {error}")))?;
    run(call, stdin.as_ref().map(|file| file.as_fd()), guess, caller, rest)
}

fn run_capability(name: &str, inputs: Map<String, Value>, caller: &Caller<'_>, rest: &mut Rest) -> Result<Answered, Failure> {
    let Caller { asker, session, consent, .. } = *caller;
    let guess = Guess::at(&(asker, name, &inputs), session.context.standing.as_deref());
    let packs = session.context.packs()?;
    let wish = Wish {
        name,
        inputs: Inputs::Values(inputs),
        workspace: Some(session.workspace.clone()),
        apply: Apply::Later,
        asker: asker.clone(),
    };
    let (called, assembled) = Called::assemble(wish, &packs, &session.context)?;
    let (subject, asks) = (Subject::Capability(&called, &packs), Asks::ByRequest { consent, input: &[] });
    run(Call { assembled, subject, refused: None, capture: Capture::Kept, asks }, None, guess, caller, rest)
}

/// Runs a program on the agent's overlay, its output captured.
fn run(mut call: Call<'_>, stdin: Option<BorrowedFd<'_>>, guess: Guess, caller: &Caller<'_>, rest: &mut Rest) -> Result<Answered, Failure> {
    let Caller { session, entered, trace, .. } = *caller;
    call.assembled.trace = trace.cloned();
    let place = OnceCell::new();
    let wait = |assembled: &Assembled| {
        let turn = turn(assembled, caller, &place)?.map(Ground::Overlay);
        // What a call with an overlay of its own writes must be there in the next.
        let is_lasting = assembled.spec.workspace.mode == MountMode::Overlay;
        Ok(turn.or_else(|| if is_lasting { None } else { warm::take_if_usual(assembled, guess, &session.context) }))
    };
    let came = engine::invoke_in(call, &session.context, wait, |assembled, perform| {
        let limit = assembled.spec.limits.output.map_or(CAPTURE, |limit| limit.value);
        let (mut done, remains) = caller.in_streams(stdin, limit, |streams| perform(streams, Some(&entered.signals)))?;
        done.violations.extend(entered.stop.told().map(str::to_owned));
        Ok((done, remains))
    })?;
    let Came { end, assembled, book, receipt_id, filed } = came;
    rest.book = Some(book);
    rest.filed = filed;
    let ran = match end {
        End::Denied(told) => return Ok(Answered::Denied(Box::new(result::of_denial(told, receipt_id, &assembled)))),
        End::Elsewhere => return Err(Failure::new("approval", "a person must be asked")),
        End::Ran(ran) => *ran,
    };
    rest.remains = Some(ran.remains);
    if let Ending::NotStarted { missing, message } = &ran.done.outcome.ending {
        return Err(if *missing { Failure::no_program("exec", message) } else { Failure::new("exec", message) });
    }
    Ok(Answered::Run(Box::new(result::of_run(&ran.done, &ran.traffic, &receipt_id, &assembled))))
}

fn handle_file(path: SafePath, act: Act<'_>, caller: &Caller<'_>, rest: &mut Rest) -> Result<Answered, Failure> {
    let Caller { asker, session, trace, consent, .. } = *caller;
    let flags = SandboxFlags { workspace_mode: act.mode(), cwd: Some(".".into()), ..of_session(session) };
    let mut assembled = assemble_with(&flags, &additions(asker), &session.context)?;
    assembled.trace = trace.cloned();
    let place = OnceCell::new();
    let wait = |assembled: &Assembled| turn(assembled, caller, &place);
    let (mut handled, book) = files::handle(assembled, &path, act, consent, &session.context, wait)?;
    rest.book = Some(book);
    rest.filed = handled.filed.take();
    Ok(Answered::File(path, Box::new(handled)))
}

/// Waits for a turn at the agent's overlay, where the call has one.
fn turn<'t>(assembled: &Assembled, caller: &Caller<'_>, place: &'t OnceCell<Arc<Overlay>>) -> Result<Option<Turn<'t>>, Failure> {
    let Caller { asker, session, entered, .. } = *caller;
    let nobody = AgentName::new("", MAIN);
    let Some(overlay) = session.overlays.of(asker.agent().unwrap_or(&nobody), assembled)? else { return Ok(None) };
    let overlay = place.get_or_init(|| overlay);
    let is_wanted = || entered.stop.is_wanted();
    if !is_wanted() {
        return Err(entered.stop.refusal());
    }
    overlay.turn(&is_wanted).map(Some).ok_or_else(|| entered.stop.refusal())
}

fn status(asker: &Asker, session: &Session) -> Result<Answered, Failure> {
    let assembled = assemble_with(&of_session(session), &additions(asker), &session.context)?;
    let sandbox = asker.agent().and_then(|agent| session.overlays.sandbox_of(agent, &session.workspace));
    let hosts: Vec<String> = assembled.reach.hosts.iter().map(ToString::to_string).collect();
    Ok(Answered::Value(json!({
        "workspace": assembled.spec.workspace.path.to_string(),
        "workspace_mode": assembled.spec.workspace.mode.to_string(),
        "backend": assembled.backend.kind().name(),
        "principal": asker.agent().map(AgentName::whole),
        "policy": if assembled.rules.layers().floor == Floor::NoPolicy { "none" } else { "in force" },
        "sandbox_id": sandbox.map(|id| id.to_string()),
        "hosts": hosts,
        "calls": session.calls.count(),
    })))
}

pub(crate) fn of_session(session: &Session) -> SandboxFlags {
    SandboxFlags { workspace: Some(session.workspace.clone()), ..SandboxFlags::default() }
}

pub(crate) fn additions(asker: &Asker) -> Additions {
    let who = asker.agent().map_or_else(|| "an agent".to_owned(), |agent| format!("the agent `{}`", agent.whole()));
    Additions { who, asker: asker.clone(), ..Additions::default() }
}

/// A caller may ask for less time than the settings give, not for more.
pub(crate) fn shorten(assembled: &mut Assembled, wanted: Option<Duration>) {
    let held = &mut assembled.spec.limits.time;
    *held = match (*held, wanted) {
        (Some(held), Some(wanted)) if held.value <= wanted => Some(held),
        (_, Some(wanted)) => Some(Limit::asked(wanted)),
        (held, None) => held,
    };
}

/// A denial of variables that change how programs run.
pub(crate) fn refusal_of<'n>(mut names: impl Iterator<Item = &'n String>) -> Option<Decision> {
    names.find_map(|name| shell::variable_refusal(name)).map(|refusal| Decision {
        verdict: "deny".to_owned(),
        rule: refusal.rule().to_owned(),
        reason: Some(refusal.to_string()),
        source: None,
        suggest: None,
        approval_id: None,
    })
}
