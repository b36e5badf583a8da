//! Secrets: kept at rest, fetched from their sources, shown to a sandbox as placeholders, and looked up by egress.
//!
//! ```text
//!  owner of a sandbox ── register: names, hosts ──▶ broker ◀── value of NAME in SANDBOX ── egress
//!        ◀── placeholders, never a value ──┘           │          ──▶ value, expiry, may it be kept
//!                                     store, file, command, the caller's variable
//! ```
//!
//! Only this crate and egress ever hold a real value. A broker is a process of its own ([`server`]) that speaks over socket pairs given at
//! its start, or over a Unix socket whose peers must have the same user id and no PID namespace of their own ([`peer`]). A role is fixed per
//! connection: who registers sandboxes cannot ask for values, though it can have messages signed with one ([`sign`]).
//!
//! Threat assumption: the sandbox is hostile and cannot reach any of this. Other programs of the same user are not kept out by the file
//! permissions here; that is what an approver's credential is for. Whoever may read the key file may read the store. Nothing here
//! needs a particular kernel; values are wiped from memory when they are dropped, but swap and hibernation are the machine's own affair.
//!
//! Everything fails closed: no source, no answer, a value past its end or a used-up budget is a refusal, never an older value.

pub mod answers;
pub mod binding;
pub mod broker;
pub mod budget;
mod circle;
pub mod client;
pub mod gone;
pub mod hygiene;
mod mint;
pub mod peer;
pub mod placeholder;
mod redact;
pub mod server;
mod shared;
pub mod sign;
pub mod sources;
pub mod store;
pub mod talk;
#[cfg(test)]
mod tests;
pub mod ticket;

pub use mint::oauth::device::{DeviceLogin, DevicePoll, device_begin, device_poll};
pub use mint::{MintError, Verdict};
pub use stockade_core::host::HostPattern;
pub use stockade_core::secret::{BadSecretName, BadSecretValue, Secret, SecretName, SecretValue};
