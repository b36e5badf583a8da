//! Where users are: what a machine refuses to give a jail, which demands that breaks, and the one command that helps.
//!
//! ```text
//! a failed call ─┐
//! facts ─────────┴▶ obstacle ─▶ demands · why · fix
//! ```
//!
//! The same words stand in a refused `run` and in `stockade doctor`, because both take them from here. Pure but for
//! [`facts::Facts::gather`]; nothing here changes anything.

pub mod facts;

use stockade_core::demand::Demand;

use facts::{Engine, Facts};

/// The command that changes what root can change.
pub const DOCTOR: &str = "sudo stockade doctor --fix";

/// Demands that new namespaces and mounts hold.
pub const OF_NAMESPACES: [Demand; 5] = [Demand::Files, Demand::Network, Demand::Processes, Demand::Privileges, Demand::Secrets];

/// Something in the way of a jail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// `user.max_user_namespaces` is 0.
    UserNamespacesOff,
    /// All of `user.max_user_namespaces` are in use.
    UserNamespacesUsedUp,
    /// `kernel.unprivileged_userns_clone` is 0.
    OrdinaryUsersRefused,
    /// `kernel.apparmor_restrict_unprivileged_userns` is 1.
    AppArmor,
    /// A system call filter around us: a container's, or a service manager's.
    Filter(Option<Engine>),
    /// Parts of `/proc` are covered, so no fresh one can be mounted.
    ProcCovered(Option<Engine>),
    /// We are root, but may not mount: root of a container, or of a user namespace.
    RootWithoutMounts(Option<Engine>),
    /// No Landlock.
    NoLandlock,
    /// Memory files may not be executed.
    MemoryFiles,
    /// The kernel is older than what a jail is made of.
    OldKernel,
    /// Namespaces are refused and nothing says why.
    Unknown,
}

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failed {
    /// Making namespaces.
    Clone,
    /// A step inside them that needs rights there.
    Inside,
    /// Mounting `/proc`.
    Proc,
}

impl Obstacle {
    /// What stands behind a failed call. `None`: the failure has nothing to do with surroundings.
    pub fn behind(failed: Failed, errno: i32, facts: &Facts) -> Option<Self> {
        let refused = errno == libc::EPERM || errno == libc::EACCES;
        match failed {
            Failed::Clone if errno == libc::ENOSYS || errno == libc::EINVAL => Some(Self::OldKernel),
            Failed::Clone if errno == libc::ENOSPC || errno == libc::EUSERS => {
                Some(if facts.max_user_namespaces == Some(0) { Self::UserNamespacesOff } else { Self::UserNamespacesUsedUp })
            }
            Failed::Proc if refused && facts.proc_covered => Some(Self::ProcCovered(facts.engine)),
            Failed::Clone | Failed::Inside | Failed::Proc if refused => Some(Self::refusing(facts)),
            Failed::Clone | Failed::Inside | Failed::Proc => None,
        }
    }

    fn refusing(facts: &Facts) -> Self {
        match facts {
            Facts { max_user_namespaces: Some(0), .. } => Self::UserNamespacesOff,
            Facts { root: false, unprivileged_userns_clone: Some(0), .. } => Self::OrdinaryUsersRefused,
            Facts { root: false, apparmor_restriction: Some(1..), .. } => Self::AppArmor,
            Facts { filtered: true, engine, .. } | Facts { engine: engine @ Some(_), .. } => Self::Filter(*engine),
            Facts { .. } => Self::Unknown,
        }
    }

    /// What can be foreseen without trying: the switches that refuse a jail to this user.
    pub fn foreseen(facts: &Facts) -> Vec<Self> {
        let mut found = Vec::new();
        if facts.kernel < (5, 12) {
            found.push(Self::OldKernel);
        }
        if facts.max_user_namespaces == Some(0) {
            found.push(Self::UserNamespacesOff);
        }
        if !facts.root && facts.unprivileged_userns_clone == Some(0) {
            found.push(Self::OrdinaryUsersRefused);
        }
        if !facts.root && facts.apparmor_restriction.is_some_and(|value| value > 0) {
            found.push(Self::AppArmor);
        }
        if facts.memfd_noexec.is_some_and(|value| value > 1) {
            found.push(Self::MemoryFiles);
        }
        found
    }

