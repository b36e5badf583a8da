//! The desk: where programs inside ask for what their tools need, on the proxy's own port, in requests that name no host outside.
//!
//! ```text
//! POST /git/NAME?action=get        a helper of git asks         ─▶ the placeholder
//! POST /docker/NAME?action=get     a helper of Docker asks      ─▶ the placeholder
//! POST /kubernetes/NAME            a plugin of kubectl asks     ─▶ the placeholder
//! GET  /computeMetadata/v1/…       a library of Google asks     ─▶ the placeholder
//! GET  /aws/NAME                   a library of Amazon asks     ─▶ THE VALUE, counted and recorded
//! POST /ssh                        git asks for a session       ─▶ bytes of one command at a host
//! ```
//!
//! Everything but the metadata, which libraries ask for without any, needs the token of the call. Only `/aws/` gives a value away, and only
//! where whoever made the desk says so: for tools that cannot have their requests signed anew outside ([`crate::aws`]).

mod metadata;
mod serve;
pub mod tools;

use std::net::Ipv4Addr;

use ::http::header::{self, HeaderValue};
use ::http::{Method, Response, StatusCode};

use crate::body::answer::AnswerBody;
use crate::error::EgressError;
use crate::sandbox::Sandbox;
use crate::secrets::binding::{Bound, Form, MAX_BINDINGS};
use crate::ssh::Use;
use metadata::Account;
pub(crate) use serve::{asked, is_metadata, serve};

/// Where the metadata server of Google's cloud is.
pub(crate) const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// Its port.
pub(crate) const METADATA_PORT: u16 = 80;
/// The shortest token.
const MIN_TOKEN: usize = 32;
/// The longest name of a user, account or scope.
const MAX_WORD: usize = 256;
/// The most scopes of one account.
const MAX_SCOPES: usize = 64;

/// What programs of one sandbox may ask for.
#[derive(Clone)]
pub struct Desk {
    /// Whoever asks must show this: made at random for each call, at least 32 characters.
    pub token: String,
    /// For what.
    pub entries: Vec<Entry>,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("entries", &self.entries).finish_non_exhaustive()
    }
}

/// One secret in the form one kind of tool asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Which, by its place in the sandbox's bindings.
    pub binding: usize,
    /// By whom.
    pub kind: Kind,
}

/// Who asks for a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// git's credential helper.
    Git {
        /// The user's name that goes with it.
        user: String,
    },
    /// Docker's credential helper.
    Docker {
        /// The user's name that goes with it.
        user: String,
    },
    /// kubectl's credential plugin.
    Kubernetes,
    /// Amazon's libraries, which get the value itself.
    AwsEndpoint,
    /// Google's libraries.
    GcpMetadata {
        /// The project, where it is known.
        project: Option<String>,
        /// The account's address.
        email: String,
        /// What the account is for.
        scopes: Vec<String>,
    },
    /// Git, which gets a session and nothing of the key.
    Ssh(Use),
}

