//! What is done with each fuzzed input, and what must hold afterwards.
//!
//! Owns one module per target in [`targets`]: a `body`, which takes any bytes and panics where a promise is broken, and `seeds`, made from
//! real values so that they follow every change of a format. libFuzzer calls the bodies for as long as one likes (`cargo xtask fuzz`); the
//! tests of this crate call the same bodies on stable Rust with the seeds, the inputs that once broke something, and a fixed number of
//! [`mutate`]d inputs.
//!
//! Threat assumption: an input may be anything. A body that touches files does so in a directory of its own, and those who run it are an
//! ordinary user: a bug that it finds must not be able to hurt the machine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a promise that does not hold, or a harness that cannot work, must stop the run"
)]
#![allow(clippy::unnecessary_debug_formatting, reason = "paths of inputs are shown as they are, byte by byte")]

pub mod input;
pub mod mutate;
pub mod scratch;
pub mod shown;
pub mod targets;

/// One target.
pub struct Target {
    /// Its name, also of its libFuzzer binary.
    pub name: &'static str,
    /// Tries one input; panics where a promise is broken.
    pub body: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// How many mutated inputs the tests try: as many as fit into about two seconds.
    pub tries: usize,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "wire", body: targets::wire::body, seeds: targets::wire::seeds, tries: 40_000 },
    Target { name: "host", body: targets::host::body, seeds: targets::host::seeds, tries: 4_000 },
    Target { name: "guest", body: targets::guest::body, seeds: targets::guest::seeds, tries: 700 },
    Target { name: "seccomp", body: targets::seccomp::body, seeds: targets::seccomp::seeds, tries: 1_500 },
    Target { name: "settings", body: targets::settings::body, seeds: targets::settings::seeds, tries: 800 },
    Target { name: "text", body: targets::text::body, seeds: targets::text::seeds, tries: 40_000 },
    Target { name: "layer", body: targets::layer::body, seeds: targets::layer::seeds, tries: 400 },
    Target { name: "state", body: targets::state::body, seeds: targets::state::seeds, tries: 800 },
    Target { name: "broker", body: targets::broker::body, seeds: targets::broker::seeds, tries: 20_000 },
    Target { name: "git", body: targets::git::body, seeds: targets::git::seeds, tries: 800 },
    Target { name: "egress", body: targets::egress::body, seeds: targets::egress::seeds, tries: 20_000 },
    Target { name: "shell", body: targets::shell::body, seeds: targets::shell::seeds, tries: 6_000 },
    Target { name: "policy", body: targets::policy::body, seeds: targets::policy::seeds, tries: 800 },
    Target { name: "pack", body: targets::pack::body, seeds: targets::pack::seeds, tries: 3_000 },
    Target { name: "receipts", body: targets::receipts::body, seeds: targets::receipts::seeds, tries: 2_000 },
    Target { name: "door", body: targets::door::body, seeds: targets::door::seeds, tries: 3_000 },
    Target { name: "carried", body: targets::carried::body, seeds: targets::carried::seeds, tries: 1_500 },
    Target { name: "rest", body: targets::rest::body, seeds: targets::rest::seeds, tries: 20_000 },
    Target { name: "providers", body: targets::providers::body, seeds: targets::providers::seeds, tries: 6_000 },
];