    /// The demands that cannot be held.
    pub fn demands(self) -> &'static [Demand] {
        match self {
            Self::UserNamespacesOff
            | Self::UserNamespacesUsedUp
            | Self::OrdinaryUsersRefused
            | Self::AppArmor
            | Self::Filter(_)
            | Self::OldKernel
            | Self::Unknown => &OF_NAMESPACES,
            Self::ProcCovered(_) => &[Demand::Processes],
            Self::RootWithoutMounts(_) => &[Demand::Privileges],
            Self::NoLandlock => &[Demand::Files, Demand::Secrets],
            Self::MemoryFiles => &Demand::ALL,
        }
    }

    /// What is in the way.
    pub fn why(self) -> &'static str {
        match self {
            Self::UserNamespacesOff => "user namespaces are switched off (user.max_user_namespaces = 0)",
            Self::UserNamespacesUsedUp => "no more user namespaces may be made (user.max_user_namespaces is reached)",
            Self::OrdinaryUsersRefused => "user namespaces are switched off for ordinary users (kernel.unprivileged_userns_clone = 0)",
            Self::AppArmor => {
                "AppArmor gives user namespaces no rights (kernel.apparmor_restrict_unprivileged_userns = 1) and has no profile for stockade"
            }
            Self::Filter(Some(_)) => "the container's system call filter refuses namespaces and mounts",
            Self::Filter(None) => "a system call filter around this process refuses namespaces and mounts",
            Self::ProcCovered(Some(_)) => "the container covers parts of /proc, so the sandbox cannot have one of its own",
            Self::ProcCovered(None) => "parts of /proc are covered by other mounts, so the sandbox cannot have one of its own",
            Self::RootWithoutMounts(Some(_)) => "root of this container may not mount, so the sandbox would run as root's own user",
            Self::RootWithoutMounts(None) => "root may not mount here, so the sandbox would run as root's own user",
            Self::NoLandlock => "the kernel has no Landlock, or it is switched off or filtered away",
            Self::MemoryFiles => "memory files may not be executed (vm.memfd_noexec = 2), and the guest is one",
            Self::OldKernel => "the kernel is too old: a jail needs Linux 5.12, and Landlock 5.13",
            Self::Unknown => "the kernel refuses namespaces or mounts to this user",
        }
    }

    /// The one command, or where there is none the one thing to do.
    pub fn fix(self) -> &'static str {
        match self {
            Self::UserNamespacesOff | Self::UserNamespacesUsedUp | Self::OrdinaryUsersRefused | Self::AppArmor => DOCTOR,
            Self::MemoryFiles => "sudo sysctl -w vm.memfd_noexec=1",
            Self::Filter(Some(Engine::Docker)) => {
                "docker run --user 1000:1000 --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
                 --security-opt systempaths=unconfined …"
            }
            Self::Filter(Some(Engine::Podman)) => {
                "podman run --user 1000:1000 --security-opt seccomp=unconfined --security-opt unmask=ALL …"
            }
            Self::Filter(Some(Engine::Kubernetes)) => {
                "give the container securityContext {seccompProfile: {type: Unconfined}, procMount: Unmasked} and the pod hostUsers: false"
            }
            Self::Filter(None) => "start it outside the filter: in a systemd unit, RestrictNamespaces=no and no SystemCallFilter=",
            Self::ProcCovered(Some(Engine::Docker)) => "docker run --security-opt systempaths=unconfined …",
            Self::ProcCovered(Some(Engine::Podman)) => "podman run --security-opt unmask=ALL …",
            Self::ProcCovered(Some(Engine::Kubernetes)) => {
                "give the container securityContext {procMount: Unmasked} and the pod hostUsers: false"
            }
            Self::ProcCovered(None) => "unmount what lies over parts of /proc: `grep /proc/ /proc/self/mountinfo` names it",
            Self::RootWithoutMounts(Some(Engine::Docker | Engine::Kubernetes)) => "docker run --user 1000:1000 …",
            Self::RootWithoutMounts(Some(Engine::Podman)) => "podman run --user 1000:1000 …",
            Self::RootWithoutMounts(None) => "run stockade as an ordinary user",
            Self::NoLandlock => "add `landlock` to the lsm= list of the kernel's command line (Linux 5.13 or newer) and restart",
            Self::OldKernel => "use Linux 5.13 or newer",
            Self::Unknown => "stockade doctor",
        }
    }
}

