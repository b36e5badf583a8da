//! The steward's own side: `stockade steward`, whose connection is standard input. One thread per errand; that of a role waits for the role's end.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{DumpableBehavior, Pid, PidfdFlags};
use stockade_sandbox::letter;
use stockade_store::settings::Settings;

use super::{Errand, Order, Word};
use crate::Context;
use crate::approval::notify;
use crate::commands::sandbox::create::supervise;
use crate::daemon::launcher::Scope;
use crate::egress::processes;
use crate::failure::Failure;
use crate::receipts::{Keeping, Untidy};

const STEP: &str = "steward";
/// How long a session may take to say what it wants, and to hear what came of it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was fixed when it started.
struct House {
    context: Context,
    scope: Scope,
    /// Who tells a person of requests.
    notify: Option<String>,
    /// How receipts are kept, and who witnesses them.
    keeping: Keeping,
}

/// Serves until whoever started it goes.
pub(crate) fn serve(context: Context) -> Result<ExitCode, Failure> {
    let failed = |error: std::io::Error| Failure::new(STEP, error.to_string());
    // The caller's environment may hold secrets, and is here for as long as the server lives.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|errno| failed(errno.into()))?;
    // A session of its own: keys that are pressed at the other's terminal are not meant for it.
    let _ = rustix::process::setsid();
    let connection = UnixStream::from(rustix::io::dup(rustix::stdio::stdin()).map_err(|errno| failed(errno.into()))?);
    let Some((Order { roots, walls }, _)) = letter::receive::<Order>(&connection).map_err(failed)? else { return Ok(ExitCode::SUCCESS) };
    // A project has no say in either. Settings that cannot be read name nobody; calls say that they cannot.
    let settings = Settings::load(context.places()?, None).ok();
    let house = Arc::new(House {
        scope: Scope { roots: roots.into_iter().map(Into::into).collect(), walls, hint: "" },
        notify: settings.as_ref().and_then(|settings| settings.notify().value),
        keeping: settings.as_ref().map_or_else(Keeping::safest, Keeping::of),
        context,
    });
    while let Some(((), descriptors)) = letter::receive::<()>(&connection).map_err(failed)? {
        let Ok([session]) = <[OwnedFd; 1]>::try_from(descriptors) else { continue };
        let house = Arc::clone(&house);
        let attended = std::thread::Builder::new().name("stockade-errand".into()).spawn(move || {
            // Whoever does not wait for the answer has none.
            let _ = attend(&UnixStream::from(session), &house);
        });
        // Without a thread the session is closed, which the other side sees.
        drop(attended);
    }
    Ok(ExitCode::SUCCESS)
}

fn attend(session: &UnixStream, house: &House) -> std::io::Result<()> {
    session.set_read_timeout(Some(PATIENCE))?;
    session.set_write_timeout(Some(PATIENCE))?;
    let Some((errand, streams)) = letter::receive::<Errand>(session)? else { return Ok(()) };
    let done = match errand {
        Errand::Broker => two(streams).and_then(|[owner, egress]| processes::spawn_broker(owner, egress)).and_then(Doing::role),
        Errand::Egress => one(streams).and_then(|owner| processes::spawn_egress(owner, &house.context)).and_then(Doing::role),
        Errand::Hold(id) => two(streams).and_then(|[lock, output]| supervise(&id, lock, output, Some(&house.scope))).and_then(Doing::role),
        Errand::Tell { program, text } => house.tell(&program, &text),
        Errand::Witness { program } => house.witness(&program),
    };
    match done {
        Err(Failure { message, .. }) => letter::send(session, &Word::Failed { message }, &[]),
        Ok(Doing::Nothing) => letter::send(session, &Word::Done, &[]),
        Ok(Doing::Role { mut child, process }) => {
            let answered = letter::send(session, &Word::Done, &[process.as_fd()]);
            let _ = child.wait();
            answered
        }
        Ok(Doing::Telling(child)) => {
            let answered = letter::send(session, &Word::Done, &[]);
            notify::end(child);
            answered
        }
    }
}

/// What came of an errand so far.
enum Doing {
    /// It is done.
    Nothing,
    /// A role runs.
    Role { child: Child, process: OwnedFd },
    /// A person is being told.
    Telling(Child),
}

impl Doing {
    fn role(child: Child) -> Result<Self, Failure> {
        // It has not been waited for, so it is this process and no later one of its number.
        let process = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        process.map(|process| Self::Role { child, process }).map_err(|errno| Failure::new(STEP, errno.to_string()))
    }
}

impl House {
    fn tell(&self, program: &str, text: &str) -> Result<Doing, Failure> {
        let program = Self::same(self.notify.as_deref(), program)?;
        if text.starts_with('-') {
            return Err(Failure::new(STEP, "the words begin like an option"));
        }
        notify::run(program, text, &self.context).map(Doing::Telling).map_err(|why| Failure::new(STEP, why))
    }

    fn witness(&self, program: &str) -> Result<Doing, Failure> {
        Self::same(self.keeping.program(), program)?;
        Untidy::of(&self.context.places()?.state, self.keeping.clone()).witnessed().map(|()| Doing::Nothing)
    }

    /// The program that was named when the server started; another one is not run because somebody says that it is named now.
    fn same<'p>(known: Option<&'p str>, wanted: &str) -> Result<&'p str, Failure> {
        known.filter(|known| *known == wanted).ok_or_else(|| Failure::new(STEP, "the setting was changed after the server had started"))
    }
}

fn one(streams: Vec<OwnedFd>) -> Result<OwnedFd, Failure> {
    <[OwnedFd; 1]>::try_from(streams).map(|[one]| one).map_err(|_| unfit())
}

fn two(streams: Vec<OwnedFd>) -> Result<[OwnedFd; 2], Failure> {
    streams.try_into().map_err(|_| unfit())
}

fn unfit() -> Failure {
    Failure::new(STEP, "a stream is missing from the errand")
}
