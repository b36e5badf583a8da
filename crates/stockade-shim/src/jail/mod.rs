//! The jail: a plan walked step by step, from inside fresh namespaces.
//!
//! The host cloned this process into new user, mount, pid, ipc and uts namespaces and executed it at once, with
//! ambient capabilities that mean something only in the new user namespace. [`begin`] and [`complete`] take the plan and turn the
//! process into the prisoner that every later program inherits from:
//!
//! ```text
//! identity ─▶ scratch ─▶ basis ─▶ sources ─▶ root ─▶ pivot ─▶ network ─▶ way out ─▶ groups ─▶ limits ─▶ capabilities ─▶ landlock ─▶ seccomp ─▶ read back
//! ```
//!
//! The plan comes in three parts, as soon as the host knows them: the basis needs nothing of the machine, the cgroups and the network
//! namespace are made by the host while the root is built.
//!
//! Each step is one function, is timed, and fails alone with its own name. Nothing is retried and nothing is skipped:
//! a step that fails ends the guest, unless a person allowed that layer to be missing (`Layer::Wanted`).

mod bare;
mod cloning;
mod confine;
mod devices;
mod mounts;
mod overlay;
mod readback;
mod root;
mod scratch;
mod seccomp;
mod template;
mod ways;

use std::os::fd::OwnedFd;
use std::time::Instant;

pub(crate) use bare::confine_bare;
pub(crate) use cloning::clones;
pub(crate) use root::Part;
use rustix::io::Errno;
use scratch::OuterProc;
use stockade_wire::plan::{Basis, Item, JailPlan, JailReport, Layer, Place};
pub(crate) use template::mould;

use crate::wayout::Way;

/// A jail that stands.
pub(crate) struct Jailed {
    /// What the kernel says holds.
    pub report: JailReport,
    /// Descriptors of the scratch directories that the plan exports, in the plan's order.
    pub exports: Vec<OwnedFd>,
    /// What programs inside can reach.
    pub way: Way,
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

impl StepFailure {
    /// The host begins a jail and then says nothing, or something else.
    pub(crate) fn without_a_plan() -> Self {
        Self { step: "plan", detail: "the host did not say what to build".into(), errno: 0 }
    }
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

/// A jail that was begun.
pub(crate) struct Begun<'a> {
    steps: Steps,
    root: root::Builder<'a>,
}

/// Begins a jail around this process.
pub(crate) fn begin<'a>(basis: &Basis, part: Part<'a>) -> Result<Begun<'a>, StepFailure> {
    let mut steps = Steps { took: Vec::with_capacity(20) };
    steps.run("identity", || confine::identity(basis.uid, basis.gid, &basis.groups))?;
    // Directories get exactly the mode they are made with.
    rustix::process::umask(rustix::fs::Mode::empty());
    steps.run("host name", || confine::hostname(&basis.hostname.0))?;
    let outer = if basis.items.iter().any(|item| matches!(item, Item::Proc { .. })) { OuterProc::NotShown } else { OuterProc::Shown };
    let scratch = steps.run("scratch", || scratch::Scratch::mount(basis.scratch_bytes, outer))?;
    let root = steps.run("basis", || {
        let mut root = root::Builder::begin(scratch, part)?;
        root.build(&basis.items, mounts::Sources::open(&basis.items, Vec::new())?)?;
        Ok(root)
    })?;
    Ok(Begun { steps, root })
}

/// Completes it; `place` waits for what the host makes meanwhile.
pub(crate) fn complete(
    begun: Begun<'_>,
    plan: &JailPlan,
    fds: Vec<OwnedFd>,
    place: impl FnOnce() -> Option<(Place, Vec<OwnedFd>)>,
) -> Result<Jailed, StepFailure> {
    let Begun { mut steps, mut root } = begun;
    let sources = steps.run("sources", || mounts::Sources::open(&plan.items, fds))?;
    steps.run("root", || root.build(&plan.items, sources))?;
    let agent = root.take_agent();
    let (scratch, _) = steps.run("seal", || root.seal())?;
    let exports = steps.run("export", || scratch.export(&plan.export))?;
    let probe = steps.run("probe directory", || scratch.directory(b"probe", 0o755))?;
    steps.run("pivot", || root::pivot(&scratch))?;
    drop(scratch);
    let (place, mut passed) = steps.run("wait", || place().ok_or_else(|| Trouble::new("the host did not say where to go")))?;
    // The kernel lets go of the old root when every processor has passed a quiet moment, which comes sooner when the host is done.
    steps.run("detach", root::detach)?;
    steps.run("network", || confine::network(&place.network, &mut passed))?;
    let way = match &place.way_out {
        // Nobody would serve whoever connects to an agent; dropped, its socket refuses.
        None => Way::Closed,
        Some(plan) => Way::Open(steps.run("way out", || ways::open(plan, agent, &mut passed))?),
    };
    steps.run("groups", || confine::groups(place.joins, &mut passed))?;
    steps.run("limits", || confine::rlimits(&place.rlimits))?;
    steps.run("no new privileges", confine::no_new_privileges)?;
    steps.run("capabilities", confine::drop_capabilities)?;
    let landlock = steps.run("landlock", || confine::landlock(&plan.landlock, required(&plan.landlock_layer)))?;
    let filtered = steps.run("seccomp", || confine::seccomp(required(&plan.seccomp_layer), plan.no_memory_files))?;
    let mut report = steps.run("read back", || readback::report(&landlock, filtered, &probe))?;
    steps.run("undumpable", confine::undumpable)?;
    report.steps = steps.took;
    Ok(Jailed { report, exports, way })
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
