//! A whole agent behind the wall: what is known of it, what it is given, and what came of it.
//!
//! ```text
//!  profile (data) ─┬─ keys: placeholders inside, values only on the way to the model's host
//!                  ├─ files: the agent's own settings, copied without credentials
//!                  └─ program: where it is installed, read-only
//!  run ─▶ usage as answers pass egress ─▶ budget ─▶ summary
//! ```
//!
//! It adds to a `run`; it takes nothing of the wall away. The verbs are in `commands/agent`.

pub(crate) mod address;
pub(crate) mod attendant;
pub(crate) mod budget;
pub(crate) mod furniture;
pub(crate) mod keys;
pub(crate) mod memory;
pub(crate) mod profile;
pub(crate) mod program;
pub(crate) mod providers;
pub(crate) mod roll;
pub(crate) mod strip;
pub(crate) mod summary;
pub(crate) mod transcript;
pub(crate) mod worktree;
