//! Getting the guest program running and through its handshake, whatever the wall.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags};
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

/// A started guest and the stream to it.
#[derive(Debug)]
pub struct Stream {
    /// The stream, before the handshake.
    pub connection: Connection,
    /// The process.
    pub guest: Guest,
    token: [u8; 32],
}

/// The guest program as a sealed memory file: nothing inside can change what the next sandbox executes.
fn program() -> Result<OwnedFd, Errno> {
    let name = c"stockade-shim";
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag that says "this one is to be executed".
    let file = match rustix::fs::memfd_create(name, flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags)?,
        other => other?,
    };
    let mut rest = stockade_shim_image::SHIM;
    while !rest.is_empty() {
        let n = rustix::io::write(&file, rest)?;
        rest = rest.get(n..).unwrap_or_default();
    }
    rustix::fs::fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(file)
}

/// Starts the guest in namespaces (or none) and in its cgroups.
pub fn spawn(namespaces: Namespaces, identity: Identity, join: &[OwnedFd], passing: Passing) -> Result<Stream, BackendError> {
    let prepare = |detail: &str, errno: Errno| BackendError::Step {
        step: "starting the guest".into(),
        detail: format!("{detail}: {errno}"),
        fix: String::new(),
    };
    let program = program().map_err(|errno| match errno {
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
    let start = guest::Start { program: &program, control: &theirs, environment, namespaces, identity, join };
    let guest = guest::start(&start).map_err(|error| explain(&error))?;
    drop(theirs);
    Ok(Stream { connection: Connection::new(ours, passing), guest, token })
}

/// Says hello; the guest answers with its own version.
pub fn greet(stream: &mut Stream) -> Result<(), BackendError> {
    let hello = Request::Hello { version: stockade_wire::VERSION, token: stream.token };
    let answer = stream.connection.send(0, &hello, &[]).and_then(|()| stream.connection.receive(PATIENCE_SECONDS));
    match answer {
        Ok((0, Reply::Welcome { version, .. })) if version == stockade_wire::VERSION => Ok(()),
        Ok(_) => Err(ConnectionError::OutOfTurn("something else than a welcome").into()),
        Err(error) => Err(lost(stream, error)),
    }
}

/// Why a guest that should have answered did not.
pub fn lost(stream: &Stream, error: ConnectionError) -> BackendError {
    match (guest::failure_of(&stream.guest), error) {
        (Some((stage @ "executing the guest", errno @ Errno::ACCESS)), _) => {
            BackendError::Obstacle { obstacle: Obstacle::MemoryFiles, met: format!("{stage}: {errno}") }
        }
        (Some((stage, errno)), _) => {
            BackendError::Step { step: "starting the guest".into(), detail: format!("{stage}: {errno}"), fix: String::new() }
        }
        (None, error) => error.into(),
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
