//! Confinement without namespaces: what is left where the machine refuses them and a person allowed that.
//!
//! ```text
//! reaper ─▶ limits ─▶ no new privileges ─▶ capabilities ─▶ landlock ─▶ no sockets ─▶ seccomp ─▶ read back
//! ```
//!
//! There is no new root: paths are the host's, and Landlock says which may be opened. No socket of any kind can be made, because
//! neither Landlock nor a filter can tell a harmless one from the message bus that starts programs outside.

use landlock::{Access as _, AccessFs, BitFlags, Ruleset, RulesetAttr, Scope};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{CapabilitySet, CapabilitySets};
use stockade_wire::plan::BarePlan;

use super::confine::{self, LANDLOCK_TARGET, allow};
use super::{Doing, Jailed, StepFailure, Steps, Trouble, mounts, readback, required, shown};
use crate::wayout::Way;

/// Devices that programs cannot do without, and pseudo-terminals.
const DEVICES: [&[u8]; 8] =
    [b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/random", b"/dev/urandom", b"/dev/tty", b"/dev/ptmx", b"/dev/pts"];

/// Takes from this process what can be taken without namespaces.
pub(crate) fn confine_bare(plan: &BarePlan) -> Result<Jailed, StepFailure> {
    let mut steps = Steps { took: Vec::with_capacity(10) };
    steps.run("reaper", reaper)?;
    let probe = steps.run("probe directory", || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(plan.probe.0.as_slice(), flags, Mode::empty()).doing(|| format!("opening {}", shown(&plan.probe.0)))
    })?;
    steps.run("limits", || confine::rlimits(&plan.rlimits))?;
    steps.run("no new privileges", confine::no_new_privileges)?;
    steps.run("capabilities", drop_held)?;
    let landlock = steps.run("landlock", || confine::state(restrict(plan), required(&plan.landlock_layer)))?;
    steps.run("no sockets", no_sockets)?;
    let filtered = steps.run("seccomp", || confine::seccomp(super::Need::Must, plan.executable.is_some()))?;
    let mut report = steps.run("read back", || readback::report(&landlock, filtered, &probe))?;
    steps.run("undumpable", confine::undumpable)?;
    report.steps = steps.took;
    Ok(Jailed { report, exports: Vec::new(), way: Way::Closed })
}

/// What loses its parent becomes our child, so that it can be found at the end.
fn reaper() -> Result<(), Trouble> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).doing(|| "becoming the reaper of orphans".into())
}

/// Empties the sets that a process may empty by itself; with `no_new_privs` nothing fills them again.
fn drop_held() -> Result<(), Trouble> {
    rustix::thread::clear_ambient_capability_set().doing(|| "clearing ambient capabilities".into())?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).doing(|| "dropping capabilities".into())
}

fn restrict(plan: &BarePlan) -> Result<landlock::RestrictionStatus, Box<dyn std::error::Error>> {
    let all = AccessFs::from_all(LANDLOCK_TARGET);
    let mut rules = Ruleset::default().handle_access(all)?.scope(Scope::from_all(LANDLOCK_TARGET))?.create()?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let execute = BitFlags::from(AccessFs::Execute);
    let listed = plan.executable.is_some();
    for path in &plan.readable {
        rules = allow(rules, &path.0, if listed { read } else { read | execute })?;
    }
    for path in &plan.writable {
        rules = allow(rules, &path.0, if listed { all & !execute } else { all })?;
    }
    for path in plan.executable.iter().flatten() {
        rules = allow(rules, &path.0, execute | AccessFs::ReadFile)?;
    }
    rules = allow(rules, b"/proc", read)?;
    for path in DEVICES.iter().filter(|path| rustix::fs::access(**path, rustix::fs::Access::EXISTS).is_ok()) {
        rules = allow(rules, path, read | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev)?;
    }
    Ok(rules.restrict_self()?)
}

/// Refuses `socket` whatever its arguments; pairs of connected sockets lead nowhere else and stay possible.
fn no_sockets() -> Result<(), Trouble> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    // The call number is the first word of what a filter sees. Other calling conventions are the main filter's to refuse.
    let filter = [
        libc::sock_filter { code: LOAD, jt: 0, jf: 0, k: 0 },
        libc::sock_filter { code: EQUAL, jt: 0, jf: 1, k: libc::SYS_socket as u32 },
        libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | libc::EACCES as u32 },
        libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: `program` names initialised instructions that live until the call returns; the kernel copies and never writes them.
    let answer = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    if answer == 0 { Ok(()) } else { Err(mounts::last_error()).doing(|| "refusing sockets".into()) }
}
