//! Receipts of what commands do: an intent before, an outcome after, and a word on what was refused.
//!
//! ```text
//!  deed ── intent written ──▶ it happens ──▶ outcome written
//!    │          └ cannot be written: nothing happens (125)
//!    └ denied: one record, nothing happens (126)
//! ```
//!
//! `book` opens the ledger, when it is first needed; `keeping` is what settings say about it. `deed` is one call from its intent to its outcome; `running` is the deed that is a program in a
//! fresh sandbox, whose intent is written while the wall is raised, `inside` the one in a sandbox that stands. `describe` says what a sandbox is, `program` which file was executed.
//! The ledger itself, and what a receipt is, belongs to `stockade-ledger`.

mod approval;
pub(crate) mod book;
mod deed;
#[cfg(wall)]
mod describe;
mod hash;
#[cfg(wall)]
mod inside;
pub(crate) mod keeping;
#[cfg(wall)]
mod program;
#[cfg(wall)]
mod running;

#[cfg(wall)]
pub(crate) use approval::refused_answer;
pub(crate) use approval::{approved, decided};
#[cfg(wall)]
pub(crate) use book::Untidy;
pub(crate) use book::{Book, open};
pub(crate) use deed::lifecycle;
#[cfg(wall)]
pub(crate) use deed::{Asked, Deed, failed, no_secrets};
#[cfg(wall)]
pub(crate) use describe::{configuration_text, credentials_of, digest_of, policy_of, sandbox_of};
pub(crate) use hash::hashed;
#[cfg(wall)]
pub(crate) use inside::{Inside, Program, Secrets, recorded, secrets_of, weight_in};
pub(crate) use keeping::Keeping;
#[cfg(wall)]
pub(crate) use program::{Past, Programs, outside};
#[cfg(wall)]
pub(crate) use running::{Capture, Running, changed};
