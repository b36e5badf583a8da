//! Egress of one sandbox as a process of its own: a runtime, the sandbox's socket, and an owner whose end is the end.
//!
//! ```text
//! set up ─ ready(certificate) ─▶ serving, event after event ─ owner gone ─▶ connections cut ─ last events ─ end(learnt)
//! ```
//!
//! How this process confines itself, what it was told and where events go is the business of whoever calls.

use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stockade_core::id::SandboxId;
use tokio::sync::oneshot;

use crate::desk::Desk;
use crate::egress::{Egress, Settings};
use crate::error::EgressError;
use crate::event::{Event, EventReceiver};
use crate::resolve::SystemResolver;
use crate::rules::Rules;
use crate::rules::learn::Learnt;
use crate::secrets::Secrets;
use crate::secrets::binding::Binding;

/// Threads that serve; one sandbox keeps no more busy.
const MAX_THREADS: usize = 4;
/// How long what was under way may take to say how it ended.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// What one process does.
pub struct Task {
    /// Where the certificate authority lives.
    pub authority_directory: PathBuf,
    /// Where values come from.
    pub secrets: Arc<dyn Secrets>,
    /// Whose way out this is.
    pub sandbox: SandboxId,
    /// What it may reach.
    pub rules: Rules,
    /// The secrets it has.
    pub bindings: Vec<Binding>,
    /// Where its programs ask for what their tools need, where they may.
    pub desk: Option<Desk>,
    /// The socket over which its connections come.
    pub guest: OwnedFd,
    /// Whoever started this; nothing is read from it but its end.
    pub owner: UnixStream,
}

/// Who is told. Called by one thread; what takes long holds up new requests, never those under way.
pub trait Teller {
    /// Connections are taken from now on, under this authority.
    fn ready(&mut self, certificate: &str);
    /// Something was decided. Where that cannot be kept nothing goes out any more.
    fn event(&mut self, event: &Event) -> io::Result<()>;
    /// It is over.
    fn end(&mut self, learnt: &Learnt);
}

/// Serves until the owner goes.
pub fn serve(task: Task, teller: &mut dyn Teller) -> Result<(), EgressError> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get).min(MAX_THREADS);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("egress")
        .enable_all()
        .build()
        .map_err(EgressError::Runtime)?;
    let served = runtime.block_on(serve_within(task, teller));
    // A look-up that hangs is nobody's any more.
    runtime.shutdown_background();
    served
}

async fn serve_within(task: Task, teller: &mut dyn Teller) -> Result<(), EgressError> {
    let Task { authority_directory, secrets, sandbox, rules, bindings, desk, guest: socket, owner } = task;
    let mut settings = Settings::new(authority_directory, Arc::new(SystemResolver::new()?));
    settings.secrets = secrets;
    let (egress, mut events) = Egress::new(settings)?;
    let guest = egress.add_sandbox(sandbox, rules, bindings, desk)?;
    let mut gone = end_of(owner)?;
    teller.ready(egress.certificate_pem());
    {
        let accept = guest.accept(socket);
        tokio::pin!(accept);
        let mut accepting = true;
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => teller.event(&event).map_err(EgressError::Record)?,
                    None => break,
                },
                // The sandbox closed its end; the owner says when it is over.
                _ = &mut accept, if accepting => accepting = false,
                _ = &mut gone => break,
            }
        }
    }
    let learnt = guest.learnt();
    drop(guest);
    drop(egress);
    last_words(&mut events, teller).await?;
    teller.end(&learnt);
    Ok(())
}

/// Resolves when the other end is closed.
fn end_of(mut owner: UnixStream) -> Result<oneshot::Receiver<()>, EgressError> {
    let (sender, receiver) = oneshot::channel();
    let wait = move || {
        // Whoever writes here has not gone yet; what it writes means nothing.
        while owner.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        let _ = sender.send(());
    };
    std::thread::Builder::new().name("owner".to_owned()).spawn(wait).map_err(EgressError::Runtime)?;
    Ok(receiver)
}

async fn last_words(events: &mut EventReceiver, teller: &mut dyn Teller) -> Result<(), EgressError> {
    let deadline = tokio::time::sleep(LAST_WORDS);
    tokio::pin!(deadline);
    loop {
        tokio::select! {
            biased;
            event = events.recv() => match event {
                Some(event) => teller.event(&event).map_err(EgressError::Record)?,
                None => return Ok(()),
            },
            () = &mut deadline => return Ok(()),
        }
    }
}
