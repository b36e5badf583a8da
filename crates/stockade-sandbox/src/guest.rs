//! Getting the guest program running and through its handshake, whatever the wall.

mod program;

use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use stockade_sys::guest::{self, Guest, Identity, Namespaces};
use stockade_wire::message::{Reply, Request};

use crate::backends::BackendError;
use crate::connection::{Connection, ConnectionError, Passing};

/// How long a guest may take to answer during its start.
pub const PATIENCE_SECONDS: u64 = 30;
/// What to do where the kernel gives no namespaces.
const RESTRICTED: &str = "user namespaces are switched off or restricted: run `stockade doctor`";

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
    let program = program::open(surroundings.programs).map_err(|e| prepare("making a memory file for the guest program", e))?;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|e| prepare("making the control stream", e))?;
    let mut token = [0u8; 32];
    crate::state::random_bytes(&mut token).map_err(|e| prepare("reading random bytes", e))?;
    let hex = crate::state::hex(&token);
    let environment = CString::new(format!("STOCKADE_TOKEN={hex}")).into_iter().collect();
    let Surroundings { namespaces, identity, join, cgroup, .. } = *surroundings;
    let start = guest::Start { program: &program, control: &theirs, environment, namespaces, identity, join, cgroup };
    let guest = guest::start(&start).map_err(|error| explain(&error))?;
    drop(theirs);
    let connection = Connection::new(ours, passing);
    // A guest that is gone already shows when its answer is waited for, with the reason.
    let _ = connection.send(0, &Request::Hello { version: stockade_wire::VERSION, token }, &[]);
    Ok((guest, Greeted(connection)))
}

/// Why a guest that should have answered did not.
pub fn lost(guest: &Guest, error: ConnectionError) -> BackendError {
    match (guest::failure_of(guest), error) {
        (Some((stage, errno)), _) => {
            let fix = match errno {
                Errno::ACCESS if stage == "executing the guest" => {
                    "memory files may not be executed here: sysctl vm.memfd_noexec=0, or ask your administrator".into()
                }
                Errno::PERM | Errno::ACCESS | Errno::NOSPC | Errno::USERS if stage == "making namespaces" => RESTRICTED.into(),
                _ => String::new(),
            };
            BackendError::Step { step: "starting the guest".into(), detail: format!("{stage}: {errno}"), fix }
        }
        (None, error) => error.into(),
    }
}

fn explain(error: &guest::StartError) -> BackendError {
    let fix = match error {
        guest::StartError::Clone(Errno::PERM | Errno::ACCESS | Errno::NOSPC | Errno::USERS) | guest::StartError::IdMap(..) => {
            RESTRICTED.into()
        }
        guest::StartError::Clone(Errno::NOSYS) => "Stockade needs Linux 5.12 or newer".into(),
        guest::StartError::Clone(Errno::AGAIN) => "the limit of processes is reached: see `ulimit -u`".into(),
        guest::StartError::Clone(_) | guest::StartError::Prepare(_) => String::new(),
    };
    BackendError::Step { step: "starting the guest".into(), detail: error.to_string(), fix }
}
