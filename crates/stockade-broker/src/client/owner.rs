//! Who starts sandboxes: gives each its secrets and gets placeholders. Sees no value. Blocks.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{ClientError, introduce};
use crate::SecretName;
use crate::broker::{Bound, Registered, SandboxLabel, Wish};
use crate::placeholder::Placeholder;
use crate::sign::SIGNATURE;
use crate::talk::frame;
use crate::talk::message::{Ask, Extent, Reply, Role};
use crate::ticket::{MAX_PURPOSE, Signer, Ticket};

/// Bytes that are redacted at once: twice the longest form of a value, and what comes back still fits a message.
const MOST_AT_ONCE: usize = 96 << 10;
/// Pieces that are redacted at once.
const MOST_PIECES: usize = 1024;
/// How often it is looked whether an answer is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// Pieces without their secrets; `None` for one that had none.
pub type Clean = Vec<Option<Vec<u8>>>;

/// A connection as owner. The sandboxes registered over it are forgotten when it is dropped.
#[derive(Debug)]
pub struct Owner {
    stream: UnixStream,
    signer: Arc<Signer>,
    next: u32,
    /// Questions whose answers nobody waits for.
    unheard: Vec<u32>,
}

impl Owner {
    /// Begins the conversation with a broker that this process started: its tickets, and nobody else's, are taken from now on.
    pub fn connect(stream: UnixStream) -> Result<Self, ClientError> {
        let signer = Arc::new(Signer::new().map_err(|error| ClientError::Gone(error.to_string()))?);
        let role = Role::Owner { key: Some(signer.public()) };
        Self::introduced(stream, role, signer)
    }

    /// Begins another conversation with the same broker, over its socket.
    pub fn join(stream: UnixStream, signer: Arc<Signer>) -> Result<Self, ClientError> {
        Self::introduced(stream, Role::Owner { key: None }, signer)
    }

    /// What its tickets are signed with.
    pub fn signer(&self) -> Arc<Signer> {
        Arc::clone(&self.signer)
    }

    fn introduced(stream: UnixStream, role: Role, signer: Arc<Signer>) -> Result<Self, ClientError> {
        let mut stream = stream;
        introduce(&mut stream, role)?;
        Ok(Self { stream, signer, next: 0, unheard: Vec::new() })
    }

    /// Whether the broker is still there.
    pub fn is_there(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Its end is told without being asked for.
        let mut polled = [PollFd::new(&self.stream, PollFlags::empty())];
        poll(&mut polled, Some(&now)) == Ok(0)
    }

    /// Gives a sandbox its secrets: each must have a value now. All or none. May take as long as a command of the settings does.
    /// The call, and all that is asked for, is signed here.
    pub fn register(&mut self, sandbox: &SandboxLabel, purpose: &str, wishes: Vec<Wish>) -> Result<Registered, ClientError> {
        self.register_while(sandbox, purpose, wishes, &|| true)
    }

