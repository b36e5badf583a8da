//! What the egress process takes from itself before it serves anybody: privileges to gain, files, listening sockets, signals to others.
//!
//! It keeps what it needs: outgoing connections, its authority's directory, the machine's roots and resolver settings. Where the kernel
//! has no Landlock, or less of it, the rest holds all the same.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, Scope,
};

/// The newest version that is asked for; older kernels give what they have.
const VERSION: ABI = ABI::V6;
/// Where roots, their links and resolver settings are; and random numbers, which a statically linked program takes from there.
const READ: [&str; 13] = [
    "/dev/random",
    "/dev/urandom",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/etc/resolv.conf",
    "/etc/hosts",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/usr/lib/ssl",
    "/var/lib/ca-certificates",
    "/nix/store",
    "/gnu/store",
];

/// Confines this thread and all that it starts.
pub(crate) fn confine(authority: &Path, roots: &[PathBuf]) -> Result<(), RulesetError> {
    let read = AccessFs::from_read(VERSION) & !AccessFs::Execute;
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(VERSION))?
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?;
    // Links are followed when a path is opened, so what they lead to is named as well.
    let usual = READ.iter().map(PathBuf::from).chain(roots.iter().cloned());
    let real = |path: PathBuf| std::fs::canonicalize(&path).ok();
    let readable: Vec<PathBuf> = usual.filter_map(real).collect();
    let rules = readable.iter().filter_map(|path| Some((PathFd::new(path).ok()?, path.is_dir())));
    let mut created = ruleset.create()?;
    for (file, is_directory) in rules {
        let access = if is_directory { read } else { read & AccessFs::from_file(VERSION) };
        created = created.add_rule(PathBeneath::new(file, access))?;
    }
    if let Ok(directory) = PathFd::new(authority) {
        let access = read | AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::Refer | AccessFs::Truncate;
        created = created.add_rule(PathBeneath::new(directory, access))?;
    }
    // Also forbids new privileges.
    created.restrict_self().map(drop)
}
