//! `mcp proxy`: the front of another MCP server. That server runs in a sandbox; what agents ask of its tools is judged, recorded and passed on.
//!
//! ```text
//!  client ─ stdio ─▶ front ─ accepted? permitted? (approved?) intent ─▶ upstream ─ pipes ─▶ server, in its jail
//!                      ◀──────────── result, outcome written ◀────────────┘
//!  client gone, signal ─▶ calls withdrawn ─▶ its input closed ─▶ killed after a moment ─▶ its own outcome written
//!  server gone         ─▶ calls end with an error ─▶ the end: whoever started the proxy starts it again, or not
//! ```
//!
//! The server is a run like any other: its own rules (`exec`), its own receipt, its own overlay. It is hostile all the same: what it says is bounded
//! in bytes, count and time (`pipes`, `upstream`), only tools that a person accepted by their digest are offered (`listing`), and nothing that it
//! asks of its client is answered. `call` is one call, `front` speaks with the client, `noise` is what the server writes to its standard error.
//!
//! A server that is reached over HTTPS (`remote`) has no sandbox: there is no program of it here. The front speaks with it through an egress process, as a
//! sandbox would.
//!
//! The main thread runs the server, because secrets are taken from the environment while there is no other; the front is the second thread.

mod call;
mod front;
mod listing;
mod noise;
mod pipes;
mod remote;
mod upstream;

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use stockade_core::escape::escape_bytes;
use stockade_core::id::SandboxId;
use stockade_core::result::Decision;
use stockade_gateway::approvals;
use stockade_ledger::receipt::SandboxFacts;
use stockade_ledger::redact::Redact;
use stockade_policy::capability::Effect;
use stockade_policy::pack::ServerName;
use stockade_sandbox::drive::{Ending as Ended, Sink, Streams};
use stockade_sandbox::gate::Gate;
use stockade_sandbox::once::{self, Done, Extras, Job, JobError, OnSuccess};
use stockade_sandbox::signals::Signals;
use stockade_sandbox::state::{KEEP, Sandboxes};
use stockade_sandbox::sweep;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::{MAIN, catch_signals, watch_signals};
use crate::Context;
use crate::admission::{self, Wanted};
use crate::approval::{Frame, OwnWord, Question};
use crate::assemble::{self, Admitted, Assembled};
use crate::cli::ProxyArgs;
use crate::commands::run::DENIED;
use crate::egress::Outlet;
use crate::egress::outlet::Cleaner;
use crate::engine::asker::{AgentName, Asker};
use crate::engine::explain;
use crate::failure::Failure;
use crate::receipts::{Asked, Book, Capture, Keeping, Running, no_secrets, sandbox_of, secrets_of};
use pipes::Pipes;

/// How long one call may take where nobody said otherwise.
const PATIENCE: Duration = Duration::from_mins(10);
/// Calls at once; more are refused.
const MOST_CALLS: usize = 64;
/// How long withdrawn calls may take to write down what came of them.
const LAST_WORDS: Duration = Duration::from_secs(15);

/// What all calls through one proxy share.
struct Session {
    context: Context,
    /// What a person calls the server.
    server: ServerName,
    /// What rules call the agent, after its client's name.
    name: String,
    /// What was started: a part of what every tool is.
    source: Vec<String>,
    ground: Ground,
    /// How long one call may take.
    patience: Duration,
    places: Arc<Semaphore>,
    ended: watch::Sender<bool>,
}

/// Where the server is, as calls have to know it.
struct Ground {
    workspace: PathBuf,
    backend: &'static str,
    network: Vec<String>,
    state: PathBuf,
    keeping: Keeping,
    /// Its sandbox, where it is a program.
    facts: Option<SandboxFacts>,
    /// The receipt of the server's own run.
    parent: String,
    /// What an approval of a call is bound to besides the call.
    frame: Frame,
    /// Takes the sandbox's secrets out of receipts.
    cleaner: Option<Cleaner>,
}

