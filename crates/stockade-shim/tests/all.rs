//! The guest as a plain process, asked over a socket: one binary for all cases (link time).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]
#![allow(clippy::multiple_unsafe_ops_per_block, clippy::disallowed_methods, unreachable_pub, missing_docs, reason = "tests")]

mod cases;
mod client;
