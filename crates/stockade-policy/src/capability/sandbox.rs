//! What a capability says about its sandbox: what it may reach, use and run besides its program.

use stockade_core::credential::Delivery;
use stockade_core::host::HostPattern;
use stockade_core::path::SafePath;
use stockade_core::reach::SecretUse;
use stockade_core::secret::SecretName;
use stockade_core::spec::MountMode;

/// The `sandbox` section.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapabilitySandbox {
    /// Files of the host besides the workspace.
    pub mounts: Vec<CapabilityMount>,
    /// Hosts it may reach.
    pub hosts: Hosts,
    /// What it may use.
    pub limits: CapabilityLimits,
    /// What it may run.
    pub exec: ExecList,
}

/// What may be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    /// These, and no other, whatever the settings allow.
    Only(Vec<HostPattern>),
    /// Those that the person's own settings allow, and no other: `hosts = "allowed"`. For programs whose hosts only the person knows.
    Allowed,
}

impl Default for Hosts {
    /// None.
    fn default() -> Self {
        Self::Only(Vec::new())
    }
}

impl Hosts {
    /// Those that the capability names itself.
    pub fn named(&self) -> &[HostPattern] {
        match self {
            Self::Only(hosts) => hosts,
            Self::Allowed => &[],
        }
    }
}

/// One more file or directory of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapabilityMount {
    /// Where it is: absolute, or `~/…` beneath the person's home.
    pub host: String,
    /// Where it appears; the same place where none is said.
    pub guest: Option<SafePath>,
    /// What may be done to it.
    pub mode: MountMode,
}

/// Limits; `None` leaves what settings say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CapabilityLimits {
    /// Processors in thousandths.
    pub cpu_millis: Option<u32>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// Bytes written to disk.
    pub disk: Option<u64>,
    /// Bytes of captured output.
    pub output: Option<u64>,
}

/// What may be executed inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecList {
    /// Its program and these; nothing else exists as a program inside.
    Only(Vec<String>),
    /// Whatever is there: `exec = "any"`.
    Any,
}

impl Default for ExecList {
    fn default() -> Self {
        Self::Only(Vec::new())
    }
}

/// A secret that the capability needs. It never goes in: inside there is a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Which.
    pub secret: SecretName,
    /// The hosts it may go to.
    pub hosts: Vec<HostPattern>,
    /// How it appears inside; never empty.
    pub deliveries: Vec<Delivery>,
}

impl From<&Credential> for SecretUse {
    fn from(credential: &Credential) -> Self {
        let Credential { secret, hosts, deliveries } = credential;
        Self { name: secret.clone(), hosts: hosts.clone(), deliveries: deliveries.clone() }
    }
}
