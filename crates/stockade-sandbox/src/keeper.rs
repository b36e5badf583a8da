//! Created sandboxes: what their supervisor is given, and how others reach it.
//!
//! `sandbox create` writes a [`Charge`] into the sandbox's directory and starts `stockade hold ID` with the sandbox's lock as its standard
//! input; the supervisor reads the charge, starts the wall and answers one line. From then on the lock says that it lives.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stockade_core::demand::{Demand, Enforcement};
use stockade_core::id::SandboxId;
use stockade_core::reach::Reach;
use stockade_core::spec::SandboxSpec;
use stockade_wire::message::{Reply, Request};

use crate::backends::{Backend, BackendError, Running, Start, local};
use crate::connection::{Connection, ConnectionError, Passing};
use crate::files::FileError;
use crate::gate::{Gate, Opened};
use crate::guard::Guard;
use crate::hold::{self, Ended, Owner, Supervisor};
use crate::once::{self, JobError};
use crate::sandbox::Sandbox;
use crate::signals::Signals;
use crate::state::{self, Owned, Record, Sandboxes};
use crate::wayout;
use crate::workspace::kept;
use crate::workspace::layer::Layer;

/// Name of the charge in a sandbox's directory.
const CHARGE: &str = "charge.json";
/// Exists while a person has paused the sandbox.
const PAUSED: &str = "paused";
/// What programs did that they should not, one line each.
const VIOLATIONS: &str = "violations";
/// How long a supervisor may take to answer.
const PATIENCE_SECONDS: u64 = 30;

/// What a supervisor is to hold.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Charge {
    /// The sandbox.
    pub spec: SandboxSpec,
    /// The person's home directory outside.
    pub home: PathBuf,
    /// Values of variables that name toolchain roots.
    pub toolchain_roots: Vec<OsString>,
    /// The wall.
    pub backend: String,
    /// What it may reach.
    #[serde(default)]
    pub reach: Reach,
    /// Variables that a person set, which nothing else may.
    #[serde(default)]
    pub given: Vec<String>,
}

impl Charge {
    /// Writes it where the supervisor looks.
    pub fn write(&self, directory: &Path) -> Result<(), JobError> {
        let path = directory.join(CHARGE);
        let text = serde_json::to_vec(self).map_err(|e| JobError::Keep(e.to_string()))?;
        std::fs::write(&path, text).map_err(|e| JobError::Keep(format!("writing {}: {e}", path.display())))
    }

    /// Reads it.
    pub fn read(directory: &Path) -> Result<Self, JobError> {
        let path = directory.join(CHARGE);
        let text = std::fs::read(&path).map_err(|e| JobError::Keep(format!("reading {}: {e}", path.display())))?;
        serde_json::from_slice(&text).map_err(|e| JobError::Keep(format!("{} is damaged: {e}", path.display())))
    }
}

/// Where a sandbox's supervisor listens.
pub fn socket_path(runtime: &Path, id: &SandboxId) -> PathBuf {
    runtime.join(format!("{id}.sock"))
}

/// Connects to a sandbox's supervisor, and says nothing yet.
pub fn dial(runtime: &Path, id: &SandboxId) -> std::io::Result<OwnedFd> {
    hold::dial(&socket_path(runtime, id))
}