/// Demands as people list them: `files, network and secrets`.
pub fn named(demands: &[Demand]) -> String {
    match demands {
        [] => String::new(),
        [one] => one.to_string(),
        [first @ .., last] => format!("{} and {last}", first.iter().map(|d| d.name()).collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts { kernel: (6, 8), max_user_namespaces: Some(15000), ..Facts::default() }
    }

    #[test]
    fn the_switch_that_is_off_is_the_one_that_is_named() {
        let check = |failed, errno, facts: &Facts, expected| {
            assert_eq!(Obstacle::behind(failed, errno, facts), expected, "{failed:?} {errno} {facts:?}");
        };
        check(Failed::Clone, libc::ENOSPC, &Facts { max_user_namespaces: Some(0), ..facts() }, Some(Obstacle::UserNamespacesOff));
        check(Failed::Clone, libc::ENOSPC, &facts(), Some(Obstacle::UserNamespacesUsedUp));
        check(Failed::Clone, libc::EPERM, &Facts { unprivileged_userns_clone: Some(0), ..facts() }, Some(Obstacle::OrdinaryUsersRefused));
        check(Failed::Clone, libc::EPERM, &facts(), Some(Obstacle::Unknown));
        check(Failed::Clone, libc::ENOSYS, &facts(), Some(Obstacle::OldKernel));
        check(Failed::Clone, libc::EAGAIN, &facts(), None);
        for errno in [libc::EPERM, libc::EACCES] {
            check(Failed::Inside, errno, &Facts { apparmor_restriction: Some(1), ..facts() }, Some(Obstacle::AppArmor));
        }
        let docker = Facts { filtered: true, engine: Some(Engine::Docker), ..facts() };
        check(Failed::Clone, libc::EPERM, &docker, Some(Obstacle::Filter(Some(Engine::Docker))));
        let masked = Facts { proc_covered: true, engine: Some(Engine::Podman), ..facts() };
        check(Failed::Proc, libc::EPERM, &masked, Some(Obstacle::ProcCovered(Some(Engine::Podman))));
        // Root is not held up by what holds up ordinary users.
        let root = Facts { root: true, apparmor_restriction: Some(1), unprivileged_userns_clone: Some(0), ..facts() };
        check(Failed::Clone, libc::EPERM, &root, Some(Obstacle::Unknown));
        assert_eq!(Obstacle::foreseen(&root), []);
    }

    #[test]
    fn what_can_be_foreseen() {
        assert_eq!(Obstacle::foreseen(&facts()), []);
        let ubuntu = Facts { apparmor_restriction: Some(1), unprivileged_userns_clone: Some(1), ..facts() };
        assert_eq!(Obstacle::foreseen(&ubuntu), [Obstacle::AppArmor]);
        let off = Facts { max_user_namespaces: Some(0), memfd_noexec: Some(2), ..facts() };
        assert_eq!(Obstacle::foreseen(&off), [Obstacle::UserNamespacesOff, Obstacle::MemoryFiles]);
    }

    #[test]
    fn lists_of_demands() {
        assert_eq!(named(&[Demand::Files]), "files");
        assert_eq!(named(&[Demand::Files, Demand::Secrets]), "files and secrets");
        assert_eq!(named(&OF_NAMESPACES), "files, network, processes, privileges and secrets");
    }
}
