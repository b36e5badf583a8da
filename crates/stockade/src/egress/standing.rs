//! The broker of a server: one process for all its calls, so that a credential that is at hand costs a call one question.
//!
//! It is started for the first call that needs it, by the steward, with this process's own connection and a listening socket in the private
//! runtime directory. Every call has connections of its own while it lasts; the broker takes them from this process alone, and sandboxes only
//! with a ticket that was signed here. The connection that registered a call is used by a later one once it has nothing registered any more.
//! A broker that is gone is started anew by the next call: the call that finds it gone is refused.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use stockade_broker::broker::Pass;
use stockade_broker::client::Owner;
use stockade_broker::ticket::Signer;
use stockade_store::private_dir::ensure_private_dir;

use super::processes::{self, Role};
use crate::Context;
use crate::failure::Failure;

const STEP: &str = "broker";
/// How many connections are kept for later calls.
const MAX_KEPT: usize = 16;

/// The broker of this process, once there is one.
#[derive(Debug, Default)]
pub(crate) struct Broker(Mutex<Option<Running>>);

#[derive(Debug)]
struct Running {
    /// Ends with it.
    _role: Role,
    _owner: Owner,
    signer: Arc<Signer>,
    socket: PathBuf,
    kept: Kept,
}

/// Connections that have nothing registered, for later calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<Vec<Owner>>>);

impl Kept {
    /// Keeps a connection whose sandbox was released.
    pub(crate) fn keep(&self, owner: Owner) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < MAX_KEPT {
            kept.push(owner);
        }
    }

    /// One whose broker is still there.
    fn take(&self) -> Option<Owner> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| kept.pop()).find(Owner::is_there)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Whatever is left of it is in a private directory that the next start clears.
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// The way to a broker for one call.
pub(crate) struct Way {
    /// Registers the sandbox.
    pub(crate) owner: Owner,
    /// What egress asks at, once there is a pass.
    pub(crate) lookup: Lookup,
    /// The process, where it is this call's own.
    pub(crate) role: Option<Role>,
    /// Where the connection goes afterwards; it ends where that is nowhere.
    pub(crate) kept: Option<Kept>,
}

/// How egress comes to a broker.
pub(crate) enum Lookup {
    /// By a connection that was made for it.
    Own(UnixStream),
    /// By the socket, with the sandbox's pass.
    Socket(PathBuf),
}

impl Lookup {
    /// The connection, and the pass that must be said over it.
    pub(crate) fn connect(self, pass: Pass) -> Result<(UnixStream, Option<Pass>), Failure> {
        match self {
            Self::Own(stream) => Ok((stream, None)),
            Self::Socket(path) => {
                let stream = UnixStream::connect(path).map_err(|error| Failure::new(STEP, format!("it is gone: {error}")))?;
                Ok((stream, Some(pass)))
            }
        }
    }
}

/// A way to the server's broker, or to one for this call alone where there is no server.
pub(crate) fn way(context: &Context) -> Result<Way, Failure> {
    match &context.standing {
        Some(standing) if standing.steward.is_some() => standing.broker.way(context),
        Some(_) | None => own(context),
    }
}

fn own(context: &Context) -> Result<Way, Failure> {
    let (role, lookup) = processes::broker(context)?;
    let connection = role.connection.try_clone().map_err(|error| Failure::from_error(STEP, &error))?;
    let owner = Owner::connect(connection).map_err(|error| Failure::from_error(STEP, &error))?;
    Ok(Way { owner, lookup: Lookup::Own(lookup), role: Some(role), kept: None })
}

impl Broker {
    fn way(&self, context: &Context) -> Result<Way, Failure> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*running {
            if let Ok(way) = known.join() {
                return Ok(way);
            }
            // It was killed, or failed: nothing of it is left but a socket.
            drop(running.take());
        }
        let started = Running::start(context)?;
        let way = started.join()?;
        *running = Some(started);
        Ok(way)
    }
}

impl Running {
    fn start(context: &Context) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new(STEP, format!("making its socket: {error}"));
        let directory = context.places()?.runtime.join("broker");
        ensure_private_dir(&directory).map_err(|error| Failure::from_error(STEP, &error))?;
        let socket = directory.join(format!("{}.sock", std::process::id()));
        match std::fs::remove_file(&socket) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let listener = UnixListener::bind(&socket).map_err(failed)?;
        let role = processes::listening_broker(listener, context)?;
        let connection = role.connection.try_clone().map_err(failed)?;
        let owner = Owner::connect(connection).map_err(|error| Failure::from_error(STEP, &error))?;
        Ok(Self { signer: owner.signer(), _role: role, _owner: owner, socket, kept: Kept::default() })
    }

    fn connect(&self) -> Result<Owner, Failure> {
        let stream = UnixStream::connect(&self.socket).map_err(|error| Failure::new(STEP, format!("it is gone: {error}")))?;
        Owner::join(stream, Arc::clone(&self.signer)).map_err(|error| Failure::from_error(STEP, &error))
    }

    fn join(&self) -> Result<Way, Failure> {
        let owner = self.kept.take().map_or_else(|| self.connect(), Ok)?;
        Ok(Way { owner, lookup: Lookup::Socket(self.socket.clone()), role: None, kept: Some(self.kept.clone()) })
    }
}
