//! Why the door cannot open at all.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why there is no server. What a request did wrong is a [`crate::Refusal`].
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Others could listen in.
    #[error("`{0}` can be reached from other machines, and without TLS only loopback is served")]
    NotLoopback(SocketAddr),
    /// The address is taken, or not ours.
    #[error("cannot listen on `{0}`")]
    Listen(SocketAddr, #[source] io::Error),
    /// The directory of the token cannot be made private.
    #[error("the directory of the token cannot be used")]
    Directory(#[source] stockade_private_dir::PrivateDirError),
    /// The file of the token.
    #[error("cannot {verb} the token's file `{}`", .path.display())]
    File {
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// What is in it makes no sense, or others can read it.
    #[error("the token's file `{}` is damaged: {why}", .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// No random numbers.
    #[error("the system gives no random numbers")]
    NoRandom,
    /// A certificate or its key cannot be read.
    #[error("cannot read `{}`", .0.display())]
    Pem(PathBuf, #[source] io::Error),
    /// It is not what it should be.
    #[error("`{}` has no {what}: {why}", .path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
        /// Why it is none.
        why: String,
    },
    /// The two do not fit together.
    #[error("the certificate and the key cannot be used")]
    Tls(#[source] rustls::Error),
}

impl HttpError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotLoopback(_) => Some("listen on 127.0.0.1, or give --tls-cert and --tls-key"),
            Self::Form { .. } => Some("stockade serve --new-token makes another"),
            Self::Listen(..)
            | Self::Directory(_)
            | Self::File { .. }
            | Self::NoRandom
            | Self::Pem(..)
            | Self::Certificate { .. }
            | Self::Tls(_) => None,
        }
    }
}
