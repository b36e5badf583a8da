//! `stockade serve --listen` as clients and strangers meet it: HTTP by hand over sockets for what must hold to the letter, and real clients.

#![allow(clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod approvals;
mod calls;
mod confined;
mod conformance;
mod ends;
mod fixture;
mod relay;
pub(crate) mod server;
mod strangers;
mod tls;
mod token;

/// Agents may run anything but `git push`, and use files.
pub(crate) const DEVELOPER: &str = include_str!("../../../presets/developer.cedar");
