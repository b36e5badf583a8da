//! Starts the two processes behind a way out: this very program in other roles, over socket pairs that nobody else has.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Context;
use crate::failure::Failure;

/// This program, though its file may have been replaced since.
const ITSELF: &str = "/proc/self/exe";
/// How long a process may take to go once it was told; it is killed then.
const PATIENCE: Duration = Duration::from_millis(700);

/// A process that ends when its connection does.
#[derive(Debug)]
pub(crate) struct Role {
    child: Child,
    /// Our end.
    pub(crate) connection: UnixStream,
}

/// Starts the broker; the second connection is for egress.
#[expect(clippy::disallowed_methods, reason = "starts this very program in another role")]
pub(crate) fn broker() -> Result<(Role, UnixStream), Failure> {
    let (ours, owner) = pair("broker")?;
    let (lookup, egress) = pair("broker")?;
    // It runs the programs that settings name as sources, in the caller's own environment.
    let child = Command::new(ITSELF)
        .arg("broker")
        .stdin(Stdio::from(OwnedFd::from(owner)))
        .stdout(Stdio::from(OwnedFd::from(egress)))
        .stderr(Stdio::null())
        .spawn();
    let child = child.map_err(|error| Failure::new("broker", format!("starting: {error}")))?;
    Ok((Role { child, connection: ours }, lookup))
}

/// Starts egress. It gets nothing of the caller's environment but where the machine's roots are.
#[expect(clippy::disallowed_methods, reason = "starts this very program in another role")]
pub(crate) fn egress(context: &Context) -> Result<Role, Failure> {
    let (ours, owner) = pair("egress")?;
    let mut command = Command::new(ITSELF);
    command.arg("egress").env_clear().current_dir("/");
    for name in ["SSL_CERT_FILE", "SSL_CERT_DIR"] {
        command.envs(context.environment.variable(name).map(|value| (name, value)));
    }
    command.stdin(Stdio::from(OwnedFd::from(owner))).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().map_err(|error| Failure::new("egress", format!("starting: {error}")))?;
    Ok(Role { child, connection: ours })
}

impl Role {
    /// Waits for its end, which its connection's has brought about; not for long.
    pub(crate) fn wait(self) {
        let Self { mut child, connection } = self;
        drop(connection);
        let end = Instant::now() + PATIENCE;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > end {
                let _ = child.kill();
                let _ = child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn pair(step: &str) -> Result<(UnixStream, UnixStream), Failure> {
    UnixStream::pair().map_err(|error| Failure::new(step, format!("making a connection: {error}")))
}
