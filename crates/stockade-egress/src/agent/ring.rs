//! The keys of one sandbox's agent: what is shown of them, and each for one signature.
//!
//! Whoever keeps values counts how often they are asked for. So a value that was needed to show a key waits for the first signature, and is asked for
//! again for each further one: listing keys is no use of them, and every signature is one.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use super::Entry;
use super::keys::{BadKey, Key};
use super::policy::Unfit;
use crate::refusal::Refusal;
use crate::sandbox::Sandbox;
use crate::secrets::Secrets;
use crate::secrets::binding::Bound;

/// Keys by the places of their secrets.
#[derive(Default)]
pub(crate) struct Ring(Mutex<HashMap<usize, Held>>);

struct Held {
    shown: Vec<Vec<u8>>,
    /// When its certificate ends.
    ends: Option<SystemTime>,
    /// Asked for, and not used yet.
    unused: Option<Key>,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ring")
    }
}

impl Ring {
    /// What programs may know of a key.
    pub(super) async fn shown(&self, sandbox: &Sandbox, secrets: &dyn Secrets, entry: &Entry) -> Result<Vec<Vec<u8>>, Refusal> {
        if let Some(shown) = self.fresh(entry, |held| held.shown.clone()) {
            return Ok(shown);
        }
        let key = ask(sandbox, secrets, entry).await?;
        let shown: Vec<Vec<u8>> = key.shown().map(<[u8]>::to_vec).collect();
        self.keep(entry, Held { shown: shown.clone(), ends: key.ends(), unused: Some(key) });
        Ok(shown)
    }

    /// A key for one signature.
    pub(super) async fn take(&self, sandbox: &Sandbox, secrets: &dyn Secrets, entry: &Entry) -> Result<Key, Refusal> {
        if let Some(key) = self.fresh(entry, |held| held.unused.take()).flatten() {
            return Ok(key);
        }
        let key = ask(sandbox, secrets, entry).await?;
        self.keep(entry, Held { shown: key.shown().map(<[u8]>::to_vec).collect(), ends: key.ends(), unused: None });
        Ok(key)
    }

    fn fresh<T>(&self, entry: &Entry, take: impl FnOnce(&mut Held) -> T) -> Option<T> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |held: &Held| held.ends.is_some_and(|end| SystemTime::now() >= end);
        held.get_mut(&entry.binding).filter(|held| !is_over(held)).map(take)
    }

    fn keep(&self, entry: &Entry, held: Held) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(entry.binding, held);
    }
}

/// The secret that a key is.
pub(super) fn secret_of<'a>(sandbox: &'a Sandbox, entry: &Entry) -> Result<&'a Bound, Refusal> {
    sandbox.bound.get(entry.binding).ok_or(Refusal::SshAgent { name: None, why: Unfit::Key })
}

async fn ask(sandbox: &Sandbox, secrets: &dyn Secrets, entry: &Entry) -> Result<Key, Refusal> {
    let secret = secret_of(sandbox, entry)?;
    let this = 1_u64.checked_shl(entry.binding as u32).unwrap_or(0);
    let found = sandbox.values(secrets, this, this).await?;
    let bad = |why: BadKey| Refusal::SecretUnavailable { name: Arc::clone(&secret.name), why: why.to_string() };
    let (_, value) = found.first().ok_or_else(|| bad(BadKey::Form))?;
    Key::parse(value).map_err(bad)
}
