//! The launcher as a process: this very program in another role, started by whoever may make none, or wants some that stand ready.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use serde::{Deserialize, Serialize};
use stockade_core::spec::BackendKind;
use stockade_sandbox::launch::bounds::Bounds;
use stockade_sandbox::launch::remote::Launcher;
use stockade_sandbox::launch::serve::serve;
use stockade_sandbox::letter;
use stockade_store::places::Places;

use crate::failure::Failure;

/// This program, though its file may have been replaced since.
const ITSELF: &str = "/proc/self/exe";

/// What a launcher is told when it starts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    state: PathBuf,
    runtime: PathBuf,
    hidden: Vec<PathBuf>,
    roots: Vec<PathBuf>,
    walls: Vec<BackendKind>,
    hint: String,
}

/// What is fixed when a server starts, whatever is asked of it later.
#[derive(Debug)]
pub(crate) struct Scope {
    /// Where everything lies that sandboxes show of the host.
    pub(crate) roots: Vec<PathBuf>,
    /// Walls that are raised from nothing.
    pub(crate) walls: Vec<BackendKind>,
    /// What a person can do about a refusal.
    pub(crate) hint: &'static str,
}

impl Scope {
    /// The same as the launcher has it.
    pub(crate) fn bounds(&self, places: &Places) -> Bounds {
        self.order(places).into()
    }

    fn order(&self, places: &Places) -> Order {
        Order {
            state: places.state.clone(),
            runtime: places.runtime.clone(),
            hidden: vec![places.state.clone(), places.runtime.clone()],
            roots: self.roots.clone(),
            walls: self.walls.clone(),
            hint: self.hint.to_owned(),
        }
    }
}

impl From<Order> for Bounds {
    fn from(order: Order) -> Self {
        let Order { state, runtime, hidden, roots, walls, hint } = order;
        Self { state, runtime, hidden, roots, walls, hint }
    }
}

/// Starts one. It mounts nothing from outside its scope, and ends when the connection to it does.
#[expect(clippy::disallowed_methods, reason = "starts this very program in another role")]
pub(crate) fn start(places: &Places, scope: &Scope) -> Result<(Child, Launcher), Failure> {
    let failed = |error: std::io::Error| Failure::new("launcher", format!("starting: {error}"));
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let mut command = Command::new(ITSELF);
    command
        .arg("launcher")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = command.spawn().map_err(failed)?;
    letter::send(&ours, &scope.order(places), &[]).map_err(failed)?;
    Ok((child, Launcher::new(ours, &places.state)))
}

/// `stockade launcher`: makes jails until whoever started it goes. Its connection is standard input.
pub(crate) fn launch() -> Result<ExitCode, Failure> {
    let failed = |error: std::io::Error| Failure::new("launcher", error.to_string());
    // A session of its own: keys that are pressed at the other's terminal are not meant for it.
    let _ = rustix::process::setsid();
    let connection = UnixStream::from(rustix::io::dup(rustix::stdio::stdin()).map_err(|errno| failed(errno.into()))?);
    let Some((order, _)) = letter::receive::<Order>(&connection).map_err(failed)? else { return Ok(ExitCode::SUCCESS) };
    serve(&connection, order.into()).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
