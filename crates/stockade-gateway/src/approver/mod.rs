//! The approver credential: what tells a person from an agent of the same user.
//!
//! A key pair whose private half is sealed under a passphrase. Whoever approves opens it and signs what they approve; whoever runs a call checks the
//! signature with the public half. So nothing that can be written into files without the passphrase counts as an approval. The file itself is the
//! weak point: a process of the same user outside any sandbox could put another in its place. An administrator who puts one at
//! `/etc/stockade/approver.json` closes that; it comes before a person's own.
//!
//! An administrator can name another user instead: then the private half is that user's own, in their own state (`key`), and nobody else approves, the
//! person themselves included. What they approve they are shown over a socket, and sign (`approvals::Distant`).
//!
//! Guesses are counted before they are tried, in the store, and cost ever more waiting.

mod attempts;
mod credential;
mod key;

pub use attempts::Way;
pub use credential::{Approver, Credential, CredentialError, Place};
pub use key::Made;
