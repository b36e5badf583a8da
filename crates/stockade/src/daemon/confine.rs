//! What a gateway takes from itself before it serves anybody, so that a bug in it is not the end: the secret store, programs, mounts, connections,
//! other processes' memory. The daemon does, and so do the servers for agents.
//!
//! ```text
//!  mounts of its own, the secret store covered ─▶ capabilities dropped ─▶ Landlock ─▶ seccomp ─▶ tried: all refused?
//! ```
//!
//! All of it must hold, or nothing is served.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule};
use stockade_broker::store::Store;
use stockade_sandbox::confine;
use stockade_store::places::Places;
use stockade_store::private_dir::ensure_private_dir;

use super::proof::{self, Earlier};
use crate::Context;
use crate::failure::Failure;

const STEP: &str = "confining the server";
/// Where to look, whatever is in the way.
const HINT: &str = "`stockade doctor` says what this machine has; `stockade run` needs no server";
/// The version that is needed: the first that knows connections.
const NEEDED: ABI = ABI::V4;
/// Calls of the other interface of this processor carry this bit.
#[cfg(target_arch = "x86_64")]
const OTHER_INTERFACE: i64 = 0x4000_0000;

/// Calls that the gateway never makes.
const NEVER: [i64; 38] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_open_by_handle_at,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_acct,
];
/// Namespaces that a clone could make.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Confines this process for good, and tries whether that holds. Nothing may be served after an error.
pub(crate) fn confine(places: &Places) -> Result<(), Failure> {
    let earlier = Earlier::make();
    rights_given_up(places)?;
    match proof::attempts(places, &earlier).into_iter().find(|tried| !tried.refused) {
        None => Ok(()),
        Some(open) => Err(Failure::new(STEP, format!("it can still {}: {}", open.what, open.said)).with_hint(HINT)),
    }
}

/// `stockade confinement`: confines itself as servers do, and says what came of trying. What `doctor` asks where no server runs.
pub(crate) fn show(context: &Context) -> Result<ExitCode, Failure> {
    let places = context.places()?;
    ensure_private_dir(&places.state).map_err(|error| Failure::from_error(STEP, &error))?;
    let earlier = Earlier::make();
    rights_given_up(places)?;
    context.printer.json(&proof::attempts(places, &earlier))?;
    Ok(ExitCode::SUCCESS)
}

fn rights_given_up(places: &Places) -> Result<(), Failure> {
    let refused = |error: &(dyn std::error::Error + 'static)| Failure::from_error(STEP, error).with_hint(HINT);
    // Another thread would keep what this one gives up.
    let threads = std::fs::read_dir("/proc/self/task").map_err(|error| refused(&error))?.count();
    if threads != 1 {
        return Err(Failure::new(STEP, format!("{threads} threads run already, and one can be confined")));
    }
    let secrets = Store::beneath(&places.state).path().to_owned();
    ensure_private_dir(&secrets).map_err(|error| refused(&error))?;
    confine::own_mounts()
        .and_then(|()| confine::cover(&secrets))
        .and_then(|()| confine::drop_capabilities())
        .map_err(|error| refused(&error))?;
    landlocked().map_err(|failure| if failure.hint.is_some() { failure } else { failure.with_hint(HINT) })?;
    let filters = filters().map_err(|error| refused(&error))?;
    filters.iter().try_for_each(|filter| seccompiler::apply_filter(filter)).map_err(|error| refused(&error))
}

/// No program, no connection, no listener, no socket of another's by name.
fn landlocked() -> Result<(), Failure> {
    let refused = |error: landlock::RulesetError| Failure::from_error(STEP, &error);
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::Execute | AccessFs::Refer)
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(NEEDED)))
        .map_err(refused)?;
    // What newer kernels have besides is taken where it is there.
    let ruleset = ruleset.set_compatibility(CompatLevel::BestEffort).scope(Scope::AbstractUnixSocket).map_err(refused)?;
    // Where nothing says otherwise, no file can be moved to another directory: taking changes over and clearing up does.
    let everywhere = PathFd::new("/").map_err(|error| Failure::from_error(STEP, &error))?;
    let created = ruleset.create().and_then(|created| created.add_rule(PathBeneath::new(everywhere, AccessFs::Refer)));
    let status = created.and_then(RulesetCreated::restrict_self).map_err(refused)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => Err(Failure::new(STEP, "the kernel has no Landlock").with_hint("use Linux 6.7 or later")),
    }
}

fn filters() -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in NEVER {
        rules.insert(call, Vec::new());
        #[cfg(target_arch = "x86_64")]
        rules.insert(call | OTHER_INTERFACE, Vec::new());
    }
    let of = |argument: u8, operator: SeccompCmpOp, value: i32| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, u64::from(value.cast_unsigned()))?;
        SeccompRule::new(vec![condition])
    };
    let mask = |flag: i32| SeccompCmpOp::MaskedEq(u64::from(flag.cast_unsigned()));
    let clones = NAMESPACES.into_iter().map(|flag| of(0, mask(flag), flag)).collect::<Result<Vec<_>, _>>()?;
    rules.insert(libc::SYS_clone, clones);
    rules.insert(libc::SYS_socket, vec![of(0, SeccompCmpOp::Ne, libc::AF_UNIX)?]);
    rules.insert(libc::SYS_socketpair, vec![of(0, SeccompCmpOp::Ne, libc::AF_UNIX)?]);
    #[cfg(target_arch = "x86_64")]
    for call in [libc::SYS_clone, libc::SYS_clone3, libc::SYS_socket] {
        rules.insert(call | OTHER_INTERFACE, Vec::new());
    }
    // Whoever starts a thread tries the older call then, whose flags can be looked at.
    let newer = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    Ok([program(rules, libc::EPERM)?, program(newer, libc::ENOSYS)?])
}

fn program(rules: BTreeMap<i64, Vec<SeccompRule>>, answer: i32) -> Result<BpfProgram, seccompiler::BackendError> {
    let architecture = std::env::consts::ARCH.try_into()?;
    let refusal = SeccompAction::Errno(answer.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, refusal, architecture)?.try_into()
}

/// The directory that the secret store is in, which the gateway sees covered.
pub(super) fn secrets(places: &Places) -> impl AsRef<Path> {
    Store::beneath(&places.state).path().to_owned()
}