/// Holds a sandbox until it ends. `ready` is called once, when clients can connect or when it cannot start.
pub fn hold(
    owned: Owned,
    backend: &dyn Backend,
    charge: &Charge,
    state: &Path,
    socket: &Path,
    gate: Option<&dyn Gate>,
    ready: impl FnOnce(Result<&Enforcement, &JobError>),
) -> Result<Ended, JobError> {
    let signals = Signals::catch(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP]).map_err(|e| JobError::Keep(e.to_string()))?;
    let hidden = [state.to_owned(), socket.parent().unwrap_or(state).to_owned()];
    let guard = if backend.kind() == local::KIND {
        Guard::default()
    } else {
        Guard::take(&charge.spec).map_err(|e| JobError::Keep(e.to_string()))?
    };
    guard.write(&owned.directory).map_err(|e| JobError::Keep(format!("writing down the protected paths: {e}")))?;
    let programs = state::programs(state);
    let (opened, spec) = match open(gate, &owned, charge) {
        Ok(both) => both,
        Err(error) => {
            ready(Err(&error));
            owned.remove()?;
            return Err(error);
        }
    };
    let start = Start {
        spec: &spec,
        id: &owned.id,
        directory: &owned.directory,
        home: &charge.home,
        toolchain_roots: &charge.toolchain_roots,
        hidden: &hidden,
        guard: &guard,
        programs: Some(&programs),
        way_out: opened.as_ref().map(|opened| &opened.way_out),
        meanwhile: None,
    };
    // Without it a way out that ended would only not be told of.
    let alarm = opened.as_ref().and_then(|opened| opened.way_out.alarm.as_ref()?.try_clone().ok());
    let started = Sandbox::start(backend, &start).map(Sandbox::into_running).and_then(refuse_without_namespaces);
    // Only the guest has its end of the way out from here on, so that egress sees it go.
    drop(opened);
    let listening = started.map_err(JobError::from).and_then(|running| {
        let listener = hold::listen(socket).map_err(|e| JobError::Keep(format!("listening on {}: {e}", socket.display())))?;
        Ok((running, listener))
    });
    let (running, listener) = match listening {
        Ok(both) => both,
        Err(error) => {
            ready(Err(&error));
            owned.remove()?;
            return Err(error);
        }
    };
    ready(Ok(running.enforcement()));
    let upper = owned.directory.join("layer/upper");
    let mut exports = None;
    let lock = owned.lock().try_clone().map_err(|e| JobError::Keep(format!("keeping the lock: {e}")))?;
    let owner = Owner { lock, pause_marker: owned.directory.join(PAUSED) };
    let quarantine = owned.directory.join("quarantine");
    let (watched, violations) = (guard.clone(), owned.directory.join(VIOLATIONS));
    let inspect = move || {
        let mut lines = watched.quarantine(&quarantine);
        lines.extend(alarm.as_ref().is_some_and(wayout::is_gone).then(|| wayout::GONE.to_owned()));
        append(&violations, &lines);
    };
    let (ended, mut running, farewell) = Supervisor::new(running, listener, owner, Box::new(inspect)).serve(&signals, |running| {
        let exports = exports.get_or_insert_with(|| running.take_exports());
        bring_out(exports, &upper);
    });
    let mut exports = exports.unwrap_or_default();
    exports.extend(running.take_exports());
    running.destroy();
    let _ = std::fs::remove_file(socket);
    bring_out(&exports, &upper);
    guard.quarantine(&owned.directory.join("quarantine"));
    let saved = state::save_quarantine(&owned.directory, &owned.id, state).map_err(JobError::from);
    let finished = saved.and_then(|()| finish(owned, &ended, charge, &upper));
    farewell.say();
    finished?;
    Ok(ended)
}

/// Opens the way out, where there is one, and writes down the environment that programs have because of it.
fn open(gate: Option<&dyn Gate>, owned: &Owned, charge: &Charge) -> Result<(Option<Opened>, SandboxSpec), JobError> {
    let Some(gate) = gate else { return Ok((None, charge.spec.clone())) };
    let opened = gate.open(&owned.id, &owned.directory, &|| true)?;
    let spec = opened.furnish(&charge.spec);
    let mut record = owned.record()?;
    record.environment.clone_from(&spec.env);
    owned.write_record(&record)?;
    Ok((Some(opened), spec))
}

fn bring_out(exports: &[(String, OwnedFd)], upper: &Path) {
    if let Some((_, fd)) = exports.iter().find(|(name, _)| name == "layers/layer/upper") {
        // A copy that fails leaves none, and whoever asks for the changes is told that there is none.
        let _ = once::bring_out(fd.as_fd(), upper);
    }
}

/// Writes down what programs did that they should not, for whoever asked for the program to read.
fn append(path: &Path, lines: &[String]) {
    use std::io::Write;
    if lines.is_empty() {
        return;
    }
    if let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path) {
        // The files are away either way; only the telling would be lost.
        let _ = writeln!(file, "{}", lines.join("\n"));
    }
}

/// What was written down so far about a sandbox's violations.
pub fn violations(directory: &Path) -> Vec<String> {
    std::fs::read_to_string(directory.join(VIOLATIONS)).map(|text| text.lines().map(str::to_owned).collect()).unwrap_or_default()
}

/// A destroyed sandbox leaves nothing; one that ended otherwise leaves its changes, if there are any.
fn finish(owned: Owned, ended: &Ended, charge: &Charge, upper: &Path) -> Result<(), JobError> {
    let changes = match ended {
        Ended::Limit(_) | Ended::Guest | Ended::Signal | Ended::Disowned
            if upper.is_dir() && !kept::is_empty_layer(upper).unwrap_or(true) =>
        {
            Layer::new(upper, charge.spec.workspace.path.as_path()).changes()?
        }
        Ended::Destroyed | Ended::Limit(_) | Ended::Guest | Ended::Signal | Ended::Disowned => Vec::new(),
    };
    // A client may have been killed while it brought changes back.
    state::finish_apply(&owned.directory, &owned.id)?;
    if changes.is_empty() {
        return Ok(owned.remove()?);
    }
    let mut record = owned.record()?;
    record.kept = Some(once::listed(&changes));
    Ok(owned.write_record(&record)?)
}

