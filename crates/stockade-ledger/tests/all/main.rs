//! The ledger from outside: what is written can be read, checked and found again, and nothing that is changed goes unnoticed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests: a failure is to be loud, and they start themselves and what checks them"
)]

mod failures;
mod finding;
mod independent;
mod killing;
mod line;
mod support;
mod tampering;
mod witnesses;
mod writing;
