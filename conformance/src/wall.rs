//! Walls as the suite uses them: start one around a workspace, run a program in it, look at what came out.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use stockade_core::limits::{Limit, Limits};
use stockade_core::path::SafePath;
use stockade_core::spec::{MountMode, SandboxSpec, Workspace};
use stockade_sandbox::backends::jail::Jail;
use stockade_sandbox::backends::local::Local;
use stockade_sandbox::backends::{Backend, Start};
use stockade_sandbox::drive::{Ending, Sink, Streams};
use stockade_sandbox::environment::{self, Given};
use stockade_sandbox::guard::Guard;
use stockade_sandbox::sandbox::Sandbox;
use stockade_sandbox::state::{Owned, Sandboxes};

use crate::case::Ground;
use crate::cloned::ClonedJail;
use crate::error::SuiteError;
use crate::lab::{IDENTITY, Lab};
use crate::reach::{self, Reached};
use crate::target::{Target, Who};

/// Output of one program that is looked at.
const MOST_OUTPUT: u64 = 4 << 20;
/// No program of the suite may take longer.
const PATIENCE: Duration = Duration::from_mins(2);
/// Limits of cases about limits: small enough to be reached in no time.
const MEMORY: u64 = 96 << 20;
const PROCESSES: u32 = 64;
const DISK: u64 = 32 << 20;
const OPEN_FILES: u64 = 1024;

/// The programs of the exam's policy, and the shell that runs its scripts.
const GRANTED: [&str; 15] =
    ["bash", "ls", "cat", "echo", "printf", "head", "wc", "grep", "find", "sed", "sort", "date", "test", "true", "git"];

/// What came of a program.
#[derive(Debug)]
pub(crate) struct Ran {
    /// How it ended; bubblewrap's endings are codes.
    pub(crate) ending: Ending,
    /// Its output, cut.
    pub(crate) stdout: Vec<u8>,
    /// Its errors, cut.
    pub(crate) stderr: Vec<u8>,
}

/// A wall around a workspace.
pub(crate) enum Wall {
    /// One of Stockade's.
    Stockade(Box<Standing>),
    /// Bubblewrap: each program has a fresh one.
    Bubblewrap(PathBuf, String),
}

/// A sandbox of Stockade's and what must outlive it.
pub(crate) struct Standing {
    pub(crate) sandbox: Sandbox,
    pub(crate) owned: Owned,
    output: PathBuf,
    _reach: Option<Reached>,
}

impl Wall {
    /// Starts one.
    pub(crate) fn start(target: Target, lab: &Lab, work: &Path, ground: Ground) -> Result<Self, SuiteError> {
        if target == Target::Bubblewrap {
            return Ok(Self::Bubblewrap(work.to_owned(), lab.path()));
        }
        Ok(Self::Stockade(Box::new(stand(target, lab, work, ground)?)))
    }

    /// Runs a program to its end.
    pub(crate) fn run(&mut self, argv: &[OsString]) -> Result<Ran, SuiteError> {
        match self {
            Self::Stockade(standing) => standing.run(argv),
            Self::Bubblewrap(work, path) => bubblewrap(work, path, argv),
        }
    }
}

/// The backend of a target that is Stockade's.
pub(crate) fn backend(target: Target) -> Box<dyn Backend> {
    match target {
        Target::Local | Target::Bubblewrap => Box::new(Local { passing: target.passing() }),
        Target::JailRoot | Target::JailUser | Target::StreamRoot | Target::StreamUser => Box::new(Jail { passing: target.passing() }),
        Target::TemplateRoot | Target::TemplateUser => Box::new(ClonedJail { passing: target.passing() }),
    }
}

/// Starts a sandbox of Stockade's.
pub(crate) fn stand(target: Target, lab: &Lab, work: &Path, ground: Ground) -> Result<Standing, SuiteError> {
    let mut spec = specification(target, lab, work, ground)?;
    let refused = |e: &dyn std::fmt::Display| SuiteError::Sandbox(e.to_string());
    let state = lab.base.join("state");
    let owned = Sandboxes::open(&state).and_then(|s| s.create()).map_err(|e| refused(&e))?;
    let reach = if ground == Ground::Reach { Some(reach::open(target, lab, &owned.id, &owned.directory)?) } else { None };
    if let Some(reach) = &reach {
        spec.env.extend(reach.environment.iter().cloned());
        spec.env.sort();
    }
    let guard = if target == Target::Local { Guard::default() } else { Guard::take(&spec).map_err(|e| refused(&e))? };
    // As `stockade run` does: the guest program lies on disk, where a hostile one may look for it.
    let programs = stockade_sandbox::state::programs(&state);
    let hidden = [state];
    let start = Start {
        spec: &spec,
        id: &owned.id,
        directory: &owned.directory,
        home: &lab.base.join("home"),
        toolchain_roots: &[],
        hidden: &hidden,
        guard: &guard,
        programs: Some(&programs),
        way_out: reach.as_ref().and_then(|reach| reach.way_out.as_ref()),
        meanwhile: None,
    };
    let sandbox = Sandbox::start(backend(target).as_ref(), &start).map_err(|e| refused(&e))?;
    Ok(Standing { sandbox, owned, output: lab.base.clone(), _reach: reach })
}