impl Desk {
    /// Checks that all of it can be served, and notes which values are handed out.
    pub(crate) fn prepare(&self, bound: &mut [Bound]) -> Result<(), EgressError> {
        if self.token.len() < MIN_TOKEN || !self.token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(EgressError::DeskToken);
        }
        for (index, entry) in self.entries.iter().enumerate() {
            let bad = |why| EgressError::DeskEntry { index, why };
            if index >= MAX_BINDINGS {
                return Err(bad("there are too many"));
            }
            let secret = bound.get_mut(entry.binding).ok_or_else(|| bad("it is of a secret that is not bound"))?;
            match &entry.kind {
                Kind::AwsEndpoint => secret.handed_out = true,
                Kind::Ssh(how) if secret.form != Form::SshKey || how.known_hosts().is_none() || how.repositories.is_empty() => {
                    return Err(bad("a key for SSH needs keys of hosts, and repositories"));
                }
                Kind::Ssh(_) => {}
                _ if secret.form != Form::Plain => return Err(bad("keys of AWS or for SSH are not what this tool asks for")),
                Kind::Git { .. } | Kind::Docker { .. } | Kind::Kubernetes | Kind::GcpMetadata { .. } => {}
            }
            if !entry.kind.is_plain() {
                return Err(bad("a name in it is empty, too long, or not plain text"));
            }
        }
        Ok(())
    }

    fn has_metadata(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry.kind, Kind::GcpMetadata { .. }))
    }

    /// The entry for this tool, and its secret.
    fn entry<'a>(&'a self, sandbox: &'a Sandbox, tool: Tool, name: &str) -> Option<(&'a Kind, usize, &'a Bound)> {
        let entries = self.entries.iter().filter(|entry| Tool::of(&entry.kind) == Some(tool));
        let mut found = entries.filter_map(|entry| Some((&entry.kind, entry.binding, sandbox.bound.get(entry.binding)?)));
        found.find(|(_, _, bound)| *bound.name == *name)
    }

    fn accounts<'a>(&'a self, sandbox: &'a Sandbox) -> Vec<Account<'a>> {
        let accounts = self.entries.iter().filter_map(|entry| match &entry.kind {
            Kind::GcpMetadata { project, email, scopes } => {
                let placeholder = std::str::from_utf8(&sandbox.bound.get(entry.binding)?.placeholder).ok()?;
                Some(Account { project: project.as_deref(), email, scopes, placeholder })
            }
            Kind::Git { .. } | Kind::Docker { .. } | Kind::Kubernetes | Kind::AwsEndpoint | Kind::Ssh(_) => None,
        });
        accounts.collect()
    }
}

impl Kind {
    /// Whether its words can stand in a line of their own, in JSON, and in a path.
    fn is_plain(&self) -> bool {
        let word = |text: &str| (1..=MAX_WORD).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        let segment = |text: &str| word(text) && !text.contains('/') && text != "default";
        match self {
            Self::Git { user } | Self::Docker { user } => word(user),
            Self::Ssh(how) => word(&how.user),
            Self::Kubernetes | Self::AwsEndpoint => true,
            Self::GcpMetadata { project, email, scopes } => {
                project.as_deref().is_none_or(word)
                    && segment(email)
                    && scopes.len() <= MAX_SCOPES
                    && scopes.iter().all(|scope| word(scope))
            }
        }
    }
}

/// Who is named at the beginning of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    Aws,
    Git,
    Docker,
    Kubernetes,
}

impl Tool {
    fn of(kind: &Kind) -> Option<Self> {
        match kind {
            Kind::Git { .. } => Some(Self::Git),
            Kind::Docker { .. } => Some(Self::Docker),
            Kind::Kubernetes => Some(Self::Kubernetes),
            Kind::AwsEndpoint => Some(Self::Aws),
            Kind::GcpMetadata { .. } | Kind::Ssh(_) => None,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text {
            "aws" => Some(Self::Aws),
            "git" => Some(Self::Git),
            "docker" => Some(Self::Docker),
            "kubernetes" => Some(Self::Kubernetes),
            _ => None,
        }
    }

    fn method(self) -> Method {
        match self {
            Self::Aws => Method::GET,
            Self::Git | Self::Docker | Self::Kubernetes => Method::POST,
        }
    }
}

/// An answer in the making.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// What the body is.
    pub kind: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(status: StatusCode, text: impl Into<Vec<u8>>) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: text.into() }
    }

    pub(crate) fn json(value: &serde_json::Value) -> Self {
        Self { status: StatusCode::OK, kind: "application/json", body: value.to_string().into_bytes() }
    }

    pub(crate) fn nothing() -> Self {
        Self::text(StatusCode::NOT_FOUND, "stockade: there is nothing here\n")
    }

    fn wrong_method() -> Self {
        Self::text(StatusCode::METHOD_NOT_ALLOWED, "stockade: this is asked for with another method\n")
    }

    fn into_response(self) -> Response<AnswerBody> {
        let mut answer = Response::new(AnswerBody::text(self.body));
        *answer.status_mut() = self.status;
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
        answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        answer
    }
}
