//! Who starts sandboxes: gives each its secrets and gets placeholders. Sees no value. Blocks.

use std::os::unix::net::UnixStream;

use super::{ClientError, introduce};
use crate::broker::{Bound, SandboxLabel, Wish};
use crate::placeholder::Placeholder;
use crate::talk::frame;
use crate::talk::message::{Ask, Reply, Role};

/// A connection as owner. The sandboxes registered over it are forgotten when it is dropped.
#[derive(Debug)]
pub struct Owner {
    stream: UnixStream,
    next: u32,
}

impl Owner {
    /// Begins the conversation.
    pub fn connect(stream: UnixStream) -> Result<Self, ClientError> {
        let mut stream = stream;
        introduce(&mut stream, Role::Owner)?;
        Ok(Self { stream, next: 0 })
    }

    /// Gives a sandbox its secrets: each must have a value now. All or none. May take as long as a command of the settings does.
    pub fn register(&mut self, sandbox: &SandboxLabel, wishes: Vec<Wish>) -> Result<Vec<Bound>, ClientError> {
        let bindings: Vec<_> = wishes.iter().map(|wish| wish.binding.clone()).collect();
        match self.ask(|id| Ask::Register { id, sandbox: sandbox.clone(), wishes })? {
            Reply::Registered { placeholders, .. } if placeholders.len() == bindings.len() => {
                let placeholders = placeholders.into_iter().map(Placeholder::from_wire);
                Ok(bindings.into_iter().zip(placeholders).map(|(binding, placeholder)| Bound { binding, placeholder }).collect())
            }
            other => Err(unfit(other)),
        }
    }

    /// Forgets a sandbox.
    pub fn release(&mut self, sandbox: &SandboxLabel) -> Result<(), ClientError> {
        match self.ask(|id| Ask::Release { id, sandbox: sandbox.clone() })? {
            Reply::Done { .. } => Ok(()),
            other => Err(unfit(other)),
        }
    }

    fn ask(&mut self, question: impl FnOnce(u32) -> Ask) -> Result<Reply, ClientError> {
        self.next = self.next.wrapping_add(1);
        frame::write(&mut self.stream, &question(self.next).encode())?;
        let body = frame::read(&mut self.stream)?.ok_or_else(|| ClientError::Gone("it closed the connection".to_owned()))?;
        let reply = Reply::decode(&body)?;
        if reply.id() == Some(self.next) { Ok(reply) } else { Err(ClientError::Unfit) }
    }
}

pub(super) fn unfit(reply: Reply) -> ClientError {
    match reply {
        Reply::Refused { why, message, hint, .. } => ClientError::Refused { why, message, hint },
        Reply::Welcome { .. } | Reply::Registered { .. } | Reply::Value { .. } | Reply::Done { .. } => ClientError::Unfit,
    }
}
