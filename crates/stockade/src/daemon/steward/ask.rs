//! The gateway's side: starts a steward while it may, and has it start the rest.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use stockade_core::id::SandboxId;
use stockade_sandbox::letter;

use super::{Errand, Order, Word};
use crate::daemon::Started;
use crate::daemon::launcher::Scope;
use crate::failure::Failure;

const STEP: &str = "steward";
/// This program, though its file may have been replaced since.
const ITSELF: &str = "/proc/self/exe";
/// How long an answer may take: a witness may think for twenty seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// A steward that runs.
#[derive(Debug)]
pub(crate) struct Steward {
    connection: UnixStream,
}

/// Starts one, in the environment of this process. It ends when the connection to it does.
#[expect(clippy::disallowed_methods, reason = "starts this very program in another role")]
pub(crate) fn start(scope: &Scope) -> Result<(Child, Steward), Failure> {
    let failed = |error: std::io::Error| Failure::new(STEP, format!("starting: {error}"));
    let (connection, theirs) = UnixStream::pair().map_err(failed)?;
    let mut command = Command::new(ITSELF);
    command.arg("steward").current_dir("/");
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().map_err(failed)?;
    let order = Order { roots: scope.roots.iter().map(|root| root.clone().into_os_string()).collect(), walls: scope.walls.clone() };
    letter::send(&connection, &order, &[]).map_err(failed)?;
    Ok((child, Steward { connection }))
}

impl Steward {
    /// Ends it. What it started goes on.
    pub(crate) fn end(&self) {
        // One that is gone already has no connection to end.
        let _ = self.connection.shutdown(std::net::Shutdown::Both);
    }

    /// Starts a broker between its owner's connection and that of egress.
    pub(crate) fn broker(&self, owner: &UnixStream, egress: &UnixStream) -> Result<Started, Failure> {
        self.role("broker", &Errand::Broker, &[owner.as_fd(), egress.as_fd()])
    }

    /// Starts a broker between its owner's connection and a socket.
    pub(crate) fn listening_broker(&self, owner: &UnixStream, listener: &UnixListener) -> Result<Started, Failure> {
        self.role("broker", &Errand::Broker, &[owner.as_fd(), listener.as_fd()])
    }

    /// Starts egress at its owner's connection.
    pub(crate) fn egress(&self, owner: &UnixStream) -> Result<Started, Failure> {
        self.role("egress", &Errand::Egress, &[owner.as_fd()])
    }

    /// Starts the supervisor of a sandbox, which answers at `output`.
    pub(crate) fn hold(&self, id: &SandboxId, lock: BorrowedFd<'_>, output: BorrowedFd<'_>) -> Result<Started, Failure> {
        self.role("starting the supervisor", &Errand::Hold(id.clone()), &[lock, output])
    }

    /// Has a person told.
    pub(crate) fn tell(&self, program: &str, text: &str) -> Result<(), Failure> {
        let errand = Errand::Tell { program: program.to_owned(), text: text.to_owned() };
        self.ask("telling a person", &errand, &[]).map(drop)
    }

    /// Has receipts witnessed.
    pub(crate) fn witness(&self, program: &str) -> Result<(), Failure> {
        self.ask("witness", &Errand::Witness { program: program.to_owned() }, &[]).map(drop)
    }

    fn role(&self, step: &str, errand: &Errand, streams: &[BorrowedFd<'_>]) -> Result<Started, Failure> {
        let answered = self.ask(step, errand, streams)?.into_iter().next();
        answered.map(Started::BySteward).ok_or_else(|| Failure::new(step, "the steward answered out of turn"))
    }

    fn ask(&self, step: &str, errand: &Errand, streams: &[BorrowedFd<'_>]) -> Result<Vec<OwnedFd>, Failure> {
        let spoken = self
            .speak(errand, streams)
            .map_err(|error| Failure::new(step, format!("speaking to the steward: {error}")).with_hint("start the server again"))?;
        match spoken {
            Some((Word::Done, descriptors)) => Ok(descriptors),
            Some((Word::Failed { message }, _)) => Err(Failure::new(step, message)),
            None => Err(Failure::new(step, "the steward is gone").with_hint("start the server again")),
        }
    }

    fn speak(&self, errand: &Errand, streams: &[BorrowedFd<'_>]) -> std::io::Result<Option<(Word, Vec<OwnedFd>)>> {
        let (session, theirs) = UnixStream::pair()?;
        session.set_read_timeout(Some(PATIENCE))?;
        session.set_write_timeout(Some(PATIENCE))?;
        letter::send(&self.connection, &(), &[theirs.as_fd()])?;
        drop(theirs);
        letter::send(&session, errand, streams)?;
        letter::receive::<Word>(&session)
    }
}
