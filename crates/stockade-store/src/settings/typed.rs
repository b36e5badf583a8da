//! The settings as the rest of Stockade uses them: enums, durations and bytes instead of text.
//!
//! The table fixes the type of every key and the tests here hold the getters to it, so an arm for another type is
//! never taken; each such arm answers with the tightest value all the same.

use std::time::Duration;

use stockade_core::limits::{Limit, Limits, Origin};
use stockade_core::spec::{BackendKind, MountMode};

use super::Settings;
use super::flags::MEBIBYTE;
use super::layers::Cell;
use super::prices::Price;
use super::secrets::SecretSetting;
use super::source::{Source, Sourced};
use super::value::Value;
use stockade_core::host::HostPattern;
use stockade_core::reach::HostUse;

/// The wall-time limit of an agent's command when nobody says.
const AGENT_TIMEOUT: Duration = Duration::from_mins(10);

/// Which wall is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// The best there is; never `local`.
    Auto,
    /// This one.
    Wall(BackendKind),
}

impl Backend {
    /// The name in settings and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Wall(kind) => kind.name(),
        }
    }
}

/// A word that names no wall.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown backend `{0}`; known: auto jail docker gvisor microvm shuru e2b kubernetes local")]
pub struct UnknownBackend(String);

impl std::str::FromStr for Backend {
    type Err = UnknownBackend;
    fn from_str(text: &str) -> Result<Self, UnknownBackend> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let wall = BackendKind::ALL.into_iter().find(|kind| kind.name() == text);
        wall.map(Self::Wall).ok_or_else(|| UnknownBackend(super::value::shorten(text)))
    }
}

/// Whose command: the default timeout differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A person with `run`.
    Run,
    /// An agent.
    Agent,
}

/// When receipts are safe on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Before a call that writes or destroys.
    Effect,
    /// Before every call.
    Always,
    /// When the system gets to it.
    Process,
}

/// `receipts.witness`
#[derive(Debug, Clone, PartialEq)]
pub struct Witness {
    /// The directory of a witness that is one.
    pub directory: Sourced<Option<String>>,
    /// The program of a witness that is one.
    pub command: Sourced<Option<String>>,
    /// What that program's signatures are called.
    pub name: Sourced<Option<String>>,
    /// The file with its public key.
    pub key: Sourced<Option<String>>,
}

/// Somebody outside who is told something: `approvals.webhook`, `telemetry.otlp`
#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    /// Where.
    pub url: Sourced<Option<String>>,
    /// The name of the secret that goes with it.
    pub secret: Sourced<Option<String>>,
}

/// How a microVM is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// KVM where it works.
    Auto,
    /// KVM or nothing.
    Kvm,
    /// Emulation.
    Tcg,
}

/// `sandbox.shuru`
#[derive(Debug, Clone, PartialEq)]
pub struct Shuru {
    /// The starting point.
    pub checkpoint: Sourced<String>,
    /// Processors.
    pub cpus: Sourced<u32>,
    /// MiB of memory.
    pub memory_mib: Sourced<u64>,
    /// MiB of disk.
    pub disk_mib: Sourced<u64>,
    /// Whether the guest has shuru's own network.
    pub allow_net: Sourced<bool>,
    /// Hosts of that network.
    pub allowed_hosts: Sourced<Vec<HostPattern>>,
}

/// `sandbox.microvm`
#[derive(Debug, Clone, PartialEq)]
pub struct Microvm {
    /// The starting point.
    pub checkpoint: Sourced<String>,
    /// Processors.
    pub cpus: Sourced<u32>,
    /// MiB of memory.
    pub memory_mib: Sourced<u64>,
    /// MiB of disk.
    pub disk_mib: Sourced<u64>,
    /// How it is run.
    pub accel: Sourced<Accel>,
}

/// `sandbox.docker`
#[derive(Debug, Clone, PartialEq)]
pub struct Docker {
    /// The engine; `None`: from `DOCKER_HOST`.
    pub host: Sourced<Option<String>>,
    /// The runtime; `None`: the engine's own.
    pub runtime: Sourced<Option<String>>,
}

/// `sandbox.e2b`
#[derive(Debug, Clone, PartialEq)]
pub struct E2b {
    /// The template.
    pub template: Sourced<Option<String>>,
    /// The domain.
    pub domain: Sourced<Option<String>>,
}

/// `sandbox.kubernetes`
#[derive(Debug, Clone, PartialEq)]
pub struct Kubernetes {
    /// The context.
    pub context: Sourced<Option<String>>,
    /// The namespace.
    pub namespace: Sourced<Option<String>>,
    /// The runtime class.
    pub runtime_class: Sourced<Option<String>>,
}

impl Settings {
    /// Whether anything may run at all.
    pub fn enabled(&self) -> Sourced<bool> {
        self.switch("sandbox.enabled")
    }

