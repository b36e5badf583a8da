//! Who asks for what: the questions that policy answers.
//!
//! Everything here is data from outside. It becomes Cedar values one by one; no text of it is ever parsed as Cedar.

use crate::capability::Invocation;
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

    /// As rules write it.
    pub fn named(&self) -> String {
        format!("{}::{:?}", self.kind.name(), self.id)
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
    /// Call a capability.
    Invoke(&'a Invocation<'a>),
    /// Approve what somebody asks for.
    Approve {
        /// What they ask for.
        of: &'a Request<'a>,
        /// Who asks.
        requester: &'a Principal,
        /// What it does: `read`, `write` or `destructive`.
        effect: &'a str,
        /// How whoever approves would show who they are.
        method: &'a str,
    },
}

impl Request<'_> {
    /// Which action it is.
    pub(crate) fn action(&self) -> Action {
        match self {
            Self::Exec(_) => Action::Exec,
            Self::Connect { .. } => Action::Connect,
            Self::Read { .. } => Action::Read,
            Self::Write { .. } => Action::Write,
            Self::Invoke(_) => Action::Invoke,
            Self::Approve { .. } => Action::Approve,
        }
    }

    /// The action's id in Cedar: every capability is an action of its own.
    pub(crate) fn action_id(&self) -> &str {
        match self {
            Self::Invoke(invocation) => invocation.capability.name.as_str(),
            Self::Exec(_) | Self::Connect { .. } | Self::Read { .. } | Self::Write { .. } | Self::Approve { .. } => self.action().id(),
        }
    }

    /// The resource's entity type and id.
    pub(crate) fn resource(&self) -> (&'static str, &str) {
        match self {
            Self::Exec(call) => ("Program", &call.program),
            Self::Connect { host, .. } => ("Host", host),
            Self::Read { path, .. } | Self::Write { path, .. } => ("Path", path),
            Self::Invoke(invocation) => ("Capability", invocation.capability.name.as_str()),
            Self::Approve { of, .. } => of.resource(),
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
    /// Call any capability; each has an id of its own in this group.
    Invoke,
}

impl Action {
    /// Those that are there whatever packs there are.
    pub(crate) const FIXED: [Self; 5] = [Self::Exec, Self::Connect, Self::Read, Self::Write, Self::Approve];

    /// The id in Cedar.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Connect => "connect",
            Self::Read => "read",
            Self::Write => "write",
            Self::Approve => "approve",
            Self::Invoke => "invoke",
        }
    }
}
