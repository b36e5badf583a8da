//! An agent of SSH for programs inside: keys stay here, and what goes in are signatures for logins at hosts that are known.
//!
//! ```text
//! ssh ─ session-bind (host's key, session, host's signature) ─▶ not forwarded? signed by that key? overheard on its way to a host?
//!     ─ identities                                           ─▶ public keys and certificates
//!     ─ sign (key, data)                                     ─▶ bound? a login, in that session, as that user, at that host? ─▶ signature
//!     ─ anything else                                        ─▶ failure
//! ```
//!
//! A signature is worth something in one session only, and that session is one of this sandbox's own: its beginning was overheard while it
//! passed by ([`sessions`]). So nobody elsewhere can have a session of theirs let in. What is done in a session is between the program and the
//! host: it is encrypted from end to end.
//!
//! The protocol has no words for why something was refused; the record has them.

pub mod keys;
pub mod login;
pub mod message;
pub mod policy;
pub mod wire;

pub(crate) mod ring;
mod serve;
pub(crate) mod sessions;

use crate::error::EgressError;
use crate::secrets::binding::{Bound, MAX_BINDINGS};
pub(crate) use serve::serve;

/// The longest name of a user.
const MAX_USER: usize = 64;

/// A key that programs of a sandbox may log in with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Which, by its place in the sandbox's bindings. Its hosts are those that a session may be with.
    pub binding: usize,
    /// The keys that those hosts may have, as SSH writes them. None of them means nowhere.
    pub host_keys: Vec<Vec<u8>>,
    /// As whom programs may log in.
    pub user: String,
}

/// Checks that all of it can be served, and notes that these values stay here.
pub(crate) fn prepare(entries: &[Entry], bound: &mut [Bound]) -> Result<(), EgressError> {
    for (index, entry) in entries.iter().enumerate() {
        let bad = |why| EgressError::AgentEntry { index, why };
        if index >= MAX_BINDINGS {
            return Err(bad("there are too many"));
        }
        let secret = bound.get_mut(entry.binding).ok_or_else(|| bad("it is of a secret that is not bound"))?;
        if !(1..=MAX_USER).contains(&entry.user.len()) || !entry.user.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad("its user is empty, too long, or not plain text"));
        }
        if entry.host_keys.is_empty() {
            return Err(bad("it names no key of a host"));
        }
        secret.handed_out = true;
    }
    Ok(())
}
