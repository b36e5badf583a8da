//! Fault loops: Stockade is killed, starved and pulled the ground from under, and afterwards everything is counted.
//!
//! ```text
//! cage (own pid, mount, network, ipc namespaces and control groups) ─▶ loops ─▶ census before = census after ─▶ table
//! ```
//!
//! The cage makes counts exact: every process, mount, socket, lock and group that is seen in it belongs to the soak, whatever else the
//! machine does. In every fault a run is either fully walled or a refusal that says why; it never hangs, and it leaves nothing.
//!
//! Randomness comes from a seed that is printed, and every round has its own stream of it, so that one round can be repeated alone.
//!
//! Only the binary is used, as people use it: nothing here links against Stockade. It runs as root, because it has to be an
//! ordinary user too.

pub mod arguments;
pub mod bounded;
pub mod cage;
pub mod census;
pub mod failure;
pub mod ground;
pub mod groups;
pub mod loops;
pub mod probe;
pub mod processes;
pub mod random;
pub mod report;
pub mod settle;
