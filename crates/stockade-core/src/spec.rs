//! The sandbox specification: what a sandbox is, whatever wall holds it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::demand::Demand;
use crate::limits::Limits;
use crate::path::SafePath;

/// Which wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// Linux namespaces, Landlock, seccomp, cgroups.
    Jail,
    /// A container.
    Docker,
    /// A container with a second kernel.
    Gvisor,
    /// A virtual machine.
    Microvm,
    /// Apple's virtualization through the shuru CLI.
    Shuru,
    /// A cloud sandbox.
    E2b,
    /// A pod.
    Kubernetes,
    /// No wall at all.
    Local,
}

impl BackendKind {
    /// Every wall the contract names.
    pub const ALL: [Self; 8] =
        [Self::Jail, Self::Docker, Self::Gvisor, Self::Microvm, Self::Shuru, Self::E2b, Self::Kubernetes, Self::Local];

    /// The name in settings and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jail => "jail",
            Self::Docker => "docker",
            Self::Gvisor => "gvisor",
            Self::Microvm => "microvm",
            Self::Shuru => "shuru",
            Self::E2b => "e2b",
            Self::Kubernetes => "kubernetes",
            Self::Local => "local",
        }
    }
}

impl std::fmt::Display for BackendKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What a sandbox may do to a directory of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MountMode {
    /// Read only.
    Ro,
    /// Writes are kept apart from the host's files.
    Overlay,
    /// Writes reach the host's files.
    Rw,
}

impl std::fmt::Display for MountMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ro => "ro",
            Self::Overlay => "overlay",
            Self::Rw => "rw",
        })
    }
}

impl std::str::FromStr for MountMode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ro" => Ok(Self::Ro),
            "overlay" => Ok(Self::Overlay),
            "rw" => Ok(Self::Rw),
            other => Err(format!("`{}` is not a mode: use overlay, rw or ro", crate::escape::escape(other))),
        }
    }
}

/// A directory or file of the host that appears inside.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Where it is on the host.
    pub host: SafePath,
    /// Where it appears.
    pub guest: SafePath,
    /// What may be done to it.
    pub mode: MountMode,
}

/// The directory that the work is about; it has the same absolute path inside.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workspace {
    /// Its real path.
    pub path: SafePath,
    /// What may be done to it.
    pub mode: MountMode,
    /// The common git directory of a linked worktree, when it lies outside the workspace.
    pub git_common: Option<SafePath>,
}

/// Everything a sandbox is. Two sandboxes with equal specifications are interchangeable.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxSpec {
    /// The workspace.
    pub workspace: Workspace,
    /// Further mounts, in no particular order.
    pub mounts: Vec<Mount>,
    /// Whole environment of programs, sorted by name.
    pub env: Vec<(String, std::ffi::OsString)>,
    /// Working directory of programs.
    pub cwd: SafePath,
    /// Home directory inside.
    pub home: SafePath,
    /// The only programs that may run, as given (names or paths); `None`: any.
    pub exec_list: Option<Vec<String>>,
    /// Resource limits.
    pub limits: Limits,
    /// Demands that may be held badly because a person said so.
    pub allow_degraded: BTreeSet<Demand>,
    /// Directories on the caller's `PATH`, in order, as they are outside.
    pub path_dirs: Vec<PathBuf>,
}
