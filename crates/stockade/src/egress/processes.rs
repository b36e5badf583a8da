//! Starts the two processes behind a way out: this very program in other roles, over socket pairs that nobody else has. A confined server has its
//! steward start them.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::Context;
use crate::daemon::Started;
use crate::failure::Failure;

/// This program, though its file may have been replaced since.
const ITSELF: &str = "/proc/self/exe";
/// How long a process may take to go once it was told; it is killed then.
const PATIENCE: Duration = Duration::from_millis(700);

/// A process that ends when its connection does.
#[derive(Debug)]
pub(crate) struct Role {
    process: Started,
    /// Our end.
    pub(crate) connection: UnixStream,
}

/// Starts the broker; the second connection is for egress.
pub(crate) fn broker(context: &Context) -> Result<(Role, UnixStream), Failure> {
    let (connection, owner) = pair("broker")?;
    let (lookup, egress) = pair("broker")?;
    let process = match context.steward() {
        Some(steward) => steward.broker(&owner, &egress)?,
        None => Started::Here(spawn_broker(owner.into(), egress.into())?),
    };
    Ok((Role { process, connection }, lookup))
}

/// Starts a broker that takes connections at a socket.
pub(crate) fn listening_broker(listener: UnixListener, context: &Context) -> Result<Role, Failure> {
    let (connection, owner) = pair("broker")?;
    let process = match context.steward() {
        Some(steward) => steward.listening_broker(&owner, &listener)?,
        None => Started::Here(spawn_broker(owner.into(), listener.into())?),
    };
    Ok(Role { process, connection })
}

/// Starts egress.
pub(crate) fn egress(context: &Context) -> Result<Role, Failure> {
    let (connection, owner) = pair("egress")?;
    let process = match context.steward() {
        Some(steward) => steward.egress(&owner)?,
        None => Started::Here(spawn_egress(owner.into(), context)?),
    };
    Ok(Role { process, connection })
}

/// The broker as a child of this process. It runs the programs that settings name as sources, in the caller's own environment.
#[expect(clippy::disallowed_methods, reason = "starts this very program in another role")]
pub(crate) fn spawn_broker(owner: OwnedFd, egress: OwnedFd) -> Result<Child, Failure> {
    let mut command = Command::new(ITSELF);
    command.arg("broker").stdin(Stdio::from(owner)).stdout(Stdio::from(egress)).stderr(Stdio::null());
    command.spawn().map_err(|error| Failure::new("broker", format!("starting: {error}")))
}

/// Egress as a child of this process. It gets nothing of the caller's environment but where the machine's roots are.
#[expect(clippy::disallowed_methods, reason = "starts this very program in another role")]
pub(crate) fn spawn_egress(owner: OwnedFd, context: &Context) -> Result<Child, Failure> {
    let mut command = Command::new(ITSELF);
    command.arg("egress").env_clear().current_dir("/");
    for name in ["SSL_CERT_FILE", "SSL_CERT_DIR"] {
        command.envs(context.environment.variable(name).map(|value| (name, value)));
    }
    command.stdin(Stdio::from(owner)).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|error| Failure::new("egress", format!("starting: {error}")))
}

impl Role {
    /// Waits for its end, which its connection's has brought about; not for long.
    pub(crate) fn wait(self) {
        let Self { process, connection } = self;
        drop(connection);
        process.wait_or_kill(PATIENCE);
    }
}

fn pair(step: &str) -> Result<(UnixStream, UnixStream), Failure> {
    UnixStream::pair().map_err(|error| Failure::new(step, format!("making a connection: {error}")))
}
