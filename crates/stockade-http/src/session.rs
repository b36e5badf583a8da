//! The ends of MCP's sessions, for calls that run in them.
//!
//! The SDK gives running calls five more seconds when their session ends, in case somebody still reads their answers. Whoever ends a session with DELETE
//! does not, so their calls are told at once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::request::Parts;
use rmcp::model::Extensions;
use tokio::sync::watch;

/// The end of the session that a call belongs to.
#[derive(Debug, Clone)]
pub struct SessionEnd(watch::Receiver<()>);

impl SessionEnd {
    /// That of a call; `None` where it belongs to no session.
    pub fn of(extensions: &Extensions) -> Option<Self> {
        extensions.get::<Parts>()?.extensions.get::<Self>().cloned()
    }

    /// Waits for it.
    pub async fn come(&mut self) {
        // Nothing is ever sent: it comes when the other side goes.
        while self.0.changed().await.is_ok() {}
    }
}

/// Sessions that calls were made in, by name.
#[derive(Debug, Default)]
pub(crate) struct Ends(Mutex<HashMap<String, watch::Sender<()>>>);

impl Ends {
    /// The end of a session, for a call in it. What is kept of sessions that are not live is forgotten.
    pub(crate) fn of(&self, session: &str, is_live: impl Fn(&str) -> bool) -> Option<SessionEnd> {
        let mut ends = self.lock();
        ends.retain(|name, _| is_live(name));
        is_live(session).then(|| SessionEnd(ends.entry(session.to_owned()).or_insert_with(|| watch::channel(()).0).subscribe()))
    }

    /// It has come.
    pub(crate) fn come(&self, session: &str) {
        drop(self.lock().remove(session));
    }

    /// A thread that failed while it had the lock left whole values.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
