//! Who asks for what: the questions that policy answers.
//!
//! Everything here is data from outside. It becomes Cedar values one by one; no text of it is ever parsed as Cedar.

use crate::shell::Call;

/// What kind of principal asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PrincipalKind {
    /// A program that acts for somebody: `Agent::"<client>/<name>"`.
    Agent,
    /// A person at the command line: `Human::"<user>"`.
    Human,
}

impl PrincipalKind {
    /// The entity type without its namespace.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "Agent",
            Self::Human => "Human",
        }
    }
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// What it is.
    pub kind: PrincipalKind,
    /// Its name.
    pub id: String,
    /// The tenant it belongs to.
    pub tenant: Option<String>,
}

impl Principal {
    /// A person of this machine.
    pub fn human(user: impl Into<String>) -> Self {
        Self { kind: PrincipalKind::Human, id: user.into(), tenant: None }
    }

    /// An agent, as its client calls it.
    pub fn agent(name: impl Into<String>) -> Self {
        Self { kind: PrincipalKind::Agent, id: name.into(), tenant: None }
    }
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request<'a> {
    /// Run a program.
    Exec(&'a Call),
    /// Reach a host.
    Connect {
        /// Its name or address.
        host: &'a str,
        /// The port.
        port: u16,
        /// Whether the connection is TLS.
        tls: bool,
        /// The request's method, or nothing where only a connection is made.
        method: &'a str,
        /// The request's path, or nothing.
        path: &'a str,
        /// The secret that would be put in.
        secret: Option<&'a str>,
    },
    /// Read a file through a file tool.
    Read {
        /// The file.
        path: &'a str,
        /// The workspace.
        workspace: &'a str,
    },
    /// Write a file through a file tool.
    Write {
        /// The file.
        path: &'a str,
        /// The workspace.
        workspace: &'a str,
    },
}

impl Request<'_> {
    /// The action's id.
    pub(crate) fn action(&self) -> Action {
        match self {
            Self::Exec(_) => Action::Exec,
            Self::Connect { .. } => Action::Connect,
            Self::Read { .. } => Action::Read,
            Self::Write { .. } => Action::Write,
        }
    }

    /// The resource's entity type and id.
    pub(crate) fn resource(&self) -> (&'static str, &str) {
        match self {
            Self::Exec(call) => ("Program", &call.program),
            Self::Connect { host, .. } => ("Host", host),
            Self::Read { path, .. } | Self::Write { path, .. } => ("Path", path),
        }
    }
}

/// The actions of the schema that have a meaning of their own; every other one is a capability's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Action {
    /// Run a program.
    Exec,
    /// Reach a host.
    Connect,
    /// Read a file.
    Read,
    /// Write a file.
    Write,
    /// Approve a request.
    Approve,
}

impl Action {
    /// All of them.
    pub(crate) const ALL: [Self; 5] = [Self::Exec, Self::Connect, Self::Read, Self::Write, Self::Approve];

    /// The id in Cedar.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Connect => "connect",
            Self::Read => "read",
            Self::Write => "write",
            Self::Approve => "approve",
        }
    }
}
