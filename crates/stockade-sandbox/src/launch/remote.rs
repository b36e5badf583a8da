//! The gateway's side: asks for jails, and uses them as if it had made them.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stockade_core::demand::{Demand, Enforcement};
use stockade_core::id::SandboxId;
use stockade_core::spec::BackendKind;

use super::{Ask, Given, Hold, LaunchError, Looked, Order, Want, Way, Wish, Word};
use crate::backends::{Backend, BackendError, Running, Start, jail};
use crate::connection::{Connection, Passing};
use crate::drive::Watch;
use crate::letter;
use crate::limits::{Counters, Frozen};
use crate::sandbox::Sandbox;
use crate::state::{Owned, Sandboxes};
use crate::wayout::WayOut;

/// How long a jail that stands ready may take, the first of its kind included, and an answer about one that was given.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long ago a jail may have been looked at that was asked for ahead: no longer than it takes to decide about a call that nobody is asked about.
const FRESH: Duration = Duration::from_millis(50);
/// Which of the descriptors of a jail that stands ready is the lock of its directory.
const LOCK: usize = 2;

/// A launcher that runs.
#[derive(Debug)]
pub struct Launcher {
    connection: UnixStream,
    state: PathBuf,
}

/// A jail that was asked for before it is certain that one is wanted: the launcher looks whether it shows the host as it is while the caller still
/// decides. One that is not used goes with the value.
#[derive(Debug)]
pub struct Ahead {
    /// Only `None` when it was taken.
    session: Option<UnixStream>,
    kind: [u8; 32],
    since: Instant,
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
        let session = self.begin(&Wish::Ready(want), &[])?;
        session.set_read_timeout(Some(PATIENCE)).map_err(LaunchError::Speak)?;
        let (given, descriptors) = answer(&session)?;
        Ready::of(session, given, descriptors, &self.state, want)
    }

    /// Asks for a jail of the kind that has this digest; whether it is the right one is seen when it is taken.
    pub fn ask_ahead(&self, kind: [u8; 32]) -> Result<Ahead, LaunchError> {
        let session = self.begin(&Wish::Again(kind), &[])?;
        session.set_read_timeout(Some(PATIENCE)).map_err(LaunchError::Speak)?;
        Ok(Ahead { session: Some(session), kind, since: Instant::now(), state: self.state.clone() })
    }

    /// A jail from nothing, in a directory of the caller's own.
    fn start(&self, wall: BackendKind, start: &Start<'_>) -> Result<Lent, LaunchError> {
        let way = |way_out: &WayOut| Way {
            proxy_port: way_out.proxy_port,
            ports: way_out.ports.clone(),
            authorities: way_out.authorities.clone().map(PathBuf::into_os_string),
            java_authorities: way_out.java_authorities.clone().map(PathBuf::into_os_string),
            shown: way_out.shown.iter().map(|shown| (shown.file.clone().into(), shown.place.clone().into(), shown.use_)).collect(),
            agent: way_out.agent.clone().map(PathBuf::into_os_string),
        };
        let order = Order {
            wall,
            id: start.id.clone(),
            spec: start.spec.clone(),
            home: start.home.as_os_str().to_owned(),
            toolchain_roots: start.toolchain_roots.to_vec(),
            way_out: start.way_out.map(way),
        };
        let passed = start.way_out.iter().flat_map(|way_out| std::iter::once(&way_out.channel).chain(&way_out.alarm));
        let passed: Vec<BorrowedFd<'_>> = passed.map(AsFd::as_fd).collect();
        let session = self.begin(&Wish::Start(&order), &passed)?;
        if let Some(meanwhile) = start.meanwhile {
            meanwhile();
        }
        // A workspace may have to be copied first, however long that takes; a launcher that is gone has closed the session.
        let (given, descriptors) = answer(&session)?;
        session.set_read_timeout(Some(PATIENCE)).map_err(LaunchError::Speak)?;
        Lent::of(session, given, descriptors)
    }

    /// A connection to the supervisor of a sandbox that stays.
    pub fn reach(&self, id: &SandboxId) -> Result<OwnedFd, LaunchError> {
        let session = self.begin(&Wish::Reach(id.clone()), &[])?;
        session.set_read_timeout(Some(PATIENCE)).map_err(LaunchError::Speak)?;
        match letter::receive::<Word>(&session).map_err(LaunchError::Speak)?.ok_or(LaunchError::Gone)? {
            (Word::Reached, descriptors) => descriptors.into_iter().next().ok_or(LaunchError::OutOfTurn),
            (Word::Refused { step, message, hint }, _) => Err(LaunchError::Refused { step, message, hint }),
            (Word::Given(_) | Word::NoneStands, _) => Err(LaunchError::OutOfTurn),
        }
    }

    /// Opens a session and says what it is for.
    fn begin(&self, wish: &Wish<&Want, &Order>, descriptors: &[BorrowedFd<'_>]) -> Result<UnixStream, LaunchError> {
        let (session, theirs) = UnixStream::pair().map_err(LaunchError::Speak)?;
        session.set_write_timeout(Some(PATIENCE)).map_err(LaunchError::Speak)?;
        letter::send(&self.connection, &(), &[theirs.as_fd()]).map_err(LaunchError::Speak)?;
        drop(theirs);
        letter::send(&session, wish, descriptors).map_err(LaunchError::Speak)?;
        Ok(session)
    }
}