    /// As [`Self::register`], for as long as it is wanted. Where it is not any more, this connection is over.
    pub fn register_while(
        &mut self,
        sandbox: &SandboxLabel,
        purpose: &str,
        wishes: Vec<Wish>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Registered, ClientError> {
        let mut purpose = purpose.to_owned();
        purpose.truncate(purpose.floor_char_boundary(MAX_PURPOSE));
        let ticket = self.signer.ticket(sandbox, &purpose, &wishes, SystemTime::now());
        let ticket = ticket.map_err(|error| ClientError::Gone(error.to_string()))?;
        self.present(sandbox, &purpose, ticket, wishes, is_wanted)
    }

    /// As [`Self::register_while`], with a ticket that was signed elsewhere.
    pub fn present(
        &mut self,
        sandbox: &SandboxLabel,
        purpose: &str,
        ticket: Ticket,
        wishes: Vec<Wish>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Registered, ClientError> {
        let bindings: Vec<_> = wishes.iter().map(|wish| wish.binding.clone()).collect();
        let asked = self.say(|id| Ask::Register { id, sandbox: sandbox.clone(), purpose: purpose.to_owned(), ticket, wishes })?;
        self.await_word(is_wanted)?;
        match self.hear(asked)? {
            Reply::Registered { pass, placeholders, .. } if placeholders.len() == bindings.len() => {
                let placeholders = placeholders.into_iter().map(|(text, fact)| (Placeholder::from_wire(text), fact));
                let bound =
                    bindings.into_iter().zip(placeholders).map(|(binding, (placeholder, fact))| Bound { binding, placeholder, fact });
                Ok(Registered { bound: bound.collect(), pass })
            }
            other => Err(unfit(other)),
        }
    }

    /// Forgets a sandbox, and gives back what was minted for it alone; fails where that could not be.
    pub fn release(&mut self, sandbox: &SandboxLabel) -> Result<(), ClientError> {
        match self.ask(|id| Ask::Release { id, sandbox: sandbox.clone() })? {
            Reply::Done { .. } => Ok(()),
            other => Err(unfit(other)),
        }
    }

    /// As [`Self::release`], for a sandbox that has nothing to give back: the broker forgets it as surely, and there is nothing to wait for.
    pub fn leave(&mut self, sandbox: &SandboxLabel) -> Result<(), ClientError> {
        let id = self.say(|id| Ask::Release { id, sandbox: sandbox.clone() })?;
        self.unheard.push(id);
        Ok(())
    }

    /// Takes the values of a sandbox's secrets out of some pieces: each without them, `None` for one that had none; and what was taken out.
    pub fn redact(&mut self, sandbox: &SandboxLabel, pieces: &[&[u8]]) -> Result<(Clean, Vec<(SecretName, u64)>), ClientError> {
        let (mut clean, mut counts) = (Vec::with_capacity(pieces.len()), Vec::new());
        let mut rest = pieces;
        while let Some(first) = rest.first() {
            if first.len() > MOST_AT_ONCE {
                clean.push(self.redact_long(sandbox, first, &mut counts)?);
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let mut room = MOST_AT_ONCE;
            let fits = |piece: &&&[u8]| {
                let left = room.checked_sub(piece.len());
                room = left.unwrap_or(0);
                left.is_some()
            };
            let together = rest.iter().take(MOST_PIECES).take_while(fits).count();
            let (now, later) = rest.split_at_checked(together).unwrap_or((rest, &[]));
            let (redacted, _) = self.redact_some(sandbox, now, Extent::Whole, &mut counts)?;
            clean.extend(redacted);
            rest = later;
        }
        Ok((clean, counts))
    }

    /// Signs a message with a sandbox's secret.
    pub fn sign(&mut self, sandbox: &SandboxLabel, name: &SecretName, message: &[u8]) -> Result<[u8; SIGNATURE], ClientError> {
        match self.ask(|id| Ask::Sign { id, sandbox: sandbox.clone(), name: name.clone(), message: message.to_vec() })? {
            Reply::Signed { signature, .. } => Ok(signature),
            other => Err(unfit(other)),
        }
    }

    /// One piece that is too long for a message, window by window.
    fn redact_long(
        &mut self,
        sandbox: &SandboxLabel,
        piece: &[u8],
        counts: &mut Vec<(SecretName, u64)>,
    ) -> Result<Option<Vec<u8>>, ClientError> {
        let (mut out, mut rest, before) = (Vec::with_capacity(piece.len()), piece, counts.len());
        while !rest.is_empty() {
            let window = rest.get(..MOST_AT_ONCE).unwrap_or(rest);
            let extent = if window.len() == rest.len() { Extent::Whole } else { Extent::Beginning };
            let (mut redacted, taken) = self.redact_some(sandbox, &[window], extent, counts)?;
            let (done, left) = rest.split_at_checked(taken).filter(|(done, _)| !done.is_empty()).ok_or(ClientError::Unfit)?;
            match redacted.pop().flatten() {
                Some(clean) => out.extend(clean),
                None => out.extend_from_slice(done),
            }
            rest = left;
        }
        Ok((counts.len() > before).then_some(out))
    }

    fn redact_some(
        &mut self,
        sandbox: &SandboxLabel,
        pieces: &[&[u8]],
        extent: Extent,
        counts: &mut Vec<(SecretName, u64)>,
    ) -> Result<(Clean, usize), ClientError> {
        let copied = pieces.iter().map(|piece| piece.to_vec()).collect();
        match self.ask(|id| Ask::Redact { id, sandbox: sandbox.clone(), extent, pieces: copied })? {
            Reply::Redacted { pieces: clean, taken, counts: found, .. } if clean.len() == pieces.len() => {
                counts.extend(found);
                Ok((clean, taken as usize))
            }
            other => Err(unfit(other)),
        }
    }

    fn ask(&mut self, question: impl FnOnce(u32) -> Ask) -> Result<Reply, ClientError> {
        let asked = self.say(question)?;
        self.hear(asked)
    }

    /// Waits until there is something to hear, for as long as it is wanted.
    fn await_word(&self, is_wanted: &dyn Fn() -> bool) -> Result<(), ClientError> {
        let look = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        while poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&look)) == Ok(0) {
            if !is_wanted() {
                // The other end sees it; a broker of this call alone does not wait for its provider either.
                let _ = self.stream.shutdown(std::net::Shutdown::Both);
                return Err(ClientError::Unwanted);
            }
        }
        Ok(())
    }

    /// The answer to a question.
    fn hear(&mut self, asked: u32) -> Result<Reply, ClientError> {
        loop {
            let body = frame::read(&mut self.stream)?.ok_or_else(|| ClientError::Gone("it closed the connection".to_owned()))?;
            let reply = Reply::decode(&body)?;
            match reply.id() {
                Some(id) if id == asked => return Ok(reply),
                // Answers come in the order of the questions.
                Some(id) if self.unheard.first() == Some(&id) => {
                    self.unheard.remove(0);
                }
                Some(_) | None => return Err(ClientError::Unfit),
            }
        }
    }

    fn say(&mut self, question: impl FnOnce(u32) -> Ask) -> Result<u32, ClientError> {
        self.next = self.next.wrapping_add(1);
        frame::write(&mut self.stream, &question(self.next).encode())?;
        Ok(self.next)
    }
}

pub(super) fn unfit(reply: Reply) -> ClientError {
    match reply {
        Reply::Refused { why, message, hint, .. } => ClientError::Refused { why, message, hint },
        Reply::Welcome { .. }
        | Reply::Registered { .. }
        | Reply::Redacted { .. }
        | Reply::Signed { .. }
        | Reply::Value { .. }
        | Reply::Done { .. } => ClientError::Unfit,
    }
}
