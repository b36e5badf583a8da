//! Facts about this machine that decide whether namespaces, mounts and filters can be had. Reads only, and keeps no secrets.
//!
//! Everything is read from files that the kernel or a container engine puts there; what cannot be read is not known, and what is not
//! known is never taken for good or bad.

use std::path::Path;

/// Which engine made the container around us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Docker, or one that behaves like it.
    Docker,
    /// Podman.
    Podman,
    /// A pod of Kubernetes.
    Kubernetes,
}

/// What was found. `None`: this kernel has no such switch, or it cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// We are root, as far as this user namespace goes.
    pub root: bool,
    /// `kernel.osrelease` as two numbers.
    pub kernel: (u32, u32),
    /// `user.max_user_namespaces`.
    pub max_user_namespaces: Option<u64>,
    /// `kernel.unprivileged_userns_clone`, of Debian's and some other kernels.
    pub unprivileged_userns_clone: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns`, of Ubuntu's.
    pub apparmor_restriction: Option<u64>,
    /// `vm.memfd_noexec`.
    pub memfd_noexec: Option<u64>,
    /// A system call filter is already on this process.
    pub filtered: bool,
    /// Something is mounted over a part of `/proc`, so that an ordinary user may not mount a fresh one.
    pub proc_covered: bool,
    /// The container around us.
    pub engine: Option<Engine>,
    /// Windows' Linux, whose kernel is Microsoft's build.
    pub wsl: bool,
}

impl Facts {
    /// Looks.
    pub fn gather() -> Self {
        let release = text("/proc/sys/kernel/osrelease");
        let status = text("/proc/self/status");
        Self {
            root: rustix::process::geteuid().is_root(),
            kernel: version(&release),
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
            unprivileged_userns_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_restriction: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            memfd_noexec: number("/proc/sys/vm/memfd_noexec"),
            filtered: status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2")),
            proc_covered: covered(&text("/proc/self/mountinfo")),
            engine: engine(&text("/proc/self/cgroup"), |path| Path::new(path).exists()),
            wsl: release.to_ascii_lowercase().contains("microsoft"),
        }
    }
}

/// A file's text, escaped bytes and all; nothing where it cannot be read.
fn text(path: &str) -> String {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn number(path: &str) -> Option<u64> {
    text(path).trim().parse().ok()
}

/// The first two numbers of a kernel's release.
pub fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.trim().split(['.', '-']).map_while(|part| part.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Whether a mount lies beneath `/proc` that hides what is there. Empty directories the kernel made for mounts do not count.
fn covered(mountinfo: &str) -> bool {
    let place = |line: &str| line.split(' ').nth(4).map(str::to_owned);
    mountinfo.lines().filter_map(place).any(|at| at.starts_with("/proc/") && at != "/proc/sys/fs/binfmt_misc")
}

fn engine(cgroup: &str, exists: impl Fn(&str) -> bool) -> Option<Engine> {
    if exists("/var/run/secrets/kubernetes.io") || cgroup.contains("kubepods") {
        return Some(Engine::Kubernetes);
    }
    if exists("/run/.containerenv") || cgroup.contains("libpod") {
        return Some(Engine::Podman);
    }
    (exists("/.dockerenv") || cgroup.contains("/docker")).then_some(Engine::Docker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases() {
        for (release, expected) in
            [("6.18.44-fc-v445\n", (6, 18)), ("5.15.153.1-microsoft-standard-WSL2", (5, 15)), ("", (0, 0)), ("7", (7, 0))]
        {
            assert_eq!(version(release), expected, "{release}");
        }
    }

    #[test]
    fn what_covers_proc() {
        let line = |at: &str| format!("36 35 0:33 / {at} ro - tmpfs tmpfs ro\n");
        assert!(!covered(&[line("/"), line("/proc"), line("/proc/sys/fs/binfmt_misc")].concat()));
        assert!(covered(&line("/proc/kcore")) && covered(&line("/proc/sys")));
    }

    #[test]
    fn engines() {
        let found = |cgroup: &str, file: &str| engine(cgroup, |path| path == file);
        assert_eq!(found("0::/user.slice", ""), None);
        assert_eq!(found("", "/.dockerenv"), Some(Engine::Docker));
        assert_eq!(found("9:pids:/docker/abc", ""), Some(Engine::Docker));
        assert_eq!(found("0::/", "/run/.containerenv"), Some(Engine::Podman));
        assert_eq!(found("0::/kubepods/pod1", "/.dockerenv"), Some(Engine::Kubernetes));
    }
}