    /// The wall.
    pub fn backend(&self) -> Sourced<Backend> {
        self.text("sandbox.backend").map(|name| name.parse().unwrap_or(Backend::Auto))
    }

    /// Whether agents keep one sandbox per workspace.
    pub fn persistent(&self) -> Sourced<bool> {
        self.switch("sandbox.persistent")
    }

    /// The container image.
    pub fn image(&self) -> Sourced<String> {
        self.text("sandbox.image")
    }

    /// What may be done to the workspace.
    pub fn workspace_mode(&self) -> Sourced<MountMode> {
        self.text("sandbox.workspaceMode").map(|name| name.parse().unwrap_or(MountMode::Ro))
    }

    /// Hosts that may be reached; none by default.
    pub fn allowed_hosts(&self) -> Sourced<Vec<HostPattern>> {
        self.hosts("sandbox.allowedHosts")
    }

    /// What may be done at allowed hosts: sets of rules, each of which counts.
    pub fn network_rules(&self) -> Sourced<Vec<Vec<HostUse>>> {
        self.sourced("sandbox.network.rules").map(|value| match value {
            Value::Rules(sets) => sets,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) | Value::Secrets(_) | Value::Prices(_) => {
                Vec::new()
            }
        })
    }

    /// Bytes that a sandbox may send in all.
    pub fn sent_bytes(&self) -> Option<u64> {
        number(&self.cell("sandbox.network.sentBytes").value).map(|bytes| bytes as u64)
    }

    /// The wall-time limit of one command.
    pub fn timeout(&self, caller: Caller) -> Sourced<Option<Duration>> {
        let (default, cell) = match caller {
            Caller::Run => (None, self.cell("sandbox.timeoutSeconds")),
            Caller::Agent => (Some(AGENT_TIMEOUT), self.cell("sandbox.timeoutSeconds")),
        };
        let said = number(&cell.value).map(Duration::from_secs_f64);
        let value = match (said, default) {
            (Some(said), Some(default)) if cell.bounded_by_default => Some(said.min(default)),
            (None, default) if cell.source == Source::Default => default,
            (said, _) => said,
        };
        Sourced { value, source: cell.source }
    }

    /// The resource limits. `total_memory` is the machine's, in bytes: the default is three quarters of it.
    pub fn limits(&self, caller: Caller, total_memory: u64) -> Limits {
        let timeout = self.timeout(caller);
        let cpus = self.cell("sandbox.limits.cpus");
        Limits {
            // Settings are at least a thousandth and at most 8192, so this neither is zero nor overflows.
            cpu_millis: number(&cpus.value).map(|cpus_| limit((cpus_ * 1000.0).round() as u32, &cpus.source)),
            memory: Some(self.memory_limit(total_memory)),
            pids: self.limit("sandbox.limits.pids", |pids| pids as u32),
            disk: self.limit("sandbox.limits.disk", |mebibytes| (mebibytes * MEBIBYTE) as u64),
            output: self.limit("sandbox.limits.outputBytes", |bytes| bytes as u64),
            time: timeout.value.map(|time| limit(time, &timeout.source)),
            open_files: None,
        }
    }

    fn memory_limit(&self, total_memory: u64) -> Limit<u64> {
        let default = total_memory / 4 * 3;
        let cell = self.cell("sandbox.limits.memory");
        match number(&cell.value).map(|mebibytes| (mebibytes * MEBIBYTE) as u64) {
            // What a project asks for never exceeds what would hold without it.
            Some(bytes) if cell.bounded_by_default => limit(bytes.min(default), &cell.source),
            Some(bytes) => limit(bytes, &cell.source),
            None => Limit::default_of(default),
        }
    }

    /// `sandbox.shuru`
    pub fn shuru(&self) -> Shuru {
        Shuru {
            checkpoint: self.text("sandbox.shuru.checkpoint"),
            cpus: self.count("sandbox.shuru.cpus").map(|cpus| cpus as u32),
            memory_mib: self.count("sandbox.shuru.memory"),
            disk_mib: self.count("sandbox.shuru.diskSize"),
            allow_net: self.switch("sandbox.shuru.allowNet"),
            allowed_hosts: self.hosts("sandbox.shuru.allowedHosts"),
        }
    }

    /// `sandbox.microvm`
    pub fn microvm(&self) -> Microvm {
        Microvm {
            checkpoint: self.text("sandbox.microvm.checkpoint"),
            cpus: self.count("sandbox.microvm.cpus").map(|cpus| cpus as u32),
            memory_mib: self.count("sandbox.microvm.memory"),
            disk_mib: self.count("sandbox.microvm.diskSize"),
            accel: self.text("sandbox.microvm.accel").map(|name| match name.as_str() {
                "kvm" => Accel::Kvm,
                "tcg" => Accel::Tcg,
                _ => Accel::Auto,
            }),
        }
    }

    /// `sandbox.docker`
    pub fn docker(&self) -> Docker {
        Docker { host: self.optional("sandbox.docker.host"), runtime: self.optional("sandbox.docker.runtime") }
    }

    /// `sandbox.e2b`
    pub fn e2b(&self) -> E2b {
        E2b { template: self.optional("sandbox.e2b.template"), domain: self.optional("sandbox.e2b.domain") }
    }

    /// `sandbox.kubernetes`
    pub fn kubernetes(&self) -> Kubernetes {
        Kubernetes {
            context: self.optional("sandbox.kubernetes.context"),
            namespace: self.optional("sandbox.kubernetes.namespace"),
            runtime_class: self.optional("sandbox.kubernetes.runtimeClass"),
        }
    }

    /// Where secrets come from, by name.
    pub fn secrets(&self) -> Sourced<Vec<SecretSetting>> {
        self.sourced("secrets").map(|value| match value {
            Value::Secrets(secrets) => secrets,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) | Value::Prices(_) | Value::Rules(_) => {
                Vec::new()
            }
        })
    }

    /// What models cost; empty where nobody said.
    pub fn prices(&self) -> Sourced<Vec<Price>> {
        self.sourced("agent.prices").map(|value| match value {
            Value::Prices(prices) => prices,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) | Value::Secrets(_) | Value::Rules(_) => {
                Vec::new()
            }
        })
    }

    /// Whether commands start the daemon.
    pub fn autostart(&self) -> Sourced<bool> {
        self.switch("daemon.autostart")
    }

    /// The program, and its arguments, that tells a person that something waits for them.
    pub fn notify(&self) -> Sourced<Option<String>> {
        self.optional("approvals.notify.command")
    }

    /// Who outside is told what waits for a person, and what became of it.
    pub fn webhook(&self) -> Endpoint {
        Endpoint { url: self.optional("approvals.webhook.url"), secret: self.optional("approvals.webhook.secret") }
    }

    /// Who outside gets the spans of calls.
    pub fn otlp(&self) -> Endpoint {
        Endpoint { url: self.optional("telemetry.otlp.url"), secret: self.optional("telemetry.otlp.secret") }
    }

    /// When receipts are safe on disk.
    pub fn durability(&self) -> Sourced<Durability> {
        self.text("receipts.durability").map(|name| match name.as_str() {
            "effect" => Durability::Effect,
            "process" => Durability::Process,
            _ => Durability::Always,
        })
    }

    /// Who signs checkpoints of receipts too.
    pub fn witness(&self) -> Witness {
        Witness {
            directory: self.optional("receipts.witness.directory"),
            command: self.optional("receipts.witness.command"),
            name: self.optional("receipts.witness.name"),
            key: self.optional("receipts.witness.publicKey"),
        }
    }

    fn limit<T>(&self, name: &str, convert: impl Fn(f64) -> T) -> Option<Limit<T>> {
        let cell = self.cell(name);
        number(&cell.value).map(|value| limit(convert(value), &cell.source))
    }

    fn switch(&self, name: &str) -> Sourced<bool> {
        self.sourced(name).map(|value| value == Value::Bool(true))
    }

    fn text(&self, name: &str) -> Sourced<String> {
        self.optional(name).map(Option::unwrap_or_default)
    }

    fn optional(&self, name: &str) -> Sourced<Option<String>> {
        self.sourced(name).map(|value| match value {
            Value::Text(text) => Some(text.into_owned()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Secrets(_) | Value::Prices(_) | Value::Rules(_) => {
                None
            }
        })
    }

    fn hosts(&self, name: &str) -> Sourced<Vec<HostPattern>> {
        self.sourced(name).map(|value| match value {
            Value::List(hosts) => hosts,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::Secrets(_) | Value::Prices(_) | Value::Rules(_) => {
                Vec::new()
            }
        })
    }

    fn count(&self, name: &str) -> Sourced<u64> {
        self.sourced(name).map(|value| number(&value).unwrap_or_default() as u64)
    }

    fn sourced(&self, name: &str) -> Sourced<Value> {
        let cell = self.cell(name);
        Sourced { value: cell.value, source: cell.source }
    }

    fn cell(&self, name: &str) -> Cell {
        let missing = || Cell { name: "", value: Value::Null, source: Source::Default, bounded_by_default: false };
        self.cells.iter().find(|cell| cell.name == name).cloned().unwrap_or_else(missing)
    }
}

fn limit<T>(value: T, source: &Source) -> Limit<T> {
    match source.origin() {
        Origin::Asked => Limit::asked(value),
        Origin::Default => Limit::default_of(value),
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => Some(*number),
        Value::Null | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Secrets(_) | Value::Prices(_) | Value::Rules(_) => None,
    }
}