/// A client's connection to a supervisor.
pub struct Remote {
    /// The stream.
    pub connection: Connection,
}

impl Remote {
    /// Connects and says hello.
    pub fn connect(runtime: &Path, id: &SandboxId) -> Result<Self, FileError> {
        Self::greet(dial(runtime, id)?)
    }

    /// Says hello over a connection that somebody else made: a supervisor speaks only with processes of its own user namespace.
    pub fn greet(dialled: OwnedFd) -> Result<Self, FileError> {
        let mut connection = Connection::new(dialled, Passing::Possible);
        connection.send(0, &Request::Hello { version: stockade_wire::VERSION, token: [0; 32] }, &[])?;
        match connection.receive(PATIENCE_SECONDS)? {
            (0, Reply::Welcome { version, .. }) if version == stockade_wire::VERSION => Ok(Self { connection }),
            _ => Err(ConnectionError::OutOfTurn("something else than a welcome").into()),
        }
    }

    /// Stops or continues everything inside.
    pub fn freeze(&mut self, frozen: bool) -> Result<(), FileError> {
        self.simple(&Request::Freeze { frozen })
    }

    /// Ends the sandbox; its supervisor removes everything.
    pub fn shut_down(&mut self) -> Result<(), FileError> {
        self.simple(&Request::Shutdown {})
    }

    fn simple(&mut self, request: &Request) -> Result<(), FileError> {
        let id = self.connection.fresh_id();
        self.connection.send(id, request, &[])?;
        loop {
            match self.connection.receive(PATIENCE_SECONDS)? {
                (got, Reply::Done {}) if got == id => return Ok(()),
                (got, Reply::Failed { kind, message }) if got == id => return Err(FileError::Refused { kind, message }),
                _ => {}
            }
        }
    }
}

/// Whether a person paused the sandbox.
pub fn is_paused(directory: &Path) -> bool {
    directory.join(PAUSED).exists()
}

/// Remembers, or forgets, that a person paused the sandbox.
pub fn mark_paused(directory: &Path, paused: bool) -> std::io::Result<()> {
    let path = directory.join(PAUSED);
    if paused {
        std::fs::write(path, b"")
    } else {
        std::fs::remove_file(path).or_else(|e| if e.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
    }
}

/// Makes a new sandbox's directory with the same contents as another's.
pub fn fork(sandboxes: &Sandboxes, from: &Path, record: &Record) -> Result<(Owned, Charge), JobError> {
    let charge = Charge::read(from)?;
    let owned = sandboxes.create()?;
    let mounts = (0..charge.spec.mounts.len()).map(|index| format!("mount-{index}"));
    for name in std::iter::once("layer".to_owned()).chain(mounts) {
        copy_layer(&from.join(&name), &owned.directory.join(&name))?;
    }
    let mut copy = record.clone();
    copy.id = owned.id.clone();
    copy.name = None;
    copy.kept = None;
    owned.write_record(&copy)?;
    charge.write(&owned.directory)?;
    Ok((owned, charge))
}

/// Copies what an overlay collected, if it is on disk.
fn copy_layer(from: &Path, to: &Path) -> Result<(), JobError> {
    let upper = from.join("upper");
    if !upper.is_dir() {
        return Ok(());
    }
    crate::state::private_directory(to).map_err(|e| JobError::Keep(e.to_string()))?;
    let source = std::fs::File::open(&upper).map_err(|e| JobError::Keep(format!("opening {}: {e}", upper.display())))?;
    let ownership = if rustix::process::geteuid().is_root() { kept::Ownership::Same } else { kept::Ownership::Caller };
    kept::copy_tree(source.as_fd(), &to.join("upper"), ownership).map_err(|e| JobError::Keep(e.to_string()))?;
    Ok(())
}
/// Without namespaces only a whole run can be ended for certain, and only there programs get the variables they need.
fn refuse_without_namespaces(running: Box<dyn Running>) -> Result<Box<dyn Running>, BackendError> {
    if running.environment().is_empty() {
        return Ok(running);
    }
    Err(BackendError::Demand {
        demand: Demand::Processes,
        why: "without namespaces a created sandbox could outlive its supervisor".into(),
        fix: "use `stockade run`".into(),
    })
}