impl Session {
    fn new(args: &ProxyArgs, source: Vec<String>, ground: Ground, patience: Duration, context: &Context) -> Result<Arc<Self>, Failure> {
        Ok(Arc::new(Self {
            context: context.in_directory(context.environment.current_dir()?.to_owned()),
            server: args.server.clone(),
            name: args.name.as_ref().map_or_else(|| MAIN.to_owned(), ToString::to_string),
            source,
            ground,
            patience,
            places: Arc::new(Semaphore::new(MOST_CALLS)),
            ended: watch::Sender::new(false),
        }))
    }

    fn asker(&self, client: Option<&str>) -> Asker {
        Asker::Agent(AgentName::new(client.unwrap_or_default(), &self.name))
    }

    /// Lets a call in, unless too many are there or everything ends.
    fn enter(&self) -> Result<OwnedSemaphorePermit, Failure> {
        if *self.ended.borrow() {
            return Err(Failure::new("server", "the server has ended"));
        }
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map_err(|_| Failure::new("server", format!("{MOST_CALLS} calls run already")).with_hint("wait for some of them"))
    }

    /// Withdraws every call, and lets none in any more.
    fn close(&self) {
        self.ended.send_replace(true);
    }

    /// Waits until every call has written down what came of it.
    async fn silence(&self) {
        let all = u32::try_from(MOST_CALLS).unwrap_or(u32::MAX);
        // What takes longer is written down as interrupted by the next command.
        let _ = tokio::time::timeout(LAST_WORDS, self.places.acquire_many(all)).await;
    }
}

impl Ground {
    fn redactor(&self) -> &dyn Redact {
        match &self.cleaner {
            Some(cleaner) => cleaner,
            None => no_secrets(),
        }
    }
}

/// Serves one client until it goes, or the server does.
pub(crate) fn run(args: &ProxyArgs, context: &Context) -> Result<ExitCode, Failure> {
    if let Some(url) = &args.url {
        return remote::run(args, url, context);
    }
    if args.program.first().is_none_or(|program| program.is_empty()) {
        return Err(Failure::new("arguments", "the program's name is empty"));
    }
    let mut assembled = assemble::assemble(&args.sandbox, context)?;
    // The server lives as long as its client does; what is limited is a call.
    let patience = assembled.spec.limits.time.take().map_or(PATIENCE, |limit| limit.value);
    let admitted = assembled.admit(Wanted::Program(&args.program), context)?;
    let book = Book::new(&assembled.state, assembled.keeping.clone(), context);
    let outlet = Outlet::of(&assembled.reach, &assembled.given, context)?;
    let secrets = secrets_of(outlet.as_ref());
    let receipt = Running::new(&book, Asked::Program(&args.program), &args.program, &assembled, secrets, Capture::None)?;
    if let Some(told) = refusal(admitted) {
        receipt.deny(&told)?;
        admission::explain_denial(&told, context);
        return Ok(ExitCode::from(DENIED));
    }
    assemble::warn_if_local(assembled.backend.as_ref(), context);
    let facts = sandbox_of(assembled.backend.kind().name(), &assembled.spec, &assembled.reach, &book.payloads(), secrets)?;
    let frame = Frame::of(&started(&args.program, &assembled), &assembled)?;
    // Before there is another thread, so that none of them is ended by one.
    let signals = catch_signals()?;
    let (stop, stopped) = Signals::sent().map_err(|errno| Failure::new("server", format!("making its stop: {errno}")))?;
    let Pipes { theirs, ours } = Pipes::make()?;
    let made = Sandboxes::open(&assembled.state).and_then(|sandboxes| sandboxes.create());
    let owned = made.map_err(|error| explain(&JobError::State(error)))?;
    let ground = Ground {
        workspace: assembled.spec.workspace.path.as_path().to_owned(),
        backend: assembled.backend.kind().name(),
        network: assembled.reach.hosts.iter().map(ToString::to_string).collect(),
        state: assembled.state.clone(),
        keeping: assembled.keeping.clone(),
        facts: Some(named(facts, &owned.id)),
        parent: receipt.id(),
        frame,
        cleaner: outlet.as_ref().map(Outlet::cleaner),
    };
    let source = args.program.iter().map(|word| escape_bytes(word.as_bytes())).collect();
    let session = Session::new(args, source, ground, patience, context)?;
    let job = Job {
        backend: assembled.backend.as_ref(),
        spec: &assembled.spec,
        state: &assembled.state,
        runtime: &assembled.runtime,
        home: &assembled.home,
        toolchain_roots: &assembled.toolchain_roots,
        argv: &args.program,
        on_success: if assembled.applies { OnSuccess::Apply } else { OnSuccess::Keep },
        gate: outlet.as_ref().map(|outlet| outlet as &dyn Gate),
        intent: Some(&receipt),
    };
    let (over, is_over) = mpsc::channel();
    let (ran, served) = std::thread::scope(|scope| {
        let front = scope.spawn(move || front::serve_program(&session, ours, &stop, &is_over, watch_signals(signals)));
        let streams = Streams::Plain {
            stdin: Some(theirs.input.as_fd()),
            stdout: Sink::Descriptor(theirs.output.as_fd()),
            stderr: Sink::Descriptor(theirs.noise.as_fd()),
        };
        let extras = Extras { owned: Some(owned), ..Extras::default() };
        let ran = once::run_with(&job, extras, streams, Some(&stopped)).map_err(|error| explain(&error));
        // Only now does the front see the end of what the server says.
        drop(theirs);
        drop(over);
        (ran, front.join())
    });
    let traffic = outlet.as_ref().map(Outlet::close).unwrap_or_default();
    let (mut done, remains) = ran.inspect_err(|failure| receipt.fail(failure, context))?;
    done.violations.extend(traffic.broken.clone());
    receipt.finish(&done, &traffic, context);
    drop(receipt);
    drop(outlet);
    tell(&done, context);
    // What fails is found and told by the next sweep.
    let _ = remains.clear();
    let _ = sweep::sweep(&assembled.state, &assembled.runtime, KEEP, sweep::Extent::Directories);
    book.close().tidy();
    if let Ended::NotStarted { missing, message } = &done.outcome.ending {
        return Err(if *missing { Failure::no_program("exec", message) } else { Failure::new("exec", message) });
    }
    served.unwrap_or_else(|_| Err(Failure::new("server", "the front broke off")))
}

