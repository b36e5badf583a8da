//! A trial: a real sandbox around nothing, to learn what a wall holds on this machine.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use stockade_core::demand::{Demand, Enforcement};
use stockade_core::limits::{Limit, Limits};
use stockade_core::path::SafePath;
use stockade_core::spec::{MountMode, SandboxSpec, Workspace};

use crate::backends::{Backend, Start};
use crate::drive::{Ending, Sink, Streams};
use crate::guard::Guard;
use crate::once::JobError;
use crate::sandbox::Sandbox;
use crate::state::Sandboxes;

/// What a trial found.
#[derive(Debug)]
pub struct Found {
    /// What holds.
    pub enforcement: Enforcement,
    /// How long each step of the start took, in microseconds.
    pub steps: Vec<(String, u32)>,
    /// A program ran inside and came back.
    pub ran: bool,
}

/// Which sandbox is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The one that people get. What is missing is shown, but it does not do without namespaces.
    Usual,
    /// What `--allow-degraded` leaves where there are no namespaces.
    Degraded,
}

/// Starts a sandbox around an empty directory, runs `/bin/true` in it, and removes everything again.
pub fn trial(backend: &dyn Backend, kind: Kind, state: &Path, home: &Path) -> Result<Found, JobError> {
    let sandboxes = Sandboxes::open(state)?;
    let owned = sandboxes.create()?;
    let workspace = std::env::temp_dir().join(format!("stockade-trial-{}", owned.id));
    let result = in_workspace(backend, kind, &owned, &workspace, home);
    // An empty directory of our own; nothing worse can happen than that it stays.
    let _ = std::fs::remove_dir(&workspace);
    owned.remove()?;
    result
}

fn in_workspace(backend: &dyn Backend, kind: Kind, owned: &crate::state::Owned, workspace: &Path, home: &Path) -> Result<Found, JobError> {
    crate::state::private_directory(workspace).map_err(|e| JobError::Keep(format!("making a directory for the trial: {e}")))?;
    let real = std::fs::canonicalize(workspace).map_err(|e| JobError::Keep(e.to_string()))?;
    let safe = |path: &Path| SafePath::new(path).map_err(|e| JobError::Keep(e.to_string()));
    // The point is to see everything that is missing, not to stop at the first. A jail that stands always has its own network, so
    // leaving that one out changes nothing but that namespaces must be there.
    let usual = |demand: &Demand| kind == Kind::Degraded || *demand != Demand::Network;
    let mode = match kind {
        Kind::Usual => MountMode::Overlay,
        Kind::Degraded => MountMode::Ro,
    };
    let spec = SandboxSpec {
        workspace: Workspace { path: safe(&real)?, mode, git_common: None },
        mounts: Vec::new(),
        env: vec![("PATH".into(), OsString::from("/usr/bin:/bin"))],
        cwd: safe(&real)?,
        home: safe(Path::new("/home/sandbox"))?,
        exec_list: None,
        limits: Limits {
            cpu_millis: Some(Limit::default_of(1000)),
            memory: Some(Limit::default_of(256 << 20)),
            pids: Some(Limit::default_of(64)),
            disk: Some(Limit::default_of(64 << 20)),
            ..Limits::default()
        },
        allow_degraded: Demand::ALL.into_iter().filter(usual).collect::<BTreeSet<_>>(),
        path_dirs: Vec::new(),
    };
    let start = Start {
        spec: &spec,
        id: &owned.id,
        directory: &owned.directory,
        home,
        toolchain_roots: &[],
        hidden: &[],
        guard: &Guard::default(),
        programs: None,
        way_out: None,
        meanwhile: None,
    };
    let mut sandbox = Sandbox::start(backend, &start)?;
    let (enforcement, steps) = (sandbox.enforcement().clone(), sandbox.steps().to_vec());
    let streams = Streams::Plain { stdin: None, stdout: Sink::Buffer(4096), stderr: Sink::Buffer(4096) };
    let outcome = sandbox.exec(&["true".into()], streams, None)?;
    sandbox.destroy();
    Ok(Found { enforcement, steps, ran: outcome.ending == Ending::Code(0) })
}
