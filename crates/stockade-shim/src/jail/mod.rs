//! The jail: a plan walked step by step, from inside fresh namespaces.
//!
//! The host cloned this process into new user, mount, pid, network, ipc, uts and cgroup namespaces and executed it at once, with
//! ambient capabilities that mean something only in the new user namespace. [`apply`] takes the plan and turns the
//! process into the prisoner that every later program inherits from:
//!
//! ```text
//! identity ─▶ sources ─▶ scratch ─▶ root items ─▶ pivot ─▶ limits ─▶ capabilities ─▶ landlock ─▶ seccomp ─▶ read back
//! ```
//!
//! Each step is one function, is timed, and fails alone with its own name. Nothing is retried and nothing is skipped:
//! a step that fails ends the guest, unless a person allowed that layer to be missing (`Layer::Wanted`).

mod bare;
mod confine;
mod devices;
mod mounts;
mod overlay;
mod readback;
mod root;
mod scratch;
mod seccomp;

use std::os::fd::OwnedFd;
use std::time::Instant;

pub(crate) use bare::confine_bare;
use rustix::io::Errno;
use stockade_wire::plan::{JailPlan, JailReport, Layer};

/// A jail that stands.
pub(crate) struct Jailed {
    /// What the kernel says holds.
    pub report: JailReport,
    /// Descriptors of the scratch directories that the plan exports, in the plan's order.
    pub exports: Vec<OwnedFd>,
}

/// The step that failed, with what it was doing.
#[derive(Debug)]
pub(crate) struct StepFailure {
    /// Name of the step.
    pub step: &'static str,
    /// What it was doing, for people.
    pub detail: String,
    /// The kernel's answer, 0 where it gave none.
    pub errno: i32,
}

/// What went wrong inside a step; the step's name is added by [`Steps::run`].
#[derive(Debug)]
pub(crate) struct Trouble {
    detail: String,
    errno: i32,
}

impl Trouble {
    pub(crate) fn new(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), errno: 0 }
    }
}

/// Adds what was being done to an error of the kernel.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Trouble>;
}

impl<T> Doing<T> for Result<T, Errno> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Trouble> {
        self.map_err(|errno| Trouble { detail: format!("{}: {errno}", what()), errno: errno.raw_os_error() })
    }
}

/// Bytes of a path, made printable.
pub(crate) fn shown(path: &[u8]) -> String {
    path.escape_ascii().to_string()
}

/// Runs named steps and remembers how long each took.
struct Steps {
    took: Vec<(String, u32)>,
}

impl Steps {
    fn run<T>(&mut self, step: &'static str, act: impl FnOnce() -> Result<T, Trouble>) -> Result<T, StepFailure> {
        let start = Instant::now();
        let result = act().map_err(|t| StepFailure { step, detail: t.detail, errno: t.errno });
        self.took.push((step.to_owned(), u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX)));
        result
    }
}

/// Builds the jail around this process.
pub(crate) fn apply(plan: &JailPlan, fds: Vec<OwnedFd>) -> Result<Jailed, StepFailure> {
    let mut steps = Steps { took: Vec::with_capacity(20) };
    steps.run("identity", || confine::identity(plan.uid, plan.gid, &plan.groups))?;
    // Directories get exactly the mode they are made with.
    rustix::process::umask(rustix::fs::Mode::empty());
    steps.run("host name", || confine::hostname(&plan.hostname.0))?;
    steps.run("loopback", confine::loopback)?;
    let sources = steps.run("sources", || mounts::Sources::open(&plan.items, fds))?;
    let scratch = steps.run("scratch", || scratch::Scratch::mount(plan.scratch_bytes))?;
    steps.run("root", || root::build(plan, &scratch, sources))?;
    let exports = steps.run("export", || scratch.export(&plan.export))?;
    let probe = steps.run("probe directory", || scratch.directory(b"probe", 0o755))?;
    steps.run("pivot", || root::pivot(&scratch))?;
    drop(scratch);
    steps.run("detach", root::detach)?;
    steps.run("limits", || confine::rlimits(&plan.rlimits))?;
    steps.run("no new privileges", confine::no_new_privileges)?;
    steps.run("capabilities", confine::drop_capabilities)?;
    let landlock = steps.run("landlock", || confine::landlock(&plan.landlock, required(&plan.landlock_layer)))?;
    let filtered = steps.run("seccomp", || confine::seccomp(required(&plan.seccomp_layer), plan.no_memory_files))?;
    let mut report = steps.run("read back", || readback::report(&landlock, filtered, &probe))?;
    steps.run("undumpable", confine::undumpable)?;
    report.steps = steps.took;
    Ok(Jailed { report, exports })
}

/// Whether a layer must hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Must,
    May,
}

fn required(layer: &Layer) -> Need {
    match layer {
        Layer::Required {} => Need::Must,
        Layer::Wanted {} => Need::May,
    }
}
