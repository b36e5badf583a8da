//! Steps that take rights away from this process, for good and for all its children.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
    RulesetStatus, Scope,
};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Rlimit};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, LinkNameSpaceType, UnshareFlags};
use stockade_wire::plan::{Groups, Landlock, Network, Resource};

use super::{Doing, Need, Trouble, mounts, seccomp, shown};

/// The newest Landlock version whose rights this code knows; the crate asks the kernel for all of them it has.
pub(super) const LANDLOCK_TARGET: ABI = ABI::V9;

/// Joins the cgroups whose files are all that is left of what the host passed, and begins a cgroup namespace there. The host makes those groups while this
/// process starts and builds its root, so it cannot be born in them.
pub(crate) fn groups(joins: u32, passed: &mut Vec<OwnedFd>) -> Result<(), Trouble> {
    if passed.len() != joins as usize {
        return Err(Trouble::new("the plan names other descriptors than were passed"));
    }
    for file in passed.drain(..) {
        rustix::io::write(&file, b"0").doing(|| "joining a cgroup".into())?;
    }
    // SAFETY: this process has one thread, and no memory or descriptors are shared or unshared by this flag.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWCGROUP) }.doing(|| "making a cgroup namespace".into())
}

/// Becomes the user that the sandbox runs as. The id maps are there: the host wrote them before it sent the plan.
pub(crate) fn identity(uid: u32, gid: u32, groups: &Groups) -> Result<(), Trouble> {
    match groups {
        Groups::Kept {} => {}
        Groups::Dropped {} => rustix::thread::set_thread_groups(&[]).doing(|| "dropping the groups".into())?,
    }
    let (uid, gid) = (rustix::process::Uid::from_raw(uid), rustix::process::Gid::from_raw(gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid).doing(|| "taking the group".into())?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).doing(|| "taking the user".into())
}

/// Names the sandbox in its own uts namespace.
pub(crate) fn hostname(name: &[u8]) -> Result<(), Trouble> {
    rustix::system::sethostname(name).doing(|| format!("naming the sandbox {}", shown(name)))
}

/// Goes into the network namespace that the host made, or makes one.
pub(crate) fn network(network: &Network, passed: &mut Vec<OwnedFd>) -> Result<(), Trouble> {
    match network {
        Network::Passed {} if passed.is_empty() => Err(Trouble::new("no network namespace was passed")),
        Network::Passed {} => {
            let namespace = passed.remove(0);
            rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .doing(|| "entering the network namespace".into())
        }
        Network::Own {} => {
            // SAFETY: this process has one thread, and no memory or descriptors are shared or unshared by this flag.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.doing(|| "making a network namespace".into())?;
            loopback()
        }
    }
}

/// Switches the loopback interface on; it is the only one in the network namespace.
fn loopback() -> Result<(), Trouble> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).doing(|| "opening a socket".into())?;
    // SAFETY: all-zero bytes are a valid ifreq: integers, arrays and a union of plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *slot = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the descriptor is a socket and the request is an initialised ifreq that lives through the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    if result == 0 { Ok(()) } else { Err(mounts::last_error()).doing(|| "switching loopback on".into()) }
}

/// Limits per process, soft and hard alike.
pub(crate) fn rlimits(limits: &[(Resource, u64)]) -> Result<(), Trouble> {
    for (resource, value) in limits {
        let (resource, name) = match resource {
            Resource::OpenFiles {} => (rustix::process::Resource::Nofile, "open files"),
            Resource::Processes {} => (rustix::process::Resource::Nproc, "processes"),
            Resource::CoreSize {} => (rustix::process::Resource::Core, "core size"),
            Resource::FileSize {} => (rustix::process::Resource::Fsize, "file size"),
        };
        // Nobody may raise a hard limit without privilege, so a lower one that is already there stays.
        let ceiling = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let value = (*value).min(ceiling);
        rustix::process::setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
            .doing(|| format!("limiting {name} to {value}"))?;
    }
    Ok(())
}

/// Setuid programs and file capabilities give nothing any more.
pub(crate) fn no_new_privileges() -> Result<(), Trouble> {
    rustix::thread::set_no_new_privs(true).doing(|| "setting no_new_privs".into())
}

