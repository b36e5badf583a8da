//! What a sandbox may reach beyond itself: hosts, and the secrets that are put in on the way to some of them.
//!
//! Only what was asked for; who holds to it is egress. Nothing listed means nothing is reached.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::credential::Delivery;
use crate::host::HostPattern;
use crate::route::{Method, PathPattern};
use crate::secret::SecretName;

/// What may be reached.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reach {
    /// The hosts.
    pub hosts: Vec<HostPattern>,
    /// The secrets, each with the hosts it may go to.
    pub secrets: Vec<SecretUse>,
    /// What becomes of everything else.
    pub unlisted: Unlisted,
    /// Hosts of models among them: what their answers say was used is counted.
    #[serde(default)]
    pub metered: Vec<HostPattern>,
    /// After so many tokens nothing more is asked of metered hosts.
    #[serde(default)]
    pub tokens: Option<u64>,
    /// Logins whose tokens are among the secrets.
    #[serde(default)]
    pub logins: Vec<Login>,
    /// What may be done at those hosts: sets of rules, each from one place. Where a set names a host, a request there must fit one of the
    /// rules that do. No rule allows a host.
    #[serde(default)]
    pub rules: Vec<Vec<HostUse>>,
    /// Bytes that may be sent in all.
    #[serde(default)]
    pub sent_bytes: Option<u64>,
    /// What a policy says about each request, for whoever lets requests out; nothing else reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<String>,
    /// What the call is, for whoever mints credentials for it: a capability, or how a program was started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub purpose: String,
}

/// A login: a file outside that holds tokens, which a server renews now and then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// The file, JSON.
    pub file: PathBuf,
    /// Its tokens.
    pub tokens: Vec<LoginToken>,
    /// Who renews them.
    pub hosts: Vec<HostPattern>,
    /// At which path.
    pub path: String,
    /// Where in the file it says until when the first is good, in milliseconds since 1970.
    pub expiry: Option<String>,
}

/// One token of a login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginToken {
    /// The secret that it is.
    pub secret: SecretName,
    /// Where in the file it stands (RFC 6901).
    pub pointer: String,
    /// What it is called in the answer that renews it.
    pub member: String,
}

/// What may be done at some of the allowed hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostUse {
    /// Which hosts.
    pub host: HostPattern,
    /// Which methods; empty: all. `HEAD` goes where `GET` goes.
    pub methods: Vec<Method>,
    /// Which paths; empty: all.
    pub paths: Vec<PathPattern>,
    /// What happens to TLS.
    pub tls: TlsUse,
}

/// What happens to TLS on its way to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsUse {
    /// It is opened.
    #[default]
    Inspect,
    /// It passes unopened after the check of the server name.
    Pass,
    /// Any bytes pass, TLS or not.
    Tunnel,
}

impl TlsUse {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Inspect, Self::Pass, Self::Tunnel];

    /// The word in settings.
    pub fn word(self) -> &'static str {
        match self {
            Self::Inspect => "inspect",
            Self::Pass => "pass",
            Self::Tunnel => "tunnel",
        }
    }
}

/// A secret and where it may go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretUse {
    /// Which, and the variable that holds its placeholder inside.
    pub name: SecretName,
    /// Where it may go; never empty.
    pub hosts: Vec<HostPattern>,
    /// How it appears inside; never empty.
    #[serde(default = "usual")]
    pub deliveries: Vec<Delivery>,
}

impl SecretUse {
    /// One that appears as most do: a placeholder in the variable of its name.
    pub fn usual(name: SecretName, hosts: Vec<HostPattern>) -> Self {
        Self { name, hosts, deliveries: usual() }
    }
}

fn usual() -> Vec<Delivery> {
    vec![Delivery::Variable]
}

/// What becomes of a host that no pattern names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unlisted {
    /// It is refused.
    #[default]
    Refuse,
    /// It is let through and written down, to make a list from.
    Learn,
}

impl Reach {
    /// Whether there is any way out at all.
    pub fn is_nothing(&self) -> bool {
        self.hosts.is_empty() && self.secrets.is_empty() && self.unlisted == Unlisted::Refuse
    }

    /// The ports that patterns name, in order, besides those of the web.
    pub fn ports(&self) -> Vec<u16> {
        let patterns = self.hosts.iter().chain(self.secrets.iter().flat_map(|secret| &secret.hosts));
        let mut ports: Vec<u16> = patterns.flat_map(HostPattern::ports).copied().collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_those_of_all_patterns() {
        let hosts = |list: &[&str]| list.iter().map(|text| HostPattern::parse(text).unwrap()).collect::<Vec<_>>();
        let token = SecretUse::usual("TOKEN".parse().unwrap(), hosts(&["b.example:8443", "127.0.0.1:3000"]));
        let reach = Reach { hosts: hosts(&["a.example", "127.0.0.1:3000"]), secrets: vec![token], ..Reach::default() };
        assert_eq!(reach.ports(), [80, 443, 3000, 8443]);
        assert!(!reach.is_nothing() && Reach::default().is_nothing() && Reach::default().ports().is_empty());
    }

    #[test]
    fn it_is_read_back_as_it_was_written() {
        let reach = Reach {
            hosts: vec![HostPattern::parse("*.example:8443").unwrap()],
            secrets: vec![SecretUse::usual("T".parse().unwrap(), vec![HostPattern::parse("127.0.0.1:1").unwrap()])],
            unlisted: Unlisted::Learn,
            metered: vec![HostPattern::parse("127.0.0.1:1").unwrap()],
            tokens: Some(7),
            logins: vec![Login {
                file: "/f".into(),
                tokens: vec![LoginToken { secret: "T".parse().unwrap(), pointer: "/a".into(), member: "m".into() }],
                hosts: Vec::new(),
                path: "/t".into(),
                expiry: None,
            }],
            rules: vec![vec![HostUse {
                host: HostPattern::parse("a.example").unwrap(),
                methods: vec![Method::parse("GET").unwrap()],
                paths: vec![PathPattern::parse("/a/**").unwrap()],
                tls: TlsUse::Inspect,
            }]],
            sent_bytes: Some(9),
            requests: Some("r".into()),
            purpose: "git.log".into(),
        };
        let text = serde_json::to_string(&reach).unwrap();
        assert_eq!(serde_json::from_str::<Reach>(&text).unwrap(), reach);
        for (good, bad) in [("*.example", "*.*"), ("GET", "get"), ("/a/**", "/a/../b"), ("inspect", "look")] {
            assert!(serde_json::from_str::<Reach>(&text.replace(good, bad)).is_err(), "{bad}");
        }
    }
}