/// Why the server may not be started. Nobody can be asked here: standard input is the client's.
fn refusal(admitted: Admitted) -> Option<Decision> {
    match admitted {
        Admitted::Yes => None,
        Admitted::No(told) => Some(told),
        Admitted::Asked(question) => {
            let told = question.told;
            let why = told.reason.as_deref().unwrap_or("the rules want a person to approve it");
            Some(Decision { reason: Some(format!("{why}; nobody can be asked about a server that a client starts")), ..told })
        }
    }
}

/// The question whether to start it, for what calls are bound to. Nobody is asked it.
fn started(program: &[OsString], assembled: &Assembled) -> Question {
    Question {
        told: assembled.told.clone(),
        because: Vec::new(),
        rules: Vec::new(),
        policy: String::new(),
        principal: String::new(),
        effect: Effect::Write,
        wanted: approvals::Wanted::Program(program.iter().map(|word| word.as_bytes().to_vec()).collect()),
        programs: program.iter().take(1).cloned().collect(),
        words: program.iter().skip(1).cloned().collect(),
        own: OwnWord::DoesNotCount,
    }
}

fn named(facts: SandboxFacts, id: &SandboxId) -> SandboxFacts {
    SandboxFacts { id: Some(id.to_string()), ..facts }
}

/// Says what the server left.
fn tell(done: &Done, context: &Context) {
    for note in &done.notes {
        context.printer.note(note.as_str());
    }
    for violation in &done.violations {
        context.printer.warning(violation.as_str());
    }
    if done.applied > 0 {
        context.printer.note(format!("changes applied: {}", done.applied));
    }
    if let Some(left) = done.kept {
        let (id, files) = (&done.id, if left == 1 { "file" } else { "files" });
        context.printer.note(format!("{left} {files} changed: stockade sandbox diff {id} · apply · discard"));
    }
}
