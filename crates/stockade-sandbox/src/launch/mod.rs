//! The launcher: a process that makes jails for one that may not, and knows nothing but how.
//!
//! ```text
//!  gateway (confined, mounts nothing)                 launcher (pool of templates)
//!    makes a pair of sockets ─ one of them ─────────▶ a thread of its own
//!    Ready ─────────────────────────────────────────▶ a fresh jail of that specification, from a template
//!    or Again, before it is certain that one is wanted ▶ the same by its digest, where such a template stands
//!    or Start, with the way out's descriptors ──────▶ a jail from nothing, in a directory that the gateway owns
//!      ◀─ Given, with stream, process, exports ───────  (and the directory's lock, where the launcher made it)
//!    Look, unless the kernel's counts say enough ───▶ limits, and what nobody counts
//!      ◀───────────────────────── which one was hit ─
//!    end of it ─────────────────────────────────────▶ killed, groups removed, closed
//! ```
//!
//! The launcher never reads what a guest says once its jail stands: the stream is handed over, and hostile bytes arrive where they can do least.
//! It takes a `SandboxSpec` and nothing of policy or secrets. Which places it shows and which walls it raises was fixed when it started ([`bounds`]);
//! where a sandbox's own files are it works out from the id. [`serve`] is its side, [`remote`] the gateway's.

pub mod bounds;
pub mod remote;
pub mod serve;

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use stockade_core::demand::{Demand, Enforcement};
use stockade_core::id::SandboxId;
use stockade_core::spec::{BackendKind, SandboxSpec};

use crate::wayout::Use;

/// How a session begins: what is wanted, as a value or as what it is sent from.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum Wish<W, O> {
    /// A jail that stands ready, or will from now on.
    Ready(W),
    /// One like another that was wanted before, by the digest of what was wanted.
    Again([u8; 32]),
    /// One from nothing.
    Start(O),
    /// A connection to the supervisor of a sandbox that stays, which speaks with nobody of another user namespace.
    Reach(SandboxId),
}

/// A jail from nothing. The descriptors of its way out come along: the guest's end of the channel, and that of the alarm where there is one. Protected
/// paths do not: the launcher looks for itself what is mounted read-only.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    wall: BackendKind,
    /// Its directory is the gateway's own, and lies where those of this id lie.
    id: SandboxId,
    spec: SandboxSpec,
    home: OsString,
    toolchain_roots: Vec<OsString>,
    way_out: Option<Way>,
}

/// A way out, less its descriptors.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Way {
    proxy_port: u16,
    ports: Vec<u16>,
    authorities: Option<OsString>,
    java_authorities: Option<OsString>,
    /// File, place and use.
    shown: Vec<(OsString, OsString, Use)>,
    /// The place of the agent's socket.
    agent: Option<OsString>,
}

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

/// What the launcher answers. With a jail come its stream, its process, the lock of a directory that the launcher made, what it exports, and files that
/// count limits, in this order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum Word {
    Given(Box<Given>),
    /// Nothing of that digest stands ready.
    NoneStands,
    /// A connection comes along.
    Reached,
    Refused {
        step: String,
        message: String,
        hint: Option<String>,
    },
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
    /// How many files come along that count limits that were met.
    counters: usize,
    hold: Hold,
}

/// What ends everything inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Hold {
    /// The end of the guest's process: its namespace goes with it.
    Process,
    /// The wall: without namespaces only who started the guest knows how.
    Wall,
}

/// What is asked about a jail that was given. The answer is always whether a limit was hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Ask {
    /// No more than that.
    Look,
    /// That everything inside is killed first, because of a limit or a signal.
    Kill,
    /// That nothing inside acts any more.
    Silence,
}

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
