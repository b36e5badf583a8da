//! Why something cannot be asked for, decided or used.

use std::path::PathBuf;

use super::request::State;
use super::store::{MOST_OF_AGENT, MOST_PENDING, MOST_SHOWN};

/// Why the store of requests cannot do what it was asked for. Whatever it is, nothing runs.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    /// The directory cannot be made private.
    #[error("the directory of approvals cannot be used")]
    Directory(#[source] stockade_private_dir::PrivateDirError),
    /// A file cannot be made.
    #[error("cannot create `{}`", .0.display())]
    Create(PathBuf, #[source] std::io::Error),
    /// The database says no.
    #[error("cannot {step} approvals in `{}`", .path.display())]
    Database {
        /// What was tried.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: rusqlite::Error,
    },
    /// Written by a later version.
    #[error("`{}` has version {version}, which this program does not know", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: i64,
    },
    /// What is in it makes no sense.
    #[error("`{}` is damaged: {what}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// No random numbers.
    #[error("the system gives no random numbers")]
    NoRandom,
    /// Too many wait.
    #[error("{MOST_PENDING} requests wait for a person already")]
    TooMany,
    /// Too many of one agent's wait.
    #[error("{MOST_OF_AGENT} requests of this agent wait for a person already")]
    TooManyOfAgent,
    /// It could not be shown whole.
    #[error("it is too long to be shown to a person whole: {0} bytes, and {MOST_SHOWN} are the most")]
    TooLong(usize),
    /// No such request.
    #[error("there is no request `{0}`")]
    NoRequest(String),
    /// No such grant.
    #[error("there is no grant `{0}`")]
    NoGrant(String),
    /// It is not waiting any more.
    #[error("the request `{id}` is {} already", .state.name())]
    Decided {
        /// Which.
        id: String,
        /// What it is.
        state: State,
    },
    /// What a person is shown is not what was filed.
    #[error("the text of the request `{0}` was changed")]
    Tampered(String),
    /// Only a credential may approve this.
    #[error("a destructive call needs an approver credential, and none is set up")]
    NeedsCredential,
    /// A grant for a session that nobody can tell from others.
    #[error("the call came from no session that can be recognised again")]
    NoSession,
    /// Longer than grants may be.
    #[error("a grant may last {0} hours at most")]
    LongGrant(i64),
    /// What a client carried back is not what it was given, or not any more.
    #[error("the answer does not count: {0}")]
    Carried(&'static str),
    /// Another user's word is not one that counts.
    #[error("the approval does not count: {0}")]
    Foreign(&'static str),
    /// The passphrase was wrong too often.
    #[error("the passphrase was wrong too often; it can be tried again in {0} s")]
    Slow(i64),
}

impl ApprovalError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::TooMany | Self::TooManyOfAgent => Some("stockade approvals list; each can be approved or denied"),
            Self::TooLong(_) => Some("put the text into a file and run that"),
            Self::NoRequest(_) | Self::Decided { .. } => Some("stockade approvals list"),
            Self::NoGrant(_) => Some("stockade grants list"),
            Self::NeedsCredential => Some("stockade approvals credential set"),
            Self::NoSession => Some("use --until instead"),
            Self::Tampered(_) => Some("deny it, and have it asked for again"),
            Self::Directory(_)
            | Self::Create(..)
            | Self::Database { .. }
            | Self::Newer { .. }
            | Self::Damaged { .. }
            | Self::NoRandom
            | Self::LongGrant(_)
            | Self::Carried(_)
            | Self::Foreign(_)
            | Self::Slow(_) => None,
        }
    }
}
