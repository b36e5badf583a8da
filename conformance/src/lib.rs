//! One suite of escape attempts, limits, files, lifecycle and bad input, run against a wall by name.
//!
//! ```text
//! cases/*.toml ─▶ runner ─▶ worker (as root or as nobody, clean environment) ─▶ attempts ─▶ observations ─▶ RESULTS.md
//!                                     │                                            │
//!                                     └─ decoy: what must not be reached ◀─────────┘
//! ```
//!
//! The cases are data with the expected result per wall; the attempts are functions of the probe (what needs system calls), scripts, or
//! functions here (what a caller does to the library). The same cases run without any wall, where escapes must succeed or the case proves
//! nothing, and in bubblewrap, which tests the suite. Nothing here knows how a wall works; a new wall is one more [`target::Target`].
//!
//! Threat assumption: everything an attempt prints is hostile and bounded. Attempts without a wall run as an ordinary user in places made for
//! them, never as root.

pub mod case;
pub mod lab;
pub mod page;
pub mod target;
pub mod worker;

mod cloned;
mod error;
mod host;
mod probe;
mod reach;
mod recorder;
mod script;
mod stage;
mod wall;

pub use error::SuiteError;
pub use stage::{Observation, Observations, deviations, observe};
