//! What can fail when egress is set up or told of a sandbox. What is refused later is in `refusal`.

use std::io;
use std::path::PathBuf;

use crate::secrets::binding::MAX_BINDINGS;
use crate::tls::trust::MAX_TRUSTED;

/// A step that failed.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// The directory of the authority cannot be made or looked at.
    #[error("cannot use the directory `{path}` of the certificate authority")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The authority's file cannot be read or written.
    #[error("cannot use the certificate authority in `{path}`")]
    AuthorityFile {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others could read the authority's key.
    #[error("the key of the certificate authority in `{path}` can be read by others; remove the file, a new one is made")]
    AuthorityOpen {
        /// The file.
        path: PathBuf,
    },
    /// The authority's file holds something else.
    #[error("`{path}` holds no certificate authority; remove the file, a new one is made")]
    AuthorityBroken {
        /// The file.
        path: PathBuf,
    },
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(String),
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The machine trusts no authority, so nothing can be verified.
    #[error("this machine has no root certificates; install the package `ca-certificates`")]
    NoRoots,
    /// The machine's resolver settings cannot be read.
    #[error("cannot read the machine's resolver settings: {0}")]
    Resolver(String),
    /// A placeholder that could be ordinary text.
    #[error("the placeholder of the secret `{name}` is shorter than 16 characters, or not plain text")]
    Placeholder {
        /// The secret.
        name: String,
    },
    /// More secrets than one sandbox may have.
    #[error("a sandbox may have at most {MAX_BINDINGS} secrets")]
    TooManyBindings,
    /// Two secrets with one name, or placeholders that hold each other.
    #[error("the secrets `{first}` and `{second}` cannot be told apart")]
    AmbiguousBindings {
        /// One.
        first: String,
        /// The other.
        second: String,
    },
    /// More lists of authorities than one sandbox may have.
    #[error("a sandbox may have at most {MAX_TRUSTED} lists of authorities")]
    TooManyAuthorities,
    /// What was to be trusted for a host is no certificate of an authority.
    #[error("what is to be trusted for `{host}` is no certificate of an authority")]
    Authority {
        /// The host.
        host: String,
    },
    /// The desk's token could be guessed.
    #[error("the token of the desk is shorter than 32 characters, or not plain text")]
    DeskToken,
    /// An entry of the desk that cannot be served.
    #[error("the desk cannot serve its entry {index}: {why}")]
    DeskEntry {
        /// Which.
        index: usize,
        /// Why.
        why: &'static str,
    },
    /// A key of the agent that cannot be served.
    #[error("the agent cannot serve its key {index}: {why}")]
    AgentEntry {
        /// Which.
        index: usize,
        /// Why.
        why: &'static str,
    },
    /// A sandbox of this id is known already.
    #[error("the sandbox `{0}` is known to egress already")]
    Known(String),
    /// Neither threads nor a runtime can be had.
    #[error("cannot start threads that serve")]
    Runtime(#[source] io::Error),
    /// What was decided cannot be written down.
    #[error("cannot keep the record of what goes out")]
    Record(#[source] io::Error),
    /// The socket over which a sandbox passes its connections cannot be used.
    #[error("cannot use the sandbox's socket")]
    Socket(#[source] io::Error),
}
