//! The steward: starts this program's other roles for a gateway that may start nothing, and knows nothing else.
//!
//! ```text
//!  gateway (confined, executes nothing)               steward (the caller's environment)
//!    makes a pair of sockets ─ one of them ─────────▶ a thread of its own
//!    Errand, with the role's standard streams ──────▶ broker, egress, hold: /proc/self/exe and no other program
//!      ◀──────────────────── its process, or why not ─
//! ```
//!
//! It is forked before the gateway confines itself, and not one with the launcher: the broker runs sources of secrets in the caller's environment, which
//! may hold secrets, and whoever makes jails is to have none. The environment is the steward's own and never part of an errand, or a gateway that was
//! taken over could choose what a loader loads. For the same reason nothing that is executed comes from an errand: the two programs that a person's settings
//! name (who is told of requests, who witnesses receipts) are read when the steward starts.
//!
//! What goes over the streams that it passes on it never sees. It ends with the gateway's connection; roles end with theirs.

mod ask;
mod serve;

pub(crate) use ask::{Steward, start};
pub(crate) use serve::serve;

use std::ffi::OsString;

use serde::{Deserialize, Serialize};
use stockade_core::id::SandboxId;
use stockade_core::spec::BackendKind;

/// What a steward is told when it starts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    /// What sandboxes that stay are held to, as the launcher's are.
    roots: Vec<OsString>,
    walls: Vec<BackendKind>,
}

/// What is asked of it. A role's standard streams come along, input first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum Errand {
    /// The broker: the owner's connection, and that of egress.
    Broker,
    /// Egress: the owner's connection.
    Egress,
    /// The supervisor of a sandbox that stays: its lock, and where it says that it stands.
    Hold(SandboxId),
    /// That a person is told of a request, in these words, by the program that their settings name.
    Tell {
        /// Which the gateway thinks that is.
        program: String,
        text: String,
    },
    /// That receipts are witnessed by the program that settings name.
    Witness {
        /// Which the gateway thinks that is.
        program: String,
    },
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum Word {
    /// It was done. A role's process comes along.
    Done,
    /// It was not.
    Failed {
        /// Why.
        message: String,
    },
}
