//! What stands between an agent and what it asks for: requests that wait for a person, what they granted, and how they show who they are.
//!
//! `approvals` keeps requests, each bound to one exact call; `grants` keeps what was approved for longer than one call; `approver` is the
//! credential that tells a person from an agent of the same user. Everything lies in one private directory beneath the state, so that commands
//! without a daemon and the daemon use the same.
//!
//! Threat assumption: whoever asks is hostile, and so is every word they give; they may ask often, at once, and after everything changed. Nothing
//! inside a sandbox reaches the directory. Who has the same user id *outside* a sandbox can write the files: with a credential set up, what they
//! forge does not count, because approvals are signed with a key that only the passphrase opens; without one nothing tells them apart, and
//! receipts say so. No particular kernel is needed.

pub mod approvals;
pub mod approver;
pub mod grants;
