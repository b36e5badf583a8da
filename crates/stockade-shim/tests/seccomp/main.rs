//! The system call filter: its data, its programs for both architectures, and its effect on a live kernel.
//!
//! Includes the build script's modules and the shim's own `seccomp.rs` by path, so what is tested is what ships.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the tests start programs and open a loopback socket to see that the filter lets them")]

mod data;
mod evaluate;
mod live;
mod verdicts;

#[path = "../../seccomp/policy.rs"]
mod policy;
#[path = "../../seccomp/program.rs"]
mod program;
#[path = "../../src/jail/seccomp.rs"]
mod shipped;

use policy::{Architecture, Policy, Variant};

pub(crate) const NUMBERS: &str = include_str!("../../seccomp/numbers.txt");
pub(crate) const ALLOW: &str = include_str!("../../seccomp/allow.txt");
pub(crate) const REFUSED: &str = include_str!("../../seccomp/refused.txt");

pub(crate) const ARCHITECTURES: [Architecture; 2] = [Architecture::X86_64, Architecture::Aarch64];

pub(crate) const VARIANTS: [Variant; 2] = [Variant::General, Variant::ExecList];

/// The architecture of this machine.
pub(crate) const HERE: Architecture = if cfg!(target_arch = "x86_64") { Architecture::X86_64 } else { Architecture::Aarch64 };

pub(crate) fn policy() -> Policy {
    Policy::read(NUMBERS, ALLOW, REFUSED).expect("the data files are sound")
}
