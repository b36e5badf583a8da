//! The seam to whoever opens a sandbox's way out. A sandbox knows that there is one, not what is behind it.
//!
//! A gate is opened once the sandbox has its id and directory and before anything of it runs, so that what programs inside need to know
//! of it (placeholders, the proxy's address, an authority to trust) is in their environment from the first one on.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use stockade_core::id::SandboxId;
use stockade_core::spec::SandboxSpec;

use crate::wayout::WayOut;

/// Opens ways out.
pub trait Gate {
    /// Opens the way out of this sandbox; it stays open until the gate is closed or gone. What it waits for it gives up when it is not wanted
    /// any more.
    fn open(&self, id: &SandboxId, directory: &Path, is_wanted: &dyn Fn() -> bool) -> Result<Opened, GateError>;
}

/// A way out that stands.
#[derive(Debug)]
pub struct Opened {
    /// The sandbox's end of it.
    pub way_out: WayOut,
    /// What programs inside have in their environment because of it.
    pub environment: Vec<(String, OsString)>,
    /// What goes before everything else in their `PATH`.
    pub path_prefix: Option<PathBuf>,
}

/// Why there is no way out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct GateError {
    /// The step that failed.
    pub step: String,
    /// What happened.
    pub message: String,
    /// What a person can do about it.
    pub hint: Option<String>,
}

impl Opened {
    /// The specification with what programs have to know.
    pub(crate) fn furnish(&self, spec: &SandboxSpec) -> SandboxSpec {
        let mut spec = spec.clone();
        spec.env.retain(|(known, _)| self.environment.iter().all(|(name, _)| name != known));
        spec.env.extend(self.environment.iter().cloned());
        if let Some(prefix) = &self.path_prefix {
            for (_, path) in spec.env.iter_mut().filter(|(name, _)| name == "PATH") {
                let mut whole = prefix.clone().into_os_string();
                if !path.is_empty() {
                    whole.push(":");
                    whole.push(&*path);
                }
                *path = whole;
            }
        }
        spec.env.sort();
        spec
    }
}
