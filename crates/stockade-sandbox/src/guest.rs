//! Getting the guest program running and through its handshake, whatever the wall.

mod program;

pub(crate) use program::tool;

use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use stockade_sys::guest::{self, Guest, Identity, Namespaces};
use stockade_wire::message::{Reply, Request};

use crate::backends::BackendError;
use crate::connection::{Connection, ConnectionError, Passing};
use crate::surroundings::facts::Facts;
use crate::surroundings::{Failed, Obstacle};

/// How long a guest may take to answer during its start.
pub const PATIENCE_SECONDS: u64 = 30;

/// Where a guest is started.
pub struct Surroundings<'a> {
    /// Which namespaces.
    pub namespaces: Namespaces,
    /// Which ids.
    pub identity: Identity,
    /// Files of version 1 cgroups to join by.
    pub join: &'a [OwnedFd],
    /// The version 2 cgroup to be cloned into.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// Where the guest program is kept between sandboxes; without a place it is made in memory each time.
    pub programs: Option<&'a Path>,
}

/// A stream on which hello was said, but not yet answered.
#[derive(Debug)]
pub struct Greeted(Connection);

impl Greeted {
    /// Sends what need not wait for the answer. A guest that is gone already shows when its answer is waited for, with the reason.
    pub fn follow_with(&self, request: &Request) {
        let _ = self.0.send(0, request, &[]);
    }

    /// Waits for the answer: the guest's own version.
    pub fn welcome(mut self, guest: &Guest) -> Result<Connection, BackendError> {
        match self.0.receive(PATIENCE_SECONDS) {
            Ok((0, Reply::Welcome { version, .. })) if version == stockade_wire::VERSION => Ok(self.0),
            Ok(_) => Err(ConnectionError::OutOfTurn("something else than a welcome").into()),
            Err(error) => Err(lost(guest, error)),
        }
    }
}

/// Starts the guest and says hello. It does not wait: the guest makes its namespaces and starts while the caller goes on.
pub fn spawn(surroundings: &Surroundings<'_>, passing: Passing) -> Result<(Guest, Greeted), BackendError> {
    let prepare = |detail: &str, errno: Errno| BackendError::Step {
        step: "starting the guest".into(),
        detail: format!("{detail}: {errno}"),
        fix: String::new(),
    };
    let program = program::open(surroundings.programs).map_err(|errno| match errno {
        // With the switch at 2 an executable memory file is refused at its making.
        Errno::ACCESS => BackendError::Obstacle { obstacle: Obstacle::MemoryFiles, met: format!("making a memory file: {errno}") },
        errno => prepare("making a memory file for the guest program", errno),
    })?;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|e| prepare("making the control stream", e))?;
    let mut token = [0u8; 32];
    crate::state::random_bytes(&mut token).map_err(|e| prepare("reading random bytes", e))?;
    let hex = crate::state::hex(&token);
    let environment = CString::new(format!("STOCKADE_TOKEN={hex}")).into_iter().collect();
    let Surroundings { namespaces, identity, join, cgroup, .. } = *surroundings;
    let start = guest::Start { program: &program, control: &theirs, environment, namespaces, identity, join, cgroup };
    let guest = guest::start(start).map_err(|error| explain(&error))?;
    drop(theirs);
    let connection = Connection::new(ours, passing);
    // A guest that is gone already shows when its answer is waited for, with the reason.
    let _ = connection.send(0, &Request::Hello { version: stockade_wire::VERSION, token }, &[]);
    Ok((guest, Greeted(connection)))
}

/// Why a guest that should have answered did not.
pub fn lost(guest: &Guest, error: ConnectionError) -> BackendError {
    let Some((stage, errno)) = guest::failure_of(guest) else { return error.into() };
    let met = format!("{stage}: {errno}");
    let obstacle = match (stage, errno) {
        ("executing the guest", Errno::ACCESS) => Some(Obstacle::MemoryFiles),
        ("making namespaces", errno) => Obstacle::behind(Failed::Clone, errno.raw_os_error(), &Facts::gather()),
        _ => None,
    };
    match obstacle {
        Some(obstacle) => BackendError::Obstacle { obstacle, met },
        None => BackendError::Step { step: "starting the guest".into(), detail: met, fix: String::new() },
    }
}

fn explain(error: &guest::StartError) -> BackendError {
    let errno = match error {
        guest::StartError::Clone(errno) => errno.raw_os_error(),
        // Only the parent's rights over the new namespace can be missing here.
        guest::StartError::IdMap(_, error) => error.raw_os_error().unwrap_or(0),
        guest::StartError::Prepare(_) => 0,
    };
    if let Some(obstacle) = Obstacle::behind(Failed::Clone, errno, &Facts::gather()) {
        return BackendError::Obstacle { obstacle, met: error.to_string() };
    }
    let fix = match error {
        guest::StartError::Clone(Errno::AGAIN) => "the limit of processes is reached: see `ulimit -u`".into(),
        guest::StartError::Clone(_) | guest::StartError::Prepare(_) | guest::StartError::IdMap(..) => String::new(),
    };
    BackendError::Step { step: "starting the guest".into(), detail: error.to_string(), fix }
}
