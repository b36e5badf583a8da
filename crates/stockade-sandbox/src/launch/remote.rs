//! The gateway's side: asks for jails, and uses them as if it had made them.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stockade_core::demand::{Demand, Enforcement};
use stockade_core::spec::BackendKind;

use super::{Given, LaunchError, Look, Looked, Want, Word};
use crate::backends::{BackendError, Running, jail};
use crate::connection::{Connection, Passing};
use crate::drive::Watch;
use crate::letter;
use crate::limits::Frozen;
use crate::sandbox::Sandbox;
use crate::state::{Owned, Sandboxes};

/// How long a jail may take; the first of its kind is made from nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// A launcher that runs.
#[derive(Debug)]
pub struct Launcher {
    connection: UnixStream,
    state: PathBuf,
}

/// A jail that stands ready, and its directory.
pub struct Ready {
    /// The directory, owned from here on.
    pub owned: Owned,
    /// The jail.
    pub sandbox: Sandbox,
}

impl Launcher {
    /// The launcher at the other end, which makes sandboxes of this state directory.
    pub fn new(connection: UnixStream, state: &Path) -> Self {
        Self { connection, state: state.to_owned() }
    }

    /// Ends it: jails that it gave end with it.
    pub fn end(&self) {
        // One that is gone already has no connection to end.
        let _ = self.connection.shutdown(std::net::Shutdown::Both);
    }

    /// A fresh jail. Calls do not wait for one another, unless they want the very same and the first of it is being made.
    pub fn take(&self, want: &Want) -> Result<Ready, LaunchError> {
        let (session, theirs) = UnixStream::pair().map_err(LaunchError::Speak)?;
        let timed = session.set_read_timeout(Some(PATIENCE)).and_then(|()| session.set_write_timeout(Some(PATIENCE)));
        timed.map_err(LaunchError::Speak)?;
        letter::send(&self.connection, &(), &[theirs.as_fd()]).map_err(LaunchError::Speak)?;
        drop(theirs);
        letter::send(&session, want, &[]).map_err(LaunchError::Speak)?;
        let (word, descriptors) = letter::receive::<Word>(&session).map_err(LaunchError::Speak)?.ok_or(LaunchError::Gone)?;
        let given = match word {
            Word::Given(given) => *given,
            Word::Refused { step, message, hint } => return Err(LaunchError::Refused { step, message, hint }),
        };
        let owned_by = Sandboxes::open(&self.state)?;
        let mut descriptors = descriptors.into_iter();
        let (Some(stream), Some(process), Some(lock)) = (descriptors.next(), descriptors.next(), descriptors.next()) else {
            return Err(LaunchError::OutOfTurn);
        };
        if given.exports.len() != descriptors.len() {
            return Err(LaunchError::OutOfTurn);
        }
        let owned = owned_by.adopt(&given.id, lock);
        let Given { pid, enforcement, steps, notes, environment, exports, .. } = given;
        let running = Lent {
            connection: Connection::new(stream, Passing::Possible),
            far: Far { session, process, pid, hit: None },
            enforcement,
            steps,
            notes,
            environment,
            exports: exports.into_iter().zip(descriptors).collect(),
        };
        Ok(Ready { owned, sandbox: Sandbox::around(Box::new(running), BackendKind::Jail, &want.spec)? })
    }
}

/// A jail that the launcher made and watches.
struct Lent {
    connection: Connection,
    far: Far,
    enforcement: Enforcement,
    steps: Vec<(String, u32)>,
    notes: Vec<String>,
    environment: Vec<(String, OsString)>,
    exports: Vec<(String, OwnedFd)>,
}

/// What the launcher has of it.
struct Far {
    session: UnixStream,
    process: OwnedFd,
    pid: i32,
    hit: Option<Demand>,
}

impl Far {
    fn ask(&self) -> std::io::Result<Option<Demand>> {
        letter::send(&self.session, &Look {}, &[])?;
        let answer = letter::receive::<Looked>(&self.session)?;
        Ok(answer.and_then(|(looked, _)| looked.hit))
    }
}

impl Watch for Far {
    fn tick(&mut self) -> Option<Demand> {
        if self.hit.is_none() {
            // A launcher that is gone took the jail with it, which the stream says.
            self.hit = self.ask().unwrap_or_default();
        }
        self.hit
    }

    fn is_needed(&self) -> bool {
        true
    }

    fn kill(&mut self) {
        jail::end(&self.process);
    }
}

impl Running for Lent {
    fn parts(&mut self) -> (&mut Connection, &mut dyn Watch) {
        (&mut self.connection, &mut self.far)
    }

    fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    fn steps(&self) -> &[(String, u32)] {
        &self.steps
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn environment(&self) -> &[(String, OsString)] {
        &self.environment
    }

    fn freeze(&mut self, _: Frozen) -> Result<(), BackendError> {
        let detail = "a jail that is used once is never paused".to_owned();
        Err(BackendError::Step { step: "freezing".into(), detail, fix: String::new() })
    }

    fn take_exports(&mut self) -> Vec<(String, OwnedFd)> {
        std::mem::take(&mut self.exports)
    }

    fn process(&self) -> &OwnedFd {
        &self.far.process
    }

    fn silence(&mut self) {
        jail::silence(&self.far.process, self.far.pid);
    }

    fn destroy(self: Box<Self>) {
        jail::end(&self.far.process);
        // Its groups are removed when the launcher has closed its side.
        let _ = self.far.session.shutdown(std::net::Shutdown::Write);
        while let Ok(Some(_)) = letter::receive::<serde_json::Value>(&self.far.session) {}
    }
}
