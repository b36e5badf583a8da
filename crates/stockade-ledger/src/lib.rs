//! Receipts: what happened, written before and after, so that a stranger can check it years later.
//!
//! ```text
//!  draft ─ redact ─ canonical JSON ─▶ one transaction: read the head, link, sign, add, write the head ─▶ durable ─▶ answer
//!                                       └─ every N: a signed checkpoint over the Merkle tree ─▶ witness
//! ```
//!
//! Each receipt is canonical JSON (RFC 8785), names the digest of the one before, is signed with Ed25519, and is a leaf of a Merkle tree (RFC 6962)
//! whose root is signed now and then. [`Ledger::append`] answers only when the receipt is as safe as [`Durability`] asks; if it cannot be written
//! nothing may run, so every failure is an error with a hint. Any number of processes may write one ledger.
//!
//! Threat assumption: whoever can write the directory but not read the key can destroy a ledger, not change it unnoticed. Whoever holds the key can
//! forge all of it, or roll it back; only a [`witness`] outside notices. What a sandbox says (arguments, output, paths) is hostile: it is bounded,
//! and stands in strings only. No particular kernel is needed.
//!
//! The rules of the format are in `stockade-verify`, which checks exports without any of this. Only this crate opens the database.

mod database;
mod error;
pub mod export;
mod facts;
mod head;
mod ledger;
mod line;
mod log;
mod owner;
pub mod payload;
pub mod query;
mod queue;
pub mod receipt;
pub mod redact;
pub mod reserve;
mod rotate;
mod seal;
mod signing;
mod tree;
pub mod verify;
pub mod witness;
mod writer;

pub use database::FILE;
pub use error::{LedgerError, Problem};
pub use ledger::{Appended, Clock, Durability, Ledger, Options, Order, Weight};
pub use query::Reader;
