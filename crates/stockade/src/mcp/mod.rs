//! The MCP server: translates tool calls into calls of the engine, and what comes of them into results.
//!
//! ```text
//!  client ─ JSON-RPC ─▶ rmcp ─▶ server ─ place among the calls ─▶ a thread: engine ─▶ answer ─▶ client
//!                                  ├ notifications/cancelled ─▶ the call's sandbox is killed
//!                                  └ end of input, SIGTERM    ─▶ every call's is; overlays are kept; the end
//! ```
//!
//! It decides nothing: who calls is an agent whatever it says, rules are the engine's, and a denial is a result. The protocol is the official
//! SDK's, both eras of it. `tools` says what is offered and reads what is asked for, `calling` attends to one call, `act` does it, `answer` words it,
//! `calls` bounds it, `held` keeps what waits for a person.
//! A [`Session`] is what all calls of one server share, whatever carries them: `stdio` here, HTTP in `crate::http`. Whoever carries them confines the
//! process before anybody is served: jails come from a launcher, other processes from a steward, and `scope` is what both are held to. `proxy` is the other
//! kind of server: the front of one that is not ours.

pub(crate) mod act;
mod answer;
mod calling;
pub(crate) mod calls;
mod elicit;
pub(crate) mod granted;
mod held;
mod input;
pub(crate) mod proxy;
pub(crate) mod schema;
mod scope;
mod server;
mod stdio;
pub(crate) mod tools;
mod wait;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};
use stockade_core::id::SandboxName;
use stockade_http::Metrics;
use stockade_sandbox::signals::Signals;
use stockade_sandbox::state::KEEP;
use stockade_sandbox::sweep;
use stockade_sandbox::workspace::locate;
use stockade_store::private_dir::ensure_private_dir;
use tokio::sync::watch;

use crate::Context;
use crate::cli::OutputFlags;
use crate::daemon::{Standing, confine, launcher, steward};
use crate::engine::asker::{AgentName, Asker};
use crate::engine::overlay::{Kept, Overlays};
use crate::failure::Failure;
use crate::http::journal::Journal;
use crate::outbound::{Outbound, Telling};
use calls::Calls;
use granted::Offered;
use held::Held;

pub(crate) use scope::START_AGAIN;
pub(crate) use server::Server;
pub(crate) use stdio::run;

/// How long the calls that were killed may take to write down what came of them.
const LAST_WORDS: Duration = Duration::from_secs(15);
/// Signals that end the server.
const ENDING: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
/// How long a signal may take that ends a server together with its other processes.
const TOGETHER: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// The name of an agent that nobody named.
const MAIN: &str = "main";

/// What all calls of a server share.
pub(crate) struct Session {
    /// What commands have too; output is captured.
    pub(crate) context: Context,
    /// What its work is about.
    pub(crate) workspace: PathBuf,
    name: String,
    overlays: Overlays,
    /// Its calls.
    pub(crate) calls: Calls,
    offered: Offered,
    held: Held,
    metrics: Arc<Metrics>,
    /// Who makes its jails and starts other processes, until the end.
    helpers: Mutex<Vec<Child>>,
    /// The same as they are waited for.
    lives: Vec<Life>,
    /// Who outside is told anything.
    outbound: Option<Outbound>,
    journal: Option<Arc<Journal>>,
}

/// Another process without which a server is none.
#[derive(Debug)]
pub(crate) struct Life {
    name: &'static str,
    process: OwnedFd,
}

impl Life {
    fn of(name: &'static str, child: &Child) -> Result<Self, Failure> {
        // It has not been waited for, so it is this process and no later one of its number.
        let process = rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty());
        process.map(|process| Self { name, process }).map_err(|errno| Failure::new(name, errno.to_string()))
    }
}

/// Why a server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It does not.
    None,
    /// A signal came.
    Signal(i32),
    /// Another process of its own is gone, and nothing can be run any more.
    Gone(&'static str),
}

/// What ends the server, once it came.
pub(crate) type Ending = watch::Receiver<Cause>;

impl Session {
    /// One about a workspace. Its launcher and its steward are started here, while this process may start any.
    pub(crate) fn open(
        workspace: Option<&Path>,
        name: Option<&SandboxName>,
        flags: OutputFlags,
        journal: Option<Arc<Journal>>,
        context: &Context,
    ) -> Result<Arc<Self>, Failure> {
        // Output is captured, as with `--json`.
        let mut context = Context::new(OutputFlags { json: true, ..flags }, context.environment.clone());
        let located = locate::locate(context.environment.current_dir()?, workspace, &context.places()?.home);
        let workspace = located.map_err(|error| {
            let failure = Failure::from_error("workspace", &error);
            error.hint().map_or_else(|| failure.clone(), |hint| failure.clone().with_hint(hint))
        })?;
        let name = name.map_or_else(|| MAIN.to_owned(), ToString::to_string);
        let scope = scope::of(&workspace, &context)?;
        let workspace = workspace.path.as_path().to_owned();
        let places = context.places()?;
        ensure_private_dir(&places.state).map_err(|error| Failure::from_error("state", &error))?;
        let (launching, launcher) = launcher::start(places, &scope)?;
        let (serving, steward) = steward::start(&scope)?;
        let lives = vec![Life::of("launcher", &launching)?, Life::of("steward", &serving)?];
        let outbound = Outbound::prepare(Telling::Everything, &context)?;
        let ended = outbound.as_ref().and_then(Outbound::ended_calls);
        context.standing = Some(Arc::new(Standing::new(launcher, Some(steward)).telling(ended)));
        Ok(Arc::new(Self {
            context,
            workspace,
            name,
            overlays: Overlays::default(),
            calls: Calls::default(),
            offered: Offered::default(),
            held: Held::default(),
            metrics: Arc::default(),
            journal,
            helpers: Mutex::new(vec![launching, serving]),
            lives,
            outbound,
        }))
    }