/// What the sandbox of a ground is.
pub(crate) fn specification(target: Target, lab: &Lab, work: &Path, ground: Ground) -> Result<SandboxSpec, SuiteError> {
    let safe = |path: &Path| SafePath::new(path).map_err(|e| SuiteError::Sandbox(e.to_string()));
    let home = lab.base.join("home");
    let mode = match (target, ground) {
        (Target::Local, _) | (_, Ground::Rw | Ground::Granted) => MountMode::Rw,
        (_, Ground::Shared | Ground::Listed | Ground::Limited | Ground::Reach) => MountMode::Overlay,
    };
    let own = |name: &str| name.to_owned();
    let exec_list = match ground {
        // Without a wall there is nothing that could hold a list; the same attempts then show what a list is for.
        _ if target == Target::Local => None,
        Ground::Listed => Some(vec![lab.probe().display().to_string(), lab.base.join("bin/listed").display().to_string(), own("bash")]),
        Ground::Granted => Some(GRANTED.map(own).to_vec()),
        Ground::Shared | Ground::Rw | Ground::Limited | Ground::Reach => None,
    };
    let path = lab.path();
    let given: Vec<Given> = IDENTITY.iter().map(|(n, v)| Given { name: own(n), value: Some(v.into()) }).collect();
    Ok(SandboxSpec {
        workspace: Workspace { path: safe(work)?, mode, git_common: None },
        mounts: Vec::new(),
        env: environment::build(caller, &given, Path::is_dir),
        cwd: safe(work)?,
        home: safe(&home)?,
        exec_list,
        limits: limits(target, ground),
        allow_degraded: std::collections::BTreeSet::new(),
        path_dirs: std::env::split_paths(&path).collect(),
    })
}

/// The caller's environment, which holds a secret.
#[expect(clippy::disallowed_methods, reason = "the suite's worker has an environment made for it")]
fn caller(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

fn limits(target: Target, ground: Ground) -> Limits {
    let time = Some(Limit::asked(PATIENCE));
    if ground != Ground::Limited || target == Target::Local {
        return Limits { time, ..Limits::default() };
    }
    // An ordinary user without a control group has memory watched, not held; asking for it would be refused.
    let memory = match target.who() {
        Who::Root => Limit::asked(MEMORY),
        Who::Ordinary => Limit::default_of(MEMORY),
    };
    Limits {
        memory: Some(memory),
        pids: Some(Limit::asked(PROCESSES)),
        disk: Some(Limit::asked(DISK)),
        open_files: Some(Limit::asked(OPEN_FILES)),
        time,
        ..Limits::default()
    }
}

impl Standing {
    /// Runs a program with descriptors that could be passed; where they cannot, the same bytes travel over the stream.
    pub(crate) fn run(&mut self, argv: &[OsString]) -> Result<Ran, SuiteError> {
        let null = File::open("/dev/null").map_err(SuiteError::file("open", "/dev/null"))?;
        let file = || tempfile::tempfile_in(&self.output).map_err(SuiteError::file("create a file in", &self.output));
        let (mut stdout, mut stderr) = (file()?, file()?);
        let streams = Streams::Plain {
            stdin: Some(null.as_fd()),
            stdout: Sink::Descriptor(stdout.as_fd()),
            stderr: Sink::Descriptor(stderr.as_fd()),
        };
        let outcome = self.sandbox.exec(argv, streams, None).map_err(|e| SuiteError::Sandbox(format!("running: {e}")))?;
        Ok(Ran { ending: outcome.ending, stdout: contents(&mut stdout)?, stderr: contents(&mut stderr)? })
    }
}

fn contents(file: &mut File) -> Result<Vec<u8>, SuiteError> {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.take(MOST_OUTPUT).read_to_end(&mut bytes)).map_err(SuiteError::file("read", "output"))?;
    Ok(bytes)
}

/// The profile that its own documentation and most wrappers begin with.
#[expect(clippy::disallowed_methods, reason = "the control runs somebody else's wall, as an ordinary user")]
fn bubblewrap(work: &Path, path: &str, argv: &[OsString]) -> Result<Ran, SuiteError> {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", &PATIENCE.as_secs().to_string(), "bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev"]);
    command.args(["--proc", "/proc", "--tmpfs", "/tmp", "--bind"]).arg(work).arg(work).arg("--chdir").arg(work).arg("--");
    command.args(argv).env("PATH", path).stdin(Stdio::null());
    let output = command.output().map_err(|e| SuiteError::Program { step: "running bubblewrap", why: e.to_string() })?;
    let code = output.status.code().unwrap_or(-1);
    Ok(Ran { ending: Ending::Code(code), stdout: output.stdout, stderr: output.stderr })
}
