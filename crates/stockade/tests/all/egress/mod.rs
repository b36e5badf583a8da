//! The way out, with real programs: what goes, what does not, and that a secret's value is nowhere inside. As root and as an ordinary user,
//! against servers of the test's own on loopback; each attempt also without Stockade, so that a refusal means something.
//!
//! The machine must have curl, git, openssl, python3 and util-linux, and for `programs` java, javac, node, npm and the Python packages that
//! `cargo xtask test` installs; what is missing fails.

#![allow(clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod confined;
mod created;
mod ends;
mod git;
mod hosts;
mod mcp;
mod nowhere;
mod outbound;
mod packs;
mod policy;
pub(crate) mod programs;
mod rules;
mod secrets;
pub(crate) mod world;

use world::{World, as_both};
