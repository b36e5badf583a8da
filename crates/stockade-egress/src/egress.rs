//! Egress itself: what all sandboxes share, the table of sandboxes, and the way in for connections.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use stockade_core::id::SandboxId;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::desk::Desk;
use crate::error::EgressError;
use crate::event::{CHANNEL_EVENTS, EventReceiver, Events};
use crate::origin::Connection;
use crate::proxy;
use crate::resolve::Resolve;
use crate::rules::Rules;
use crate::rules::learn::Learnt;
use crate::sandbox::Sandbox;
use crate::secrets::binding::Binding;
use crate::secrets::{NoSecrets, Secrets};
use crate::tls::authority::Authority;
use crate::tls::upstream::{Roots, UpstreamTls};

/// How often idle connections to hosts are gone through.
const SWEEP: Duration = Duration::from_secs(10);

/// What egress is made of.
pub struct Settings {
    /// Where the certificate authority lives; made with mode 0700 where it is missing.
    pub authority_directory: PathBuf,
    /// Whom to trust outside.
    pub roots: Roots,
    /// How names are looked up.
    pub resolver: Arc<dyn Resolve>,
    /// Where values come from.
    pub secrets: Arc<dyn Secrets>,
    /// How many events may wait.
    pub event_room: usize,
}

impl Settings {
    /// The machine's roots, no secrets.
    pub fn new(authority_directory: PathBuf, resolver: Arc<dyn Resolve>) -> Self {
        Self { authority_directory, roots: Roots::Machine, resolver, secrets: Arc::new(NoSecrets), event_room: CHANNEL_EVENTS }
    }
}

/// The egress of one process. Clones are the same one.
#[derive(Clone)]
pub struct Egress {
    shared: Arc<Shared>,
}

/// What all sandboxes share.
pub(crate) struct Shared {
    pub(crate) authority: Authority,
    pub(crate) tls: UpstreamTls,
    pub(crate) resolver: Arc<dyn Resolve>,
    pub(crate) secrets: Arc<dyn Secrets>,
    pub(crate) events: Events,
    sandboxes: Mutex<HashMap<SandboxId, Arc<Sandbox>>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

impl Egress {
    /// Sets egress up; to be called inside a tokio runtime. The receiver gets every decision and must be read: when it is full
    /// requests wait, when it is dropped nothing goes out.
    pub fn new(settings: Settings) -> Result<(Self, EventReceiver), EgressError> {
        let Settings { authority_directory, roots, resolver, secrets, event_room } = settings;
        let (events, receiver) = Events::channel(event_room);
        let authority = Authority::open(&authority_directory)?;
        let tls = UpstreamTls::new(&roots)?;
        let shared = Arc::new(Shared { authority, tls, resolver, secrets, events, sandboxes: Mutex::default() });
        tokio::spawn(sweep(Arc::downgrade(&shared)));
        Ok((Self { shared }, receiver))
    }

    /// The authority's certificate, for the trust stores inside sandboxes.
    pub fn certificate_pem(&self) -> &str {
        self.shared.authority.certificate_pem()
    }

    /// Makes a sandbox known. It is until the guest is dropped, and its connections end then.
    pub fn add(&self, id: SandboxId, rules: Rules, bindings: Vec<Binding>) -> Result<Guest, EgressError> {
        self.add_sandbox(id, rules, bindings, None)
    }

    /// As [`Self::add`], for a sandbox whose programs may ask at a desk.
    pub fn add_with_desk(&self, id: SandboxId, rules: Rules, bindings: Vec<Binding>, desk: Desk) -> Result<Guest, EgressError> {
        self.add_sandbox(id, rules, bindings, Some(desk))
    }

    pub(crate) fn add_sandbox(
        &self,
        id: SandboxId,
        rules: Rules,
        bindings: Vec<Binding>,
        desk: Option<Desk>,
    ) -> Result<Guest, EgressError> {
        let sandbox = Arc::new(Sandbox::new(id.clone(), rules, bindings, desk)?);
        match self.shared.sandboxes().entry(id) {
            Entry::Occupied(entry) => return Err(EgressError::Known(entry.key().to_string())),
            Entry::Vacant(entry) => entry.insert(Arc::clone(&sandbox)),
        };
        Ok(Guest { shared: Arc::clone(&self.shared), sandbox })
    }

    /// Serves one connection to its end. One from a sandbox that is not known is closed.
    pub async fn serve<S>(&self, connection: Connection<S>)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let sandbox = self.shared.sandboxes().get(&connection.origin.sandbox).cloned();
        if let Some(sandbox) = sandbox {
            proxy::serve(&self.shared, &sandbox, connection.origin.kind, connection.stream).await;
        }
    }
}

impl Shared {
    fn sandboxes(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Sandbox>>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sandbox that egress knows.
pub struct Guest {
    pub(crate) shared: Arc<Shared>,
    pub(crate) sandbox: Arc<Sandbox>,
}

impl Guest {
    /// Its id.
    pub fn id(&self) -> &SandboxId {
        &self.sandbox.id
    }

    /// What it reached for so far, where it is learning.
    pub fn learnt(&self) -> Learnt {
        self.sandbox.learnt()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.shared.sandboxes().remove(&self.sandbox.id);
        self.sandbox.close();
    }
}

/// Lets go of idle connections to hosts, for as long as egress lives.
async fn sweep(shared: Weak<Shared>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(shared) = shared.upgrade() else { return };
        let sandboxes: Vec<Arc<Sandbox>> = shared.sandboxes().values().cloned().collect();
        for sandbox in sandboxes {
            sandbox.pool.sweep();
        }
    }
}
