//! The launcher: a process that makes jails for one that may not, and knows nothing but how.
//!
//! ```text
//!  gateway (confined, mounts nothing)                 launcher (pool of templates)
//!    makes a pair of sockets ─ one of them ─────────▶ a thread of its own
//!    Want ──────────────────────────────────────────▶ a fresh jail of that specification
//!      ◀─ Given, with stream, process, lock, exports ─
//!    Look ──────────────────────────────────────────▶ limits, as the kernel counts
//!      ◀───────────────────────── which one was hit ─
//!    end of it ─────────────────────────────────────▶ killed, groups removed, closed
//! ```
//!
//! The launcher never reads what a guest says once its jail stands: the stream is handed over, and hostile bytes arrive where they can do least.
//! It takes a `SandboxSpec` and nothing of policy or secrets, and refuses places outside the roots that were fixed when it started.
//! [`serve`] is its side, [`remote`] the gateway's.

pub mod remote;
pub mod serve;

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use stockade_core::demand::{Demand, Enforcement};
use stockade_core::id::SandboxId;
use stockade_core::spec::SandboxSpec;

/// A jail that is wanted.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Want {
    /// What it is.
    pub spec: SandboxSpec,
    /// The person's home directory outside.
    pub home: PathBuf,
    /// Values of variables that name toolchain roots.
    pub toolchain_roots: Vec<OsString>,
}

impl Want {
    /// All of it in few bytes: two that differ in anything have different ones.
    pub fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        // It is made to be sent as JSON.
        digest.update(serde_json::to_vec(self).unwrap_or_default());
        digest.finalize().into()
    }
}

/// What the launcher answers. With a jail come its stream, its process, the lock of its directory and what it exports, in this order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum Word {
    Given(Box<Given>),
    Refused { step: String, message: String, hint: Option<String> },
}

/// A jail as it stands.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    id: SandboxId,
    pid: i32,
    enforcement: Enforcement,
    steps: Vec<(String, u32)>,
    notes: Vec<String>,
    environment: Vec<(String, OsString)>,
    exports: Vec<String>,
}

/// What is asked of a jail that was given: whether a limit was hit.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Look {}

/// The limit that was hit, if any.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Looked {
    hit: Option<Demand>,
}

/// Why there is no jail.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The launcher cannot be spoken to.
    #[error("speaking to the launcher: {0}")]
    Speak(#[source] std::io::Error),
    /// It is gone.
    #[error("the launcher is gone")]
    Gone,
    /// It said something that makes no sense.
    #[error("the launcher answered out of turn")]
    OutOfTurn,
    /// It said no.
    #[error("{message}")]
    Refused {
        /// The step that failed.
        step: String,
        /// What happened.
        message: String,
        /// What a person can do about it.
        hint: Option<String>,
    },
    /// What it made is not good enough.
    #[error(transparent)]
    Backend(#[from] crate::backends::BackendError),
    /// The state directory.
    #[error(transparent)]
    State(#[from] crate::state::StateError),
}