impl Ahead {
    /// The jail, if it is the one that is wanted after all and was looked at just now.
    pub fn take(mut self, want: &Want) -> Option<Ready> {
        if want.digest() != self.kind || self.since.elapsed() > FRESH {
            return None;
        }
        let session = self.session.take()?;
        let (given, descriptors) = answer(&session).ok()?;
        Ready::of(session, given, descriptors, &self.state, want).ok()
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // The launcher ends the jail with the session; its directory came with the answer, and is removed here.
        let Some(session) = self.session.take() else { return };
        if let Ok((given, descriptors)) = answer(&session)
            && let Some(lock) = descriptors.into_iter().nth(LOCK)
            && let Ok(sandboxes) = Sandboxes::open(&self.state)
        {
            // What stays is for the next sweep.
            let _ = sandboxes.adopt(&given.id, lock).remove();
        }
    }
}

impl Ready {
    fn of(session: UnixStream, given: Given, mut descriptors: Vec<OwnedFd>, state: &Path, want: &Want) -> Result<Self, LaunchError> {
        if descriptors.len() <= LOCK {
            return Err(LaunchError::OutOfTurn);
        }
        let owned = Sandboxes::open(state)?.adopt(&given.id, descriptors.remove(LOCK));
        let running = Lent::of(session, given, descriptors)?;
        Ok(Self { owned, sandbox: Sandbox::around(Box::new(running), BackendKind::Jail, &want.spec)? })
    }
}

fn answer(session: &UnixStream) -> Result<(Given, Vec<OwnedFd>), LaunchError> {
    match letter::receive::<Word>(session).map_err(LaunchError::Speak)?.ok_or(LaunchError::Gone)? {
        (Word::Given(given), descriptors) => Ok((*given, descriptors)),
        (Word::Refused { step, message, hint }, _) => Err(LaunchError::Refused { step, message, hint }),
        (Word::Reached | Word::NoneStands, _) => Err(LaunchError::OutOfTurn),
    }
}

/// A wall that is raised by a launcher: for a process that may start nothing itself.
#[derive(Debug)]
pub struct RemoteWall {
    launcher: Arc<Launcher>,
    kind: BackendKind,
}

impl RemoteWall {
    /// This wall, raised by this launcher.
    pub fn new(launcher: Arc<Launcher>, kind: BackendKind) -> Self {
        Self { launcher, kind }
    }
}

impl Backend for RemoteWall {
    fn kind(&self) -> BackendKind {
        self.kind
    }

    fn start(&self, start: &Start<'_>) -> Result<Box<dyn Running>, BackendError> {
        let step = |step: String, detail: String, fix: Option<String>| BackendError::Step { step, detail, fix: fix.unwrap_or_default() };
        match self.launcher.start(self.kind, start) {
            Ok(lent) => Ok(Box::new(lent)),
            Err(LaunchError::Backend(error)) => Err(error),
            Err(LaunchError::Refused { step: failed, message, hint }) => Err(step(failed, message, hint)),
            Err(error @ (LaunchError::Speak(_) | LaunchError::Gone | LaunchError::OutOfTurn | LaunchError::State(_))) => {
                Err(step("launcher".into(), error.to_string(), Some("start the server again".into())))
            }
        }
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
    hold: Hold,
    /// What says that no limit was hit, where that can be said without asking.
    counters: Option<Counters>,
    hit: Option<Demand>,
}

impl Lent {
    /// What was given, with the descriptors of its stream, its process and its exports.
    fn of(session: UnixStream, given: Given, descriptors: Vec<OwnedFd>) -> Result<Self, LaunchError> {
        let Given { pid, enforcement, steps, notes, environment, exports, counters, hold, .. } = given;
        let mut descriptors = descriptors.into_iter();
        let (Some(stream), Some(process)) = (descriptors.next(), descriptors.next()) else { return Err(LaunchError::OutOfTurn) };
        if exports.len() + counters != descriptors.len() {
            return Err(LaunchError::OutOfTurn);
        }
        let exports: Vec<(String, OwnedFd)> = exports.into_iter().zip(descriptors.by_ref()).collect();
        let counters = Counters::of(descriptors.collect());
        Ok(Self {
            connection: Connection::new(stream, Passing::Possible),
            far: Far { session, process, pid, hold, counters, hit: None },
            enforcement,
            steps,
            notes,
            environment,
            exports,
        })
    }
}

impl Far {
    fn ask(&self, ask: Ask) -> std::io::Result<Option<Demand>> {
        letter::send(&self.session, &ask, &[])?;
        let answer = letter::receive::<Looked>(&self.session)?;
        Ok(answer.and_then(|(looked, _)| looked.hit))
    }
}

impl Watch for Far {
    fn tick(&mut self) -> Option<Demand> {
        if self.hit.is_none() && !self.counters.as_ref().is_some_and(Counters::are_unchanged) {
            // A launcher that is gone took the jail with it, which the stream says.
            self.hit = self.ask(Ask::Look).unwrap_or_default();
        }
        self.hit
    }

    fn is_needed(&self) -> bool {
        true
    }

    fn kill(&mut self) {
        match self.hold {
            Hold::Process => jail::end(&self.process),
            // A launcher that is gone took it along.
            Hold::Wall => drop(self.ask(Ask::Kill)),
        }
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
        match self.far.hold {
            Hold::Process => jail::silence(&self.far.process, self.far.pid),
            Hold::Wall => drop(self.far.ask(Ask::Silence)),
        }
    }

    fn destroy(self: Box<Self>) {
        // The launcher kills it, and has removed its groups when it has closed its side.
        let _ = self.far.session.shutdown(std::net::Shutdown::Write);
        while let Ok(Some(_)) = letter::receive::<serde_json::Value>(&self.far.session) {}
    }
}
