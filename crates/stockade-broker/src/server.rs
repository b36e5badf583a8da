//! The broker as a process: answers over connections until they end.
//!
//! ```text
//!  accepted ─ peer refused ─▶ closed
//!     └─ Hello ─ other version or role ─▶ closed
//!          └─ serving ─ end, malformed frame ─▶ closed; an owner's sandboxes are forgotten
//! ```
//!
//! Each connection is served by the thread that took it, and before that one begins another waits for the next. A thread whose connection has
//! ended waits again, so that a call seldom waits for a thread to be started.
//!
//! An owner's questions are answered one after the other. Of egress's, those that need a source have a thread each, at most
//! `MAX_BUSY`, so that a slow program holds up nobody else. A malformed frame ends its connection: both ends are ours, so it is a bug
//! or somebody else.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::broker::{Broker, BrokerError, Registered, SandboxLabel};
use crate::peer::{self, Only, PeerError};
use crate::redact::Redacted;
use crate::shared::lock;
use crate::talk::VERSION;
use crate::talk::frame::{self, FrameError};
use crate::talk::message::{Ask, Refusal, Reply, Role};

/// How many questions of one connection may wait for a source at once.
const MAX_BUSY: usize = 64;
/// How many connections a listening broker has at once.
const MAX_CONNECTIONS: usize = 256;
/// How many threads wait for connections.
const MAX_WAITING: usize = 8;
/// How long a new connection may take to say what it is.
const HELLO: Duration = Duration::from_secs(5);

/// Why a connection ended badly.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Not let in.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// Something that is no message, or a broken stream.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Another protocol.
    #[error("the other end speaks version {0}, not {VERSION}")]
    Version(u16),
    /// It did not begin with `Hello`, or said it twice.
    #[error("the other end did not say what it is, once and first")]
    NoHello,
    /// Another role than the connection was made for.
    #[error("the other end is not what this connection was made for")]
    Role,
    /// The listening socket failed.
    #[error("cannot accept connections")]
    Accept(#[source] io::Error),
}

/// What a connection was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// Whoever started the broker: says whose tickets are taken.
    ForOwner,
    /// Egress, of every sandbox.
    ForEgress,
}

/// Serves one end of a socket pair that was made for somebody, until the other end is closed.
pub fn serve(broker: &Arc<Broker>, stream: UnixStream, made: Made) -> Result<(), ServeError> {
    let mut stream = stream;
    let whom = welcome(&mut stream, |said| match (made, said) {
        (Made::ForOwner, Role::Owner { key: Some(key) }) => broker.trust(key).ok().map(|()| Whom::Owner),
        (Made::ForEgress, Role::Egress { pass: None }) => Some(Whom::Egress(None)),
        (Made::ForOwner | Made::ForEgress, Role::Owner { .. } | Role::Egress { .. }) => None,
    })?;
    converse(broker, stream, &whom)
}

/// Whom a connection is with.
enum Whom {
    /// Registers sandboxes.
    Owner,
    /// Asks for values: of one sandbox, or of all.
    Egress(Option<SandboxLabel>),
}

/// Serves whoever connects and is let in, each in a thread of its own. Returns only when the socket fails.
///
/// The socket must lie in a directory that only its user can enter.
/// Where one process is named, nobody else is let in.
pub fn listen(broker: &Arc<Broker>, listener: UnixListener, only: Option<Only>) -> Result<(), ServeError> {
    let door = Arc::new(Door { broker: Arc::clone(broker), listener, only, open: Arc::default(), waiting: AtomicUsize::new(0) });
    loop {
        door.next()?;
    }
}

/// Where connections come in.
struct Door {
    broker: Arc<Broker>,
    listener: UnixListener,
    only: Option<Only>,
    open: Arc<AtomicUsize>,
    /// Threads that have nothing to serve.
    waiting: AtomicUsize,
}

