//! Resource limits that the kernel holds: control groups of both versions, and what to do where there are none.
//!
//! The parts, in the order they are used:
//!
//! ```text
//! check      absurd values are refused before anything runs
//! hierarchy  text of /proc ─▶ where each controller is mounted and which group is ours   (pure)
//! layout     looks at those directories: where may a child be made?                      (reads only)
//! cgroup     makes the child, sets and reads back the limits, samples, freezes, kills, removes
//! counters   how often a limit was met, as open files for whoever may not look at groups
//! sweep      removes what dead owners left behind
//! sampler    memory of a process tree, for ordinary users without a group
//! disk       bytes beneath a directory
//! ```
//!
//! Children are made below this process's own group wherever the kernel allows it, so that limits of the parents stay in
//! force. A limit that cannot be had is reported in [`Cgroup::holds`], never dropped in silence; whether that refuses the
//! sandbox is the caller's decision. Nothing here starts processes.

mod apply;
mod cgroup;
mod check;
mod counters;
pub mod disk;
mod error;
mod files;
mod freeze;
pub mod hierarchy;
mod kill;
mod layout;
mod patience;
mod report;
pub mod sampler;
mod sweep;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_v2;

pub use cgroup::{Cgroup, Sample};
pub use check::{MINIMUM_MEMORY, check, process_ceiling};
pub(crate) use counters::Counters;
pub use error::LimitError;
pub use freeze::Frozen;
pub use layout::Layout;
pub use sweep::{Swept, sweep};
