//! Whole agents behind the wall: the real Claude Code and the real Codex, driven by a scripted model on loopback (`tests/agents`), and small ones of
//! our own for what needs no real one. The key is known to the model's server and to the caller's environment, and to nobody inside.
//!
//! `cargo xtask test` installs the agents, once per version, and sets `STOCKADE_TEST_AGENTS`; what is missing fails.

#![allow(clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod asking;
mod background;
mod hostile;
mod inside;
mod login;
mod others;
mod real;
mod sdk;
mod served;
mod small;
mod stage;

use stage::{KEY, Stage};
