//! The other ends of the broker's connections: [`Owner`] registers sandboxes, [`Lookup`] is what egress asks for values.

mod lookup;
mod owner;
mod waiting;

use std::os::unix::net::UnixStream;

use crate::talk::VERSION;
use crate::talk::frame::{self, FrameError};
use crate::talk::message::{Ask, Refusal, Reply, Role};

pub use lookup::{Held, Lookup};
pub use owner::{Clean, Owner};

/// Why the broker gave no answer. Cloned for everybody who waited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The broker said no.
    #[error("{message}")]
    Refused {
        /// Why, for programs.
        why: Refusal,
        /// Why, for people.
        message: String,
        /// What to do about it; may be empty.
        hint: String,
    },
    /// There is no broker any more.
    #[error("the secret broker is gone: {0}")]
    Gone(String),
    /// Whoever asked does not want it any more.
    #[error("nobody waits for it any more")]
    Unwanted,
    /// An answer to another question.
    #[error("the secret broker gave an answer that does not fit")]
    Unfit,
    /// Another protocol.
    #[error("the secret broker speaks another version than {VERSION}")]
    Version,
}

impl ClientError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Refused { hint, .. } if !hint.is_empty() => Some(hint),
            Self::Refused { .. } | Self::Gone(_) | Self::Unwanted | Self::Unfit | Self::Version => None,
        }
    }
}

impl From<FrameError> for ClientError {
    fn from(error: FrameError) -> Self {
        match &error {
            FrameError::Io(inner) => Self::Gone(inner.to_string()),
            FrameError::TooLong(_) | FrameError::Malformed(_) => Self::Gone(error.to_string()),
        }
    }
}

/// Says what we are, and waits to be welcome.
fn introduce(stream: &mut UnixStream, role: Role) -> Result<(), ClientError> {
    frame::write(stream, &Ask::Hello { version: VERSION, role }.encode())?;
    let first = frame::read(stream)?.ok_or_else(|| ClientError::Gone("it closed the connection at once".to_owned()))?;
    match Reply::decode(&first)? {
        Reply::Welcome { version: VERSION } => Ok(()),
        Reply::Welcome { .. } => Err(ClientError::Version),
        Reply::Registered { .. }
        | Reply::Redacted { .. }
        | Reply::Signed { .. }
        | Reply::Value { .. }
        | Reply::Done { .. }
        | Reply::Refused { .. } => Err(ClientError::Unfit),
    }
}