impl Door {
    /// Waits for a connection and serves it to its end.
    fn next(self: &Arc<Self>) -> Result<(), ServeError> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let taken = self.listener.accept();
        let others = self.waiting.fetch_sub(1, Ordering::SeqCst) - 1;
        let (stream, _) = taken.map_err(ServeError::Accept)?;
        // While this one is served somebody must be there for the next; where nobody can be, that comes first.
        if others == 0 && !self.call_another() {
            return Ok(());
        }
        if let Some(_place) = Place::take(&self.open, MAX_CONNECTIONS) {
            // Who is refused sees the connection close; there is nobody else to tell.
            drop(self.admit(stream));
        }
        Ok(())
    }

    fn admit(&self, stream: UnixStream) -> Result<(), ServeError> {
        match &self.only {
            Some(only) => only.check(&stream)?,
            None => peer::check(&stream)?,
        }
        begin(&self.broker, stream)
    }

    /// Another thread, for as long as there are not enough.
    fn call_another(self: &Arc<Self>) -> bool {
        let door = Arc::clone(self);
        let wait = move || while door.waiting.load(Ordering::SeqCst) < MAX_WAITING && door.next().is_ok() {};
        std::thread::Builder::new().name("connection".to_owned()).spawn(wait).is_ok()
    }
}

/// One connection of a listening socket, from its beginning to its end.
pub fn admit(broker: &Arc<Broker>, stream: UnixStream) -> Result<(), ServeError> {
    peer::check(&stream)?;
    begin(broker, stream)
}

fn begin(broker: &Arc<Broker>, stream: UnixStream) -> Result<(), ServeError> {
    let mut stream = stream;
    stream.set_read_timeout(Some(HELLO)).map_err(FrameError::from)?;
    // Over a socket: whoever registers has tickets that somebody else signed, and whoever asks for values has a sandbox's pass.
    let whom = welcome(&mut stream, |said| match said {
        Role::Owner { key: None } => Some(Whom::Owner),
        Role::Egress { pass: Some(pass) } => broker.bearer(&pass).map(|sandbox| Whom::Egress(Some(sandbox))),
        Role::Owner { key: Some(_) } | Role::Egress { pass: None } => None,
    })?;
    stream.set_read_timeout(None).map_err(FrameError::from)?;
    converse(broker, stream, &whom)
}

fn welcome(stream: &mut UnixStream, admitted: impl Fn(Role) -> Option<Whom>) -> Result<Whom, ServeError> {
    let first = frame::read(stream)?.ok_or(ServeError::NoHello)?;
    match Ask::decode(&first)? {
        Ask::Hello { version: VERSION, role } => {
            let whom = admitted(role).ok_or(ServeError::Role)?;
            frame::write(stream, &Reply::Welcome { version: VERSION }.encode())?;
            Ok(whom)
        }
        Ask::Hello { version, .. } => Err(ServeError::Version(version)),
        Ask::Register { .. } | Ask::Release { .. } | Ask::Redact { .. } | Ask::Sign { .. } | Ask::Value { .. } | Ask::Spend { .. } => {
            Err(ServeError::NoHello)
        }
    }
}

