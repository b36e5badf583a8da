//! What the command line says for one run.

use std::time::Duration;

use stockade_core::spec::MountMode;

use super::layers::Cell;
use super::source::Source;
use super::typed::Backend;
use super::value::Value;
use stockade_core::host::HostPattern;

/// Bytes in a MiB, the unit of sizes in settings.
pub(crate) const MEBIBYTE: f64 = 1_048_576.0;

/// Flags that stand for settings. `None` (or no hosts): not given. They were parsed, and so are in range.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Flags {
    /// `--backend`
    pub backend: Option<Backend>,
    /// `--image`
    pub image: Option<String>,
    /// `--workspace-mode`
    pub workspace_mode: Option<MountMode>,
    /// `--allow-host`; the list takes the place of the settings' list.
    pub allowed_hosts: Vec<HostPattern>,
    /// `--timeout`
    pub timeout: Option<Duration>,
    /// `--cpus`, in thousandths.
    pub cpu_millis: Option<u32>,
    /// `--memory`, in bytes.
    pub memory: Option<u64>,
    /// `--pids`
    pub pids: Option<u32>,
    /// `--disk`, in bytes.
    pub disk: Option<u64>,
    /// `--output-limit`, in bytes.
    pub output: Option<u64>,
}

/// A flag that the machine's settings overrule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overruled {
    /// Such as `--memory`.
    pub flag: &'static str,
    /// The setting it stands for.
    pub key: &'static str,
    /// What holds instead.
    pub value: String,
    /// Who said so.
    pub source: Source,
}

impl Flags {
    /// Flag, setting and value, for those that were given.
    pub(crate) fn given(&self) -> Vec<(&'static str, &'static str, Value)> {
        let size = |bytes: u64| Value::Number(bytes as f64 / MEBIBYTE);
        let text = |text: &str| Value::Text(text.to_owned().into());
        let hosts = (!self.allowed_hosts.is_empty()).then(|| Value::List(self.allowed_hosts.clone()));
        [
            ("--backend", "sandbox.backend", self.backend.map(|backend| Value::word(backend.name()))),
            ("--image", "sandbox.image", self.image.as_deref().map(text)),
            ("--workspace-mode", "sandbox.workspaceMode", self.workspace_mode.map(|mode| text(&mode.to_string()))),
            ("--allow-host", "sandbox.allowedHosts", hosts),
            ("--timeout", "sandbox.timeoutSeconds", self.timeout.map(|time| Value::Number(time.as_secs_f64()))),
            ("--cpus", "sandbox.limits.cpus", self.cpu_millis.map(|millis| Value::Number(f64::from(millis) / 1000.0))),
            ("--memory", "sandbox.limits.memory", self.memory.map(size)),
            ("--pids", "sandbox.limits.pids", self.pids.map(|pids| Value::Number(f64::from(pids)))),
            ("--disk", "sandbox.limits.disk", self.disk.map(size)),
            ("--output-limit", "sandbox.limits.outputBytes", self.output.map(|bytes| Value::Number(bytes as f64))),
        ]
        .into_iter()
        .filter_map(|(flag, key, value)| value.map(|value| (flag, key, value)))
        .collect()
    }

    /// Lays the flags over what holds, but for what the machine fixed; says what was overruled.
    pub(crate) fn lay(&self, cells: &mut [Cell]) -> Vec<Overruled> {
        let mut overruled = Vec::new();
        for (flag, key, value) in self.given() {
            let Some(cell) = cells.iter_mut().find(|cell| cell.name == key) else { continue };
            if cell.source.word() == "machine" {
                if cell.value != value {
                    overruled.push(Overruled { flag, key, value: cell.value.to_string(), source: cell.source.clone() });
                }
                continue;
            }
            *cell = Cell { name: cell.name, value, source: Source::Flag(flag), bounded_by_default: false };
        }
        overruled
    }
}