/// Empties every capability set and locks the bits that could fill them again.
pub(crate) fn drop_capabilities() -> Result<(), Trouble> {
    for number in 0..64u32 {
        // SAFETY: PR_CAPBSET_DROP takes one integer and touches no memory.
        let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) };
        if result != 0 {
            match mounts::last_error() {
                // The first number that this kernel has no capability for.
                Errno::INVAL => break,
                errno => return Err(errno).doing(|| format!("dropping capability {number} from the bounding set")),
            }
        }
    }
    rustix::thread::clear_ambient_capability_set().doing(|| "clearing ambient capabilities".into())?;
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(bits).doing(|| "locking the secure bits".into())?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).doing(|| "dropping capabilities".into())
}

/// What Landlock answered.
pub(crate) struct LandlockState {
    pub(crate) abi: u32,
    pub(crate) restricted: bool,
}

/// Restricts writing and executing; every right the kernel knows is handled.
pub(crate) fn landlock(plan: &Landlock, need: Need) -> Result<LandlockState, Trouble> {
    state(restrict(plan), need)
}

/// What a restriction came to.
pub(super) fn state(status: Result<landlock::RestrictionStatus, Box<dyn std::error::Error>>, need: Need) -> Result<LandlockState, Trouble> {
    let status = status.map_err(|e| Trouble::new(format!("restricting files: {e}")))?;
    let abi = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi as u32,
        _ => 0,
    };
    let restricted = matches!(status.ruleset, RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced);
    if need == Need::Must && !restricted {
        return Err(Trouble::new("this kernel has no Landlock (it needs Linux 5.13 with lsm=…,landlock)"));
    }
    Ok(LandlockState { abi, restricted })
}

fn restrict(plan: &Landlock) -> Result<landlock::RestrictionStatus, Box<dyn std::error::Error>> {
    let all = AccessFs::from_all(LANDLOCK_TARGET);
    let mut rules = Ruleset::default().handle_access(all)?.scope(Scope::from_all(LANDLOCK_TARGET))?.create()?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let base = if plan.executable.is_some() { read } else { read | AccessFs::Execute };
    rules = allow(rules, b"/", base)?;
    rules = allow(rules, b"/dev", read | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev)?;
    let written = if plan.executable.is_some() { all & !BitFlags::from(AccessFs::Execute) } else { all };
    for path in &plan.writable {
        rules = allow(rules, &path.0, written)?;
    }
    for path in plan.executable.iter().flatten() {
        rules = allow(rules, &path.0, AccessFs::Execute | AccessFs::ReadFile)?;
    }
    // Kernels that know no such right keep nobody from connecting.
    for path in &plan.connectable {
        rules = allow(rules, &path.0, AccessFs::ResolveUnix)?;
    }
    Ok(rules.restrict_self()?)
}

pub(super) fn allow(
    rules: RulesetCreated,
    path: &[u8],
    rights: impl Into<BitFlags<AccessFs>>,
) -> Result<RulesetCreated, Box<dyn std::error::Error>> {
    use std::os::unix::ffi::OsStrExt;
    let rights = rights.into();
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path));
    let target = PathFd::new(path)?;
    // A rule on a file may only name the rights that files have.
    let rights = if path.is_dir() { rights } else { rights & AccessFs::from_file(LANDLOCK_TARGET) };
    Ok(rules.add_rule(PathBeneath::new(target, rights))?)
}

/// Installs the system call filter; says whether it holds.
pub(crate) fn seccomp(need: Need, no_memory_files: bool) -> Result<bool, Trouble> {
    let filter = if no_memory_files { seccomp::install_without_memory_files } else { seccomp::install };
    match (filter(), need) {
        (Ok(()), _) => Ok(true),
        (Err(errno), Need::Must) => Err(errno).doing(|| "installing the system call filter".into()),
        (Err(_), Need::May) => Ok(false),
    }
}

/// Nothing inside can look into this process: its memory, its descriptors, the program file it was started from.
pub(crate) fn undumpable() -> Result<(), Trouble> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).doing(|| "making the guest undumpable".into())
}