    /// Takes from this process what no call needs from here on. Everything that listens is open by now, and there is one thread.
    pub(crate) fn confine(&self) -> Result<(), Failure> {
        confine::confine(self.context.places()?)
    }

    /// Who a client is.
    pub(crate) fn asker(&self, client: Option<&str>) -> Asker {
        Asker::Agent(AgentName::new(client.unwrap_or_default(), &self.name))
    }

    /// Where its calls are written down, if anywhere.
    pub(crate) fn journal(&self) -> Option<Arc<Journal>> {
        self.journal.clone()
    }

    /// How its calls are counted.
    pub(crate) fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Begins to tell others: to be called when signals are caught and the server is confined, before it serves anybody.
    pub(crate) fn speak(&self) -> Result<(), Failure> {
        self.outbound.as_ref().map_or(Ok(()), |outbound| outbound.speak(&self.metrics, &self.context))
    }

    /// Says when a signal came, or when it cannot serve any more.
    pub(crate) fn watch(&self, signals: Signals) -> Result<Ending, Failure> {
        let again = |life: &Life| life.process.try_clone().map(|process| Life { name: life.name, process });
        let lives: std::io::Result<Vec<Life>> = self.lives.iter().map(again).collect();
        Ok(watch_for(signals, lives.map_err(|error| Failure::new("server", error.to_string()))?))
    }

    /// Ends every call, and lets none in any more.
    pub(crate) fn close(&self) {
        self.calls.close();
    }

    /// Waits until every call has written down what came of it.
    pub(crate) async fn silence(&self) {
        self.calls.silence(LAST_WORDS).await;
    }

    /// Keeps what changed, removes the rest, and says so.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        let printer = &self.context.printer;
        let mut failed = None;
        for kept in self.overlays.finish() {
            match kept {
                Ok(Kept { id, changed }) => {
                    let files = if changed == 1 { "file" } else { "files" };
                    printer.note(format!("{changed} {files} changed: stockade sandbox diff {id} · apply · discard"));
                }
                Err(failure) => failed = Some(failure),
            }
        }
        if let Some(outbound) = &self.outbound {
            outbound.finish();
        }
        if let Some(standing) = &self.context.standing {
            standing.launcher.end();
            standing.steward.as_ref().inspect(|steward| steward.end());
        }
        for mut child in self.helpers.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // One that failed is gone as well.
            let _ = child.wait();
        }
        let places = self.context.places()?;
        // What fails is found and told by the next sweep.
        let _ = sweep::sweep(&places.state, &places.runtime, KEEP, sweep::Extent::Directories);
        failed.map_or(Ok(()), Err)
    }
}

/// Catches the signals that end a server: to be called before any other thread is there, so that none of them is ended by one.
pub(crate) fn catch_signals() -> Result<Signals, Failure> {
    Signals::catch(&ENDING).map_err(|errno| Failure::new("signals", errno.to_string()))
}

/// Says when one of them came.
pub(crate) fn watch_signals(signals: Signals) -> Ending {
    watch_for(signals, Vec::new())
}

/// The same, or that one of these is gone. Only what comes first is said.
fn watch_for(signals: Signals, mut lives: Vec<Life>) -> Ending {
    let (ended, end) = watch::channel(Cause::None);
    std::thread::spawn(move || {
        let say = |cause: Cause| {
            ended.send_if_modified(|known| {
                let is_first = *known == Cause::None;
                *known = if is_first { cause } else { *known };
                is_first
            });
        };
        loop {
            let lived = lives.iter().map(|life| PollFd::new(&life.process, PollFlags::IN));
            let mut ready: Vec<PollFd<'_>> = std::iter::once(PollFd::new(signals.as_fd(), PollFlags::IN)).chain(lived).collect();
            if !matches!(rustix::event::poll(&mut ready, None), Ok(_) | Err(rustix::io::Errno::INTR)) {
                return;
            }
            let gone = ready.iter().skip(1).position(|life| !life.revents().is_empty());
            let gone = gone.and_then(|at| lives.get(at)).map(|life| life.name);
            if let Some(name) = gone {
                // Whoever ends all of them at once means this process as well.
                let _ = rustix::event::poll(&mut [PollFd::new(signals.as_fd(), PollFlags::IN)], Some(&TOGETHER));
                signals.next().into_iter().for_each(|signal| say(Cause::Signal(signal)));
                say(Cause::Gone(name));
                lives.clear();
            }
            while let Some(signal) = signals.next() {
                say(Cause::Signal(signal));
            }
        }
    });
    end
}

/// What comes of a server that ended so.
pub(crate) fn code_of(cause: Cause) -> Result<ExitCode, Failure> {
    match cause {
        Cause::None => Ok(ExitCode::SUCCESS),
        Cause::Signal(signal) => Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(255))),
        Cause::Gone(name) => Err(Failure::new("server", format!("its {name} is gone, and without it nothing can be run"))
            .with_hint("start the server again; whatever supervises it may do so by itself")),
    }
}
