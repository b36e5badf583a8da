//! Credentials with the programs that people have them for, and no cloud: git, kubectl, docker, npm, pip, Google's library and curl use them
//! through Stockade against servers on loopback that know the real value, and nothing inside, printed or written down holds it. As root and as
//! an ordinary user.
//!
//! The machine must have what `egress` needs, docker's command, kubectl, npm, pip and the Python packages that `cargo xtask test` installs.

#![allow(clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod attacks;
mod git;
mod google;
mod images;
mod kubernetes;
mod minted;
mod packages;
mod ssh;
mod ssh_agent;
mod stage;
mod standing;

use stage::as_both;
