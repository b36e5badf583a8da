//! A sandbox through the library, as an embedding program starts it: for the measures that are about the library and not the command.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use stockade_core::limits::{Limit, Limits};
use stockade_core::path::SafePath;
use stockade_core::spec::{MountMode, SandboxSpec, Workspace};
use stockade_sandbox::backends::jail::Jail;
use stockade_sandbox::backends::{Backend, Start};
use stockade_sandbox::connection::Passing;
use stockade_sandbox::drive::{Ending, Sink, Streams};
use stockade_sandbox::guard::Guard;
use stockade_sandbox::sandbox::Sandbox;
use stockade_sandbox::state::{Owned, Sandboxes};
use stockade_sandbox::template::{Recipe, STOCK, Template};

use crate::failure::Failure;
use crate::ground::{Corner, PATH};

/// Limits that the command line sets where nobody said otherwise, as far as they cost something.
const OPEN_FILES: u64 = 65_536;
const PIDS: u32 = 4096;
const MEMORY: u64 = 4 << 30;

/// Where sandboxes of one kind are started.
pub(super) struct Site {
    spec: SandboxSpec,
    sandboxes: Sandboxes,
    home: PathBuf,
    hidden: [PathBuf; 1],
}

/// A running sandbox and its directory.
pub(super) struct Standing {
    pub(super) sandbox: Sandbox,
    owned: Owned,
}

impl Site {
    /// A workspace with an overlay, and the limits of the command line.
    pub(super) fn make(corner: &Corner) -> Result<Self, Failure> {
        let state = corner.state().join("library");
        let sandboxes = Sandboxes::open(&state).map_err(|e| Failure::Path { path: state.display().to_string(), why: e.to_string() })?;
        let workspace = safe(&corner.work())?;
        let limits = Limits {
            memory: Some(Limit::default_of(MEMORY)),
            pids: Some(Limit::default_of(PIDS)),
            open_files: Some(Limit::default_of(OPEN_FILES)),
            ..Limits::default()
        };
        let home = safe(&corner.home())?;
        let spec = SandboxSpec {
            cwd: workspace.clone(),
            workspace: Workspace { path: workspace, mode: MountMode::Overlay, git_common: None },
            mounts: Vec::new(),
            env: vec![("HOME".into(), home.as_path().into()), ("PATH".into(), OsString::from(PATH))],
            home,
            exec_list: None,
            limits,
            allow_degraded: std::collections::BTreeSet::new(),
            path_dirs: Vec::new(),
        };
        Ok(Self { spec, sandboxes, home: corner.home(), hidden: [state] })
    }

    /// Starts a jail from nothing.
    pub(super) fn start(&self, passing: Passing) -> Result<Standing, String> {
        let owned = self.sandboxes.create().map_err(|e| e.to_string())?;
        let programs = stockade_sandbox::state::programs(self.hidden.first().map_or(&self.home, |state| state));
        let start = Start {
            spec: &self.spec,
            id: &owned.id,
            directory: &owned.directory,
            home: &self.home,
            toolchain_roots: &[],
            hidden: &self.hidden,
            guard: &Guard::default(),
            programs: Some(&programs),
            way_out: None,
            meanwhile: None,
        };
        let backend: &dyn Backend = &Jail { passing };
        let sandbox = Sandbox::start(backend, &start).map_err(|e| e.to_string())?;
        Ok(Standing { sandbox, owned })
    }

    /// A template of the same jails, with as many waiting as the library keeps by itself.
    pub(super) fn template(&self) -> Result<Template, String> {
        let state = self.hidden.first().map_or(&self.home, |state| state).clone();
        let recipe = Recipe {
            spec: self.spec.clone(),
            state,
            home: self.home.clone(),
            toolchain_roots: Vec::new(),
            hidden: self.hidden.to_vec(),
            passing: Passing::Possible,
            stock: STOCK,
        };
        Template::prepare(recipe).map_err(|e| e.to_string())
    }

    /// A path of the workspace.
    pub(super) fn path(&self, name: &str) -> Result<SafePath, Failure> {
        safe(&self.spec.workspace.path.as_path().join(name))
    }
}

impl Standing {
    /// Runs a program that must return 0.
    pub(super) fn exec(&mut self, argv: &[OsString], streams: Streams<'_>) -> Result<(), String> {
        match self.sandbox.exec(argv, streams, None) {
            Ok(outcome) if outcome.ending == Ending::Code(0) => Ok(()),
            Ok(outcome) => Err(format!("{:?}", outcome.ending)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Ends the sandbox and removes its directory.
    pub(super) fn end(self) -> Result<(), String> {
        self.sandbox.destroy();
        self.owned.remove().map_err(|e| e.to_string())
    }
}

/// All three streams to one descriptor, which is passed inside.
pub(super) fn to_descriptor(null: BorrowedFd<'_>) -> Streams<'_> {
    Streams::Plain { stdin: Some(null), stdout: Sink::Descriptor(null), stderr: Sink::Descriptor(null) }
}

/// The null device, open for both.
pub(super) fn null() -> Result<std::fs::File, Failure> {
    let path = Path::new("/dev/null");
    std::fs::File::options().read(true).write(true).open(path).map_err(Failure::io("open", path))
}

/// Borrows a file as a descriptor.
pub(super) fn fd(file: &std::fs::File) -> BorrowedFd<'_> {
    file.as_fd()
}

fn safe(path: &Path) -> Result<SafePath, Failure> {
    SafePath::new(path).map_err(|e| Failure::Path { path: path.display().to_string(), why: e.to_string() })
}