fn converse(broker: &Arc<Broker>, stream: UnixStream, whom: &Whom) -> Result<(), ServeError> {
    let mut reader = stream.try_clone().map_err(FrameError::from)?;
    let writer = Arc::new(Mutex::new(stream));
    let busy = Arc::new(AtomicUsize::new(0));
    let mut owned = Owned { broker, sandboxes: Vec::new() };
    while let Some(body) = frame::read(&mut reader)? {
        let ask = Ask::decode(&body)?;
        drop(body);
        if let (Whom::Egress(Some(own)), Ask::Value { id, sandbox, .. } | Ask::Spend { id, sandbox, .. }) = (whom, &ask)
            && own != sandbox
        {
            frame::write(&mut *lock(&writer), &deny(*id, Refusal::Sandbox, "this connection is another sandbox's").encode())?;
            continue;
        }
        let reply = match (whom, ask) {
            (_, Ask::Hello { .. }) => return Err(ServeError::NoHello),
            (Whom::Owner, Ask::Register { id, sandbox, purpose, ticket, wishes }) => {
                let registered =
                    broker.admit(&ticket, &sandbox, &purpose, &wishes).and_then(|()| broker.register(&sandbox, &purpose, wishes));
                match registered {
                    Ok(Registered { bound, pass }) => {
                        owned.sandboxes.push(sandbox);
                        let placeholders = bound.into_iter().map(|bound| (bound.placeholder.to_string(), bound.fact)).collect();
                        Reply::Registered { id, pass, placeholders }
                    }
                    Err(error) => refused(id, &error),
                }
            }
            (Whom::Owner, Ask::Release { id, sandbox }) => {
                // Another owner's sandbox is not this one's to end.
                let own = owned.sandboxes.iter().position(|known| *known == sandbox);
                match own.map(|at| broker.release(&owned.sandboxes.swap_remove(at))) {
                    None | Some(Ok(())) => Reply::Done { id },
                    Some(Err(error)) => refused(id, &error),
                }
            }
            (Whom::Owner, Ask::Redact { id, sandbox, extent, pieces }) => match broker.redact(&sandbox, &pieces, extent) {
                Ok(Redacted { pieces, taken, counts }) => Reply::Redacted { id, pieces, taken, counts },
                Err(error) => refused(id, &error),
            },
            (Whom::Owner, Ask::Sign { id, sandbox, name, message }) => match broker.sign(&sandbox, &name, &message) {
                Ok(signature) => Reply::Signed { id, signature },
                Err(error) => refused(id, &error),
            },
            (Whom::Egress(_), Ask::Value { id, sandbox, name }) => match broker.value_at_hand(&sandbox, &name) {
                Some(answer) => given(id, answer),
                None => match Place::take(&busy, MAX_BUSY) {
                    None => deny(id, Refusal::Busy, "too many secrets are being asked for at once"),
                    Some(place) => {
                        let (broker, writer) = (Arc::clone(broker), Arc::clone(&writer));
                        let started = std::thread::Builder::new().name("source".to_owned()).spawn(move || {
                            let _place = place;
                            let reply = given(id, broker.value(&sandbox, &name));
                            // The other end may be gone, which its own reader notices.
                            let _ = frame::write(&mut *lock(&writer), &reply.encode());
                        });
                        match started {
                            Ok(_) => continue,
                            Err(_) => deny(id, Refusal::Busy, "no thread can be started"),
                        }
                    }
                },
            },
            (Whom::Egress(_), Ask::Spend { id, sandbox, name, bytes }) => match broker.spend(&sandbox, &name, bytes) {
                Ok(()) => Reply::Done { id },
                Err(error) => refused(id, &error),
            },
            (Whom::Owner, Ask::Value { id, .. } | Ask::Spend { id, .. })
            | (Whom::Egress(_), Ask::Register { id, .. } | Ask::Release { id, .. } | Ask::Redact { id, .. } | Ask::Sign { id, .. }) => {
                deny(id, Refusal::Role, "this connection may not ask that")
            }
        };
        frame::write(&mut *lock(&writer), &reply.encode())?;
    }
    Ok(())
}

fn given(id: u32, answer: Result<crate::broker::Answer, BrokerError>) -> Reply {
    match answer {
        Ok(answer) => Reply::Value {
            id,
            value: answer.lease.value.duplicate(),
            expires: answer.expires,
            fresh_until: answer.fresh_until,
            keep: answer.keep,
            bytes: answer.bytes,
        },
        Err(error) => refused(id, &error),
    }
}

fn refused(id: u32, error: &BrokerError) -> Reply {
    Reply::Refused { id, why: kind_of(error), message: with_causes(error), hint: error.hint().unwrap_or_default() }
}

fn kind_of(error: &BrokerError) -> Refusal {
    match error {
        BrokerError::AndNotGivenBack { first, .. } => kind_of(first),
        BrokerError::Source(source) if source.is_refused() => Refusal::Provider,
        BrokerError::UnknownSandbox(_) | BrokerError::KnownSandbox(_) => Refusal::Sandbox,
        BrokerError::LongLived(_) | BrokerError::NotBound { .. } | BrokerError::HostNotAllowed { .. } | BrokerError::Twice(_) => {
            Refusal::NotBound
        }
        BrokerError::Source(_) | BrokerError::Placeholder(_) | BrokerError::NoKey(_) | BrokerError::NotGivenBack(_) => Refusal::NoValue,
        BrokerError::UsedUp { .. } | BrokerError::TooOften { .. } => Refusal::UsedUp,
        BrokerError::Ticket(_) => Refusal::Role,
        BrokerError::TooMany(_) | BrokerError::Redact(_) => Refusal::Busy,
    }
}

fn deny(id: u32, why: Refusal, message: &str) -> Reply {
    Reply::Refused { id, why, message: message.to_owned(), hint: String::new() }
}

pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        message.push_str(": ");
        message.push_str(&inner.to_string());
        cause = inner.source();
    }
    message
}

/// An owner's sandboxes, forgotten with it.
struct Owned<'a> {
    broker: &'a Broker,
    sandboxes: Vec<SandboxLabel>,
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        for sandbox in &self.sandboxes {
            // Nobody is there to be told; what was minted ends at its own time.
            let _ = self.broker.release(sandbox);
        }
    }
}

/// One of a limited number of places, given back when dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(taken: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let place = taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| (now < most).then_some(now + 1));
        place.ok().map(|_| Self(Arc::clone(taken)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
