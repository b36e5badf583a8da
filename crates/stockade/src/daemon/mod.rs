//! The daemon: keeps jails ready and the ledger open, and does for thin clients what they would do themselves, by the same code.
//!
//! ```text
//!  serve ─▶ lock ─▶ launcher started ─▶ socket bound ─▶ confined ─▶ [ visitor ─▶ thread ─▶ engine ─▶ answer ] … SIGTERM ─▶ drained ─▶ end
//!
//!  client (`run`) ── words, directory, a few variables, three streams ──▶ assembled? ─▶ admitted? ─▶ jail taken ─▶ intent ─▶ runs ─▶ outcome
//!         ◀─ "do it yourself" ── whatever does not fit, before anything was decided or written ──┘
//!         ◀─ the exit code ──────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! What does not fit runs in the client as if there were no daemon: a terminal, a way out, a workspace that is written through, a question to a
//! person, other places or another version than the daemon's. So a daemon changes how fast a call is, never what comes of it.
//!
//! The gateway (this process) decides and records. It may not open connections, run programs, mount, or see the secret store (`confine`), and
//! `stockade doctor` has it try (`proof`). The launcher, forked before, makes jails and knows nothing else (`stockade_sandbox::launch`). The servers for
//! agents (`crate::mcp`, `crate::http`) are gateways of the same kind; what their calls need besides jails is started by a `steward`.

pub(crate) mod client;
pub(crate) mod confine;
pub(crate) mod ear;
mod gateway;
pub(crate) mod launcher;
mod lock;
mod prompter;
pub(crate) mod proof;
mod protocol;
mod serve;
mod standing;
mod start;
mod started;
pub(crate) mod steward;
pub(crate) mod warm;

pub(crate) use launcher::launch;
pub(crate) use lock::sweep;
pub(crate) use prompter::Prompter;
pub(crate) use serve::serve;
pub(crate) use standing::Standing;
pub(crate) use start::{Beside, Starting};
pub(crate) use started::Started;
pub(crate) use steward::Steward;

use std::path::{Path, PathBuf};

/// The socket, in the directory of sockets.
fn socket(runtime: &Path) -> PathBuf {
    runtime.join("daemon.sock")
}
