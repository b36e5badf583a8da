//! Why something did not go out, in words for the program inside: a sentence, the rule, the narrowest change that would allow it.
//!
//! Owns every refusal there is. What is written here reaches the sandbox, so it never holds a secret's value nor more of the host
//! than the request itself named.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use stockade_core::escape::escape;
use stockade_core::host::{HostName, HostPattern};

use crate::address::AddressClass;
use crate::agent::policy::Unfit;
use crate::http::head::Shape;

/// Where servers of SSH listen.
const SSH_PORT: u16 = 22;
/// The check that keeps a secret to its hosts.
pub(crate) const SECRET_HOST: &str = "secret-host";
/// The checks of the agent, and the rule that lets a login through.
pub(crate) const SSH_AGENT: &str = "ssh-agent";

/// Why something was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No pattern matches.
    #[error("`{host}:{port}` is not an allowed host")]
    Host {
        /// The host.
        host: HostName,
        /// The port.
        port: u16,
    },
    /// The host is allowed, but not this method there.
    #[error("`{method}` is not an allowed method on `{host}`")]
    Method {
        /// The host.
        host: HostName,
        /// The method.
        method: String,
        /// The pattern that let the host through.
        rule: String,
    },
    /// The host is allowed, but not this path there.
    #[error("`{path}` is not an allowed path on `{host}`")]
    Path {
        /// The host.
        host: HostName,
        /// The path, cut.
        path: String,
        /// The pattern that let the host through.
        rule: String,
    },
    /// What was named is no host.
    #[error("{0}")]
    BadHost(String),
    /// The name leads to an address that is not on the internet.
    #[error("`{host}` leads to {address}, which is a {class} address")]
    Address {
        /// The host.
        host: HostName,
        /// The first address it leads to.
        address: IpAddr,
        /// The port.
        port: u16,
        /// Its class.
        class: AddressClass,
    },
    /// Two places that must name one host name two.
    #[error("the {first_place} is `{first}` but the {second_place} is `{second}`: they must be one host")]
    NamesDiffer {
        /// Where the first was named.
        first_place: &'static str,
        /// What it names.
        first: String,
        /// Where the second was named.
        second_place: &'static str,
        /// What it names.
        second: String,
    },
    /// The request could be read in two ways.
    #[error("the request is malformed: {0}")]
    Shape(Shape),
    /// A limit was reached.
    #[error("the limit of {what} is reached")]
    Limit {
        /// What is limited, and to how much.
        what: String,
    },
    /// A placeholder was on its way to a host that its secret is not for.
    #[error("the secret `{name}` is not for `{}`", HostPattern::exactly(host, *port))]
    SecretElsewhere {
        /// The secret's name.
        name: Arc<str>,
        /// The host.
        host: HostName,
        /// The port.
        port: u16,
    },
    /// A secret would travel where everybody can read it.
    #[error("the secret `{name}` does not go to `{host}` over plain HTTP")]
    SecretInTheOpen {
        /// The secret's name.
        name: Arc<str>,
        /// The host.
        host: HostName,
    },
    /// Tools of a server that anybody on the way could replace.
    #[error("servers of tools (MCP) on `{host}` are reached over HTTPS only")]
    ToolsInTheOpen {
        /// The host.
        host: HostName,
    },
    /// A rule about requests says no.
    #[error("{why}")]
    Policy {
        /// The rule.
        rule: String,
        /// In words.
        why: String,
    },
    /// There is no value now.
    #[error("the secret `{name}` cannot be had: {why}")]
    SecretUnavailable {
        /// The secret's name.
        name: Arc<str>,
        /// Why, without its value.
        why: String,
    },
    /// Its budget is used up.
    #[error("the secret `{name}` {what}")]
    SecretSpent {
        /// The secret's name.
        name: Arc<str>,
        /// What is used up.
        what: &'static str,
    },
    /// A request that was signed inside and cannot be signed anew.
    #[error("the request cannot be signed with the secret `{name}`: {why}")]
    Signature {
        /// The secret's name.
        name: Arc<str>,
        /// Why, and what to change.
        why: &'static str,
    },
    /// The desk does not answer this.
    #[error("{0}")]
    Desk(&'static str),
    /// The agent does not sign this.
    #[error("{why}")]
    SshAgent {
        /// The secret's name, where it is known which.
        name: Option<Arc<str>>,
        /// Why.
        why: Unfit,
    },
    /// A session of SSH that may not be, or an end of it that is not who it should be.
    #[error("{why}")]
    Ssh {
        /// The check.
        rule: &'static str,
        /// In words.
        why: String,
    },
    /// Bytes that are neither TLS nor HTTP.
    #[error("only HTTP and TLS may go to `{host}:{port}`")]
    Protocol {
        /// The host.
        host: HostName,
        /// The port.
        port: u16,
    },
    /// Git over SSH to a host that nothing names.
    #[error("`{host}:{port}` is not an allowed host")]
    SshHost {
        /// The host.
        host: HostName,
        /// The port.
        port: u16,
    },
    /// SSH as it is, where no key of the agent is for the host: it could be asked for anything, unseen.
    #[error("SSH does not go to `{host}:{port}` as it is: git does, with a secret whose `delivery` is `ssh`")]
    PlainSsh {
        /// The host.
        host: HostName,
        /// The port.
        port: u16,
    },
    /// A client that waits for the server to speak first.
    #[error("nothing was said to `{host}:{port}` for {} seconds: only HTTP and TLS may go there, and their clients speak first", waited.as_secs())]
    Silent {
        /// The host.
        host: HostName,
        /// The port.
        port: u16,
        /// How long it was waited for.
        waited: Duration,
    },
    /// A TLS client hello that cannot be read, or names nobody.
    #[error("the TLS handshake {0}")]
    Hello(&'static str),
    /// A connection to an address that belongs to no name.
    #[error("{address}:{port} belongs to no allowed name")]
    NoName {
        /// The address.
        address: IpAddr,
        /// The port.
        port: u16,
    },
    /// The proxy was asked for something it does not do.
    #[error("the proxy does not do that: {0}")]
    Unsupported(&'static str),
    /// The answer cannot be searched for secrets, so it is not passed on.
    #[error("the answer is in the encoding `{0}`, which cannot be searched for secrets")]
    Encoding(String),
    /// The host cannot be reached; nobody refused it.
    #[error("`{host}:{port}` cannot be reached: {why}")]
    Unreachable {
        /// The host.
        host: HostName,
        /// The port.
        port: u16,
        /// Why.
        why: String,
    },
    /// Nobody keeps the record any more.
    #[error("nobody keeps the record of what goes out any more")]
    NoRecord,
}

impl Refusal {
    /// The name of the rule or check that refused.
    pub fn rule(&self) -> String {
        match self {
            Self::Host { .. } | Self::SshHost { .. } | Self::NoName { .. } => "allow-host",
            Self::Method { rule, .. } | Self::Path { rule, .. } | Self::Policy { rule, .. } => rule,
            Self::BadHost(_) => "host-form",
            Self::Address { .. } => "address-class",
            Self::NamesDiffer { .. } => "one-host",
            Self::Shape(_) => "request-form",
            Self::Limit { .. } => "limit",
            Self::SecretElsewhere { .. } => SECRET_HOST,
            Self::SecretInTheOpen { .. } => "secret-plain-http",
            Self::ToolsInTheOpen { .. } => "mcp-plain-http",
            Self::SecretUnavailable { .. } => "secret-value",
            Self::SecretSpent { .. } => "secret-budget",
            Self::Signature { .. } => "aws-signature",
            Self::Desk(_) => "desk",
            Self::SshAgent { .. } => SSH_AGENT,
            Self::Ssh { rule, .. } => rule,
            Self::Protocol { .. } | Self::PlainSsh { .. } | Self::Silent { .. } => "protocol",
            Self::Hello(_) => "tls-hello",
            Self::Unsupported(_) => "proxy",
            Self::Encoding(_) => "scrub",
            Self::Unreachable { .. } => "reach",
            Self::NoRecord => "record",
        }
        .to_owned()
    }

    /// The narrowest change that would allow it, as a flag, where one does.
    pub fn change(&self) -> Option<String> {
        match self {
            // To have the port of SSH allowed would lead nowhere: a key is what lets git through.
            Self::Host { host, port: port @ SSH_PORT } | Self::SshHost { host, port } | Self::PlainSsh { host, port } => {
                Some(format!("--secret NAME@{}", HostPattern::exactly(host, *port)))
            }
            Self::Host { host, port } => Some(format!("--allow-host {}", HostPattern::exactly(host, *port))),
            Self::Address { address, port, .. } => {
                Some(format!("--allow-host {}", HostPattern::exactly(&HostName::Address(*address), *port)))
            }
            Self::SecretElsewhere { name, host, port } => Some(format!("--secret {name}@{}", HostPattern::exactly(host, *port))),
            _ => None,
        }
    }

    /// The status of the answer: 403 where we refused, 400 where the request is broken, 502 where the world is.
    pub fn status(&self) -> ::http::StatusCode {
        match self {
            Self::Shape(_) => ::http::StatusCode::BAD_REQUEST,
            Self::Unsupported(_) => ::http::StatusCode::NOT_IMPLEMENTED,
            Self::Encoding(_) | Self::SecretUnavailable { .. } | Self::Unreachable { .. } => ::http::StatusCode::BAD_GATEWAY,
            Self::NoRecord => ::http::StatusCode::SERVICE_UNAVAILABLE,
            Self::Limit { .. } => ::http::StatusCode::TOO_MANY_REQUESTS,
            _ => ::http::StatusCode::FORBIDDEN,
        }
    }

    /// The secret it is about.
    pub fn secret(&self) -> Option<&Arc<str>> {
        match self {
            Self::SecretElsewhere { name, .. }
            | Self::SecretInTheOpen { name, .. }
            | Self::SecretUnavailable { name, .. }
            | Self::Signature { name, .. }
            | Self::SecretSpent { name, .. } => Some(name),
            Self::SshAgent { name, .. } => name.as_ref(),
            _ => None,
        }
    }

    /// Whether it says that the sandbox may not, so that learning lets it pass. What protects others, or secrets, is never learnt.
    pub fn is_learnable(&self) -> bool {
        matches!(self, Self::Host { .. } | Self::Method { .. } | Self::Path { .. })
    }

    /// The answer's text.
    pub fn page(&self) -> String {
        let verb = match self {
            Self::Unreachable { .. } => "could not do",
            _ => "refused",
        };
        let mut page = format!("stockade {verb} this request: {}\nrule: {}\n", escape(&self.to_string()), self.rule());
        if let Some(change) = self.change() {
            page.push_str("to allow it: ");
            page.push_str(&change);
            page.push('\n');
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_the_rule_and_the_narrowest_change() {
        let host = HostName::parse("api.example.com").unwrap();
        let refusal = Refusal::Host { host: host.clone(), port: 443 };
        assert_eq!(
            refusal.page(),
            "stockade refused this request: `api.example.com:443` is not an allowed host\nrule: allow-host\nto allow it: --allow-host api.example.com\n"
        );
        assert_eq!(Refusal::Host { host: host.clone(), port: 8443 }.change().unwrap(), "--allow-host api.example.com:8443");
        let secret = |port| Refusal::SecretElsewhere { name: "TOKEN".into(), host: host.clone(), port };
        assert_eq!(secret(443).page().lines().last(), Some("to allow it: --secret TOKEN@api.example.com"));
        assert_eq!(secret(7101).change().unwrap(), "--secret TOKEN@api.example.com:7101");
        assert_eq!(secret(7101).to_string(), "the secret `TOKEN` is not for `api.example.com:7101`");
        for (refusal, flag) in [
            (Refusal::Host { host: host.clone(), port: 22 }, "--secret NAME@api.example.com:22"),
            (Refusal::SshHost { host: host.clone(), port: 2222 }, "--secret NAME@api.example.com:2222"),
            (Refusal::PlainSsh { host: host.clone(), port: 2222 }, "--secret NAME@api.example.com:2222"),
        ] {
            assert_eq!(refusal.change().as_deref(), Some(flag));
        }
        let address = Refusal::Address { host, address: "10.0.0.1".parse().unwrap(), port: 8080, class: AddressClass::Private };
        assert_eq!(address.change().unwrap(), "--allow-host 10.0.0.1:8080");
    }
}
