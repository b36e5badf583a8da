//! A template: a guest that builds what many jails share, keeps what they need to build the rest, and runs nothing.
//!
//! ```text
//! identity ─▶ namespaces ─▶ sources ─▶ scratch ─▶ shared root ─▶ place (kept sources, proc, devices) ─▶ pivot ─▶ detach
//! ```
//!
//! It is not confined, because a confined process can mount nothing and so could clone nothing. But it sees no more of the host than its clones
//! will: its root is a small file system with the shared root, the kept sources, and what is needed to make `/proc` and `/dev`. No
//! program is ever started in it, and no clone shares a pid namespace with it.

use std::os::fd::{AsFd, OwnedFd};

use stockade_wire::plan::{Access, Execution, Item, KEPT, Source, TemplatePlan};

use super::root::{self, Part, Shared};
use super::scratch::{OuterProc, Scratch};
use super::{Doing, StepFailure, Steps, Trouble, confine, devices, mounts, readback};

/// Directories and names of files, nothing more.
const SCRATCH_BYTES: u64 = 64 << 20;

/// A template that stands.
pub(crate) struct Moulded {
    /// What clones begin with.
    pub(crate) shared: Shared,
    /// User and group of clones.
    pub(crate) ids: (u32, u32),
    /// Its namespaces.
    pub(crate) namespaces: Vec<(String, u64)>,
    /// Each step and the microseconds it took.
    pub(crate) steps: Vec<(String, u32)>,
}

/// Builds the template around this process.
pub(crate) fn mould(plan: &TemplatePlan, fds: Vec<OwnedFd>) -> Result<Moulded, StepFailure> {
    let mut steps = Steps { took: Vec::with_capacity(8) };
    steps.run("identity", || confine::identity(plan.uid, plan.gid, &plan.groups))?;
    rustix::process::umask(rustix::fs::Mode::empty());
    // A jail gets these when it stands; a template only so that it has none of the host's.
    steps.run("namespaces", || {
        // SAFETY: plain integers; this process has one thread and shares nothing.
        let result = unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWCGROUP) };
        if result == 0 { Ok(()) } else { Err(mounts::last_error()).doing(|| "making namespaces".into()) }
    })?;
    // Kept sources are opened with the others, as if they were mounted last.
    let kept = plan.kept.iter().map(|source| Item::Bind {
        source: source.clone(),
        target: b"".into(),
        access: Access::ReadOnly {},
        execution: Execution::Denied {},
    });
    let all: Vec<Item> = plan.items.iter().cloned().chain(kept).collect();
    let mut sources = steps.run("sources", || mounts::Sources::open(&all, fds))?;
    let kept = steps.run("sources", || sources.split_last(plan.kept.len()))?;
    let scratch = steps.run("scratch", || Scratch::mount(SCRATCH_BYTES, OuterProc::NotShown))?;
    let (scratch, masked) = steps.run("root", || {
        let mut root = root::Builder::begin(scratch, Part::Shared)?;
        root.build(&plan.items, sources)?;
        root.seal()
    })?;
    steps.run("place", || place(&scratch, &plan.kept, kept))?;
    steps.run("pivot", || root::pivot_to(scratch.top()))?;
    drop(scratch);
    steps.run("detach", root::detach)?;
    let namespaces = steps.run("read back", readback::namespaces)?;
    steps.run("undumpable", confine::undumpable)?;
    Ok(Moulded { shared: Shared { path: c"/root", masked }, ids: (plan.uid, plan.gid), namespaces, steps: steps.took })
}

/// What clones need besides the shared root, at names of the template's own small root.
fn place(scratch: &Scratch, sources: &[Source], kept: Vec<Option<OwnedFd>>) -> Result<(), Trouble> {
    // Where a clone puts its own scratch file system.
    scratch.directory(b"mnt", 0o755)?;
    // A fresh proc can be made only where one can be seen.
    let proc = mounts::new_filesystem(c"proc", &[], &[], mounts::BASE | libc::MOUNT_ATTR_NOEXEC).doing(|| "making proc".into())?;
    mounts::attach(proc.as_fd(), scratch.directory(b"proc", 0o555)?.as_fd()).doing(|| "mounting proc".into())?;
    devices::give(scratch.directory(b"dev", 0o755)?.as_fd())?;
    let top = KEPT.trim_start_matches('/');
    for (number, (source, tree)) in sources.iter().zip(kept).enumerate() {
        let tree = tree.ok_or_else(|| Trouble::new(format!("{source:?} cannot be kept")))?;
        let name = format!("{number}");
        let onto = if root::is_directory(tree.as_fd())? {
            scratch.directory(format!("{top}/{name}").as_bytes(), 0o755)?
        } else {
            scratch.seed(top.as_bytes(), name.as_bytes(), b"", 0o444)?;
            scratch.existing(format!("{top}/{name}").as_bytes())?
        };
        mounts::attach(tree.as_fd(), onto.as_fd()).doing(|| format!("keeping source {number}"))?;
    }
    Ok(())
}
