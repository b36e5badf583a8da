//! What one sandbox may reach: host patterns, methods and paths, how TLS is treated, and limits. Pure: no I/O, no clock.
//!
//! An empty list of hosts allows nothing. Several rules may name one host: a request goes if any of them allows it. Sets of narrower rules
//! take away from that and never add: where one names a host, a request there must fit one of its rules as well.

pub mod judge;
pub mod learn;
pub use stockade_core::route as path;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use stockade_core::host::{HostName, HostPattern};
use stockade_core::reach::{HostUse, Reach, TlsUse, Unlisted};

use crate::agent;
use crate::exchange::Exchange;
use crate::refusal::Refusal;
use judge::Judge;
use path::PathPattern;

/// The longest path shown in a refusal.
const SHOWN_PATH: usize = 200;

/// What a sandbox may reach.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The hosts; none means nothing.
    pub hosts: Vec<HostRule>,
    /// What may be done at some of them, by where it was written. Also says how their TLS is treated.
    pub narrower: Vec<Vec<HostRule>>,
    /// Whether the rules hold or are being learnt.
    pub mode: Mode,
    /// How much.
    pub limits: Limits,
    /// Hosts of models, whose answers say how much of them was used.
    pub metered: Vec<HostPattern>,
    /// Where servers hand out new tokens.
    pub exchanges: Vec<Exchange>,
    /// Who else is asked about each request.
    pub judge: Option<Arc<dyn Judge>>,
    /// Keys that programs log in with over SSH, by way of the agent.
    pub agent: Vec<agent::Entry>,
    /// Authorities that these hosts' certificates may also come from; no other host's.
    pub trust: Vec<(HostPattern, Vec<CertificateDer<'static>>)>,
}

/// Whether what no rule allows is refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// It is refused.
    #[default]
    Enforce,
    /// It goes and is recorded. Address classes, secrets and the form of requests are held to all the same.
    Learn,
}

/// One allowed host, or many.
#[derive(Debug, Clone)]
pub struct HostRule {
    /// Which host and port. An address here also grants an address that is not on the internet.
    pub pattern: HostPattern,
    /// Which methods.
    pub methods: Methods,
    /// Which paths.
    pub paths: Paths,
    /// Whether TLS is opened.
    pub tls: Tls,
}

/// Allowed methods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Methods {
    /// All of them.
    #[default]
    Any,
    /// These only; HEAD goes where GET goes.
    Only(Vec<::http::Method>),
}

/// Allowed paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Paths {
    /// All of them.
    #[default]
    Any,
    /// These only.
    Only(Vec<PathPattern>),
}

/// Whether connections to a host are opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tls {
    /// Opened: only so can the request's own host be held to the connection's, and methods, paths and secrets be seen.
    #[default]
    Inspect,
    /// Passed on unopened after the check of the server name, unless a secret or a method or path rule needs to see inside.
    Pass,
    /// Any bytes, TLS or not: for databases and the like.
    Tunnel,
}

/// Bounds on what a sandbox may do to the network and to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at one time.
    pub connections: usize,
    /// Requests in a second, averaged; twice as many may come at once.
    pub requests_per_second: u32,
    /// Bytes of one request's head.
    pub head_bytes: usize,
    /// Bytes of one request's body.
    pub body_bytes: u64,
    /// Bytes sent outside over the sandbox's life: bodies, heads and tunnels.
    pub sent_bytes: u64,
    /// How long a connection may be silent.
    pub idle: Duration,
    /// Tokens that metered hosts may say were used; then no more is asked of them. With such a limit they are spoken to only in ways in
    /// which they say it.
    pub tokens: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            requests_per_second: 10_000,
            head_bytes: 64 << 10,
            body_bytes: u64::MAX,
            sent_bytes: u64::MAX,
            idle: Duration::from_mins(10),
            tokens: None,
        }
    }
}

impl HostRule {
    /// Everything on these hosts.
    pub fn allow(pattern: HostPattern) -> Self {
        Self { pattern, methods: Methods::Any, paths: Paths::Any, tls: Tls::default() }
    }

    /// As they are written, for events.
    pub fn name(&self) -> String {
        self.pattern.to_string()
    }

    fn is_narrow(&self) -> bool {
        self.methods != Methods::Any || self.paths != Paths::Any
    }

    fn looks_inside(&self) -> bool {
        self.is_narrow() || self.tls == Tls::Inspect
    }
}

/// The rule of a list that allows a request; `None` where no rule names the host.
fn judge<'a>(
    list: &'a [HostRule],
    host: &HostName,
    port: u16,
    method: &::http::Method,
    path: &str,
) -> Option<Result<&'a HostRule, Refusal>> {
    let (mut first, mut method_fits) = (None, false);
    for rule in list.iter().filter(|rule| rule.pattern.matches(host, port)) {
        first.get_or_insert(rule);
        if rule.methods.allows(method) {
            method_fits = true;
            if rule.paths.allows(path) {
                return Some(Ok(rule));
            }
        }
    }
    let (host, rule) = (host.clone(), first?.name());
    Some(Err(if method_fits {
        Refusal::Path { host, path: path.chars().take(SHOWN_PATH).collect(), rule }
    } else {
        Refusal::Method { host, method: method.to_string(), rule }
    }))
}

impl Rules {
    /// Allows these hosts wholly.
    pub fn of_hosts(hosts: impl IntoIterator<Item = HostPattern>) -> Self {
        Self { hosts: hosts.into_iter().map(HostRule::allow).collect(), ..Self::default() }
    }

    /// Whether the answers of this host say how much of a model was used.
    pub fn meters(&self, host: &HostName, port: u16) -> bool {
        self.metered.iter().any(|pattern| pattern.matches(host, port))
    }

    /// The exchange of tokens that a request to this place is.
    pub(crate) fn exchange(&self, host: &HostName, port: u16, path: &str) -> Option<&Exchange> {
        self.exchanges.iter().find(|exchange| exchange.is_at(host, port, path))
    }

    /// Whether a body to this place may carry a secret: one that can be exchanged at this host goes to that exchange and to no other path.
    pub(crate) fn may_be_sent(&self, secret: &str, host: &HostName, port: u16, path: &str) -> bool {
        let here = |exchange: &&Exchange| exchange.hosts.iter().any(|pattern| pattern.matches(host, port));
        let of_it = |exchange: &&Exchange| exchange.tokens.iter().any(|(_, name)| name == secret);
        let mut exchanges = self.exchanges.iter().filter(here).filter(of_it).peekable();
        exchanges.peek().is_none() || exchanges.any(|exchange| exchange.path == path)
    }

    /// What a sandbox was given to reach.
    pub fn of_reach(reach: &Reach) -> Self {
        let mode = match reach.unlisted {
            Unlisted::Refuse => Mode::Enforce,
            Unlisted::Learn => Mode::Learn,
        };
        let limits = Limits { sent_bytes: reach.sent_bytes.unwrap_or(u64::MAX), tokens: reach.tokens, ..Limits::default() };
        let narrower = reach.rules.iter().map(|set| set.iter().map(HostRule::from).collect()).collect();
        Self { narrower, mode, limits, metered: reach.metered.clone(), ..Self::of_hosts(reach.hosts.iter().cloned()) }
    }

    /// The first rule that names this host and port.
    pub fn connect(&self, host: &HostName, port: u16) -> Result<&HostRule, Refusal> {
        let rule = self.hosts.iter().find(|rule| rule.pattern.matches(host, port));
        rule.ok_or_else(|| Refusal::Host { host: host.clone(), port })
    }

    /// Whether a name may be asked for, at whatever port.
    pub fn knows(&self, host: &HostName) -> bool {
        self.hosts.iter().any(|rule| rule.pattern.matches_host(host))
    }

    /// The rule that allows this request.
    pub fn request(&self, host: &HostName, port: u16, method: &::http::Method, path: &str) -> Result<&HostRule, Refusal> {
        let nobody = || Err(Refusal::Host { host: host.clone(), port });
        let allowed = judge(&self.hosts, host, port, method, path).unwrap_or_else(nobody)?;
        for set in &self.narrower {
            judge(set, host, port, method, path).transpose()?;
        }
        Ok(allowed)
    }

    /// How connections to this host are treated. `Tunnel` and `Pass` give way to any rule that has to see inside; where something is
    /// written of the use of a host, that counts.
    pub fn treatment(&self, host: &HostName, port: u16) -> Tls {
        if self.judge.is_some() {
            return Tls::Inspect;
        }
        let names_it = |rule: &&HostRule| rule.pattern.matches(host, port);
        let mut treatment = None;
        for rule in self.narrower.iter().flatten().filter(names_it) {
            if rule.looks_inside() {
                return Tls::Inspect;
            }
            treatment.get_or_insert(rule.tls);
        }
        let written = treatment.is_some();
        for rule in self.hosts.iter().filter(names_it) {
            if rule.is_narrow() || (!written && rule.looks_inside()) {
                return Tls::Inspect;
            }
            treatment.get_or_insert(rule.tls);
        }
        treatment.unwrap_or_default()
    }

    /// Whether somebody wrote this very address with this port.
    pub fn grants_address(&self, address: IpAddr, port: u16) -> bool {
        let host = HostName::Address(address);
        self.hosts.iter().any(|rule| rule.pattern.granted_address().is_some() && rule.pattern.matches(&host, port))
    }
}

impl From<&HostUse> for HostRule {
    fn from(written: &HostUse) -> Self {
        // A method that hyper could not send is none that could be asked for.
        let methods = written.methods.iter().filter_map(|method| ::http::Method::from_bytes(method.as_str().as_bytes()).ok());
        Self {
            pattern: written.host.clone(),
            methods: if written.methods.is_empty() { Methods::Any } else { Methods::Only(methods.collect()) },
            paths: if written.paths.is_empty() { Paths::Any } else { Paths::Only(written.paths.clone()) },
            tls: match written.tls {
                TlsUse::Inspect => Tls::Inspect,
                TlsUse::Pass => Tls::Pass,
                TlsUse::Tunnel => Tls::Tunnel,
            },
        }
    }
}

impl Methods {
    fn allows(&self, method: &::http::Method) -> bool {
        match self {
            Self::Any => true,
            Self::Only(list) => list.contains(method) || (method == ::http::Method::HEAD && list.contains(&::http::Method::GET)),
        }
    }
}

impl Paths {
    fn allows(&self, path: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Only(list) => path::segments(path).is_some_and(|segments| list.iter().any(|pattern| pattern.matches(&segments))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(pattern: &str, methods: &[::http::Method], paths: &[&str], tls: Tls) -> HostRule {
        HostRule {
            pattern: HostPattern::parse(pattern).unwrap(),
            methods: if methods.is_empty() { Methods::Any } else { Methods::Only(methods.to_vec()) },
            paths: if paths.is_empty() {
                Paths::Any
            } else {
                Paths::Only(paths.iter().map(|text| PathPattern::parse(text).unwrap()).collect())
            },
            tls,
        }
    }

    #[test]
    fn requests_are_judged_by_host_method_and_path() {
        use ::http::Method;
        let rules = Rules {
            hosts: vec![
                rule("api.example", &[Method::GET], &[], Tls::Inspect),
                rule("api.example", &[Method::POST], &["/repos/acme/**"], Tls::Inspect),
                rule("*.cdn.example:8443", &[], &[], Tls::Pass),
            ],
            ..Rules::default()
        };
        for (host, port, method, path, expected) in [
            ("api.example", 443, Method::GET, "/x", "ok"),
            ("api.example", 443, Method::HEAD, "/x", "ok"),
            ("api.example", 443, Method::POST, "/repos/acme/a/issues", "ok"),
            ("api.example", 443, Method::POST, "/repos/other/a", "path"),
            ("api.example", 443, Method::POST, "/repos/acme/../other", "path"),
            ("api.example", 443, Method::POST, "/repos/acme/%2e%2e/other", "path"),
            ("api.example", 443, Method::DELETE, "/repos/acme/a", "method"),
            ("api.example", 8080, Method::GET, "/x", "host"),
            ("a.cdn.example", 8443, Method::DELETE, "/", "ok"),
            ("cdn.example", 8443, Method::GET, "/", "host"),
            ("other.example", 443, Method::GET, "/", "host"),
        ] {
            let host = HostName::parse(host).unwrap();
            let verdict = match rules.request(&host, port, &method, path) {
                Ok(_) => "ok",
                Err(Refusal::Host { .. }) => "host",
                Err(Refusal::Method { .. }) => "method",
                Err(Refusal::Path { .. }) => "path",
                Err(_) => "other",
            };
            assert_eq!(verdict, expected, "{host}:{port} {method} {path}");
        }
        assert!(Rules::default().request(&HostName::parse("a.example").unwrap(), 443, &Method::GET, "/").is_err());
    }

    #[test]
    fn narrower_rules_take_away_and_never_add() {
        use ::http::Method;
        let rules = Rules {
            hosts: vec![HostRule::allow(HostPattern::parse("*.example").unwrap())],
            narrower: vec![
                vec![rule("api.example", &[Method::GET], &[], Tls::Inspect), rule("api.example", &[Method::PUT], &["/a/**"], Tls::Inspect)],
                vec![rule("*.example", &[], &["/a/**", "/b"], Tls::Inspect), rule("other.test", &[], &[], Tls::Inspect)],
            ],
            ..Rules::default()
        };
        for (host, method, path, goes) in [
            ("api.example", Method::GET, "/a/x", true),
            ("api.example", Method::GET, "/b", true),
            ("api.example", Method::GET, "/c", false),
            ("api.example", Method::PUT, "/a", true),
            ("api.example", Method::PUT, "/b", false),
            ("api.example", Method::POST, "/a", false),
            ("www.example", Method::POST, "/a", true),
            ("www.example", Method::POST, "/c", false),
            ("other.test", Method::GET, "/", false),
        ] {
            let host = HostName::parse(host).unwrap();
            assert_eq!(rules.request(&host, 443, &method, path).is_ok(), goes, "{host} {method} {path}");
        }
    }

    #[test]
    fn passing_gives_way_to_rules_that_look_inside() {
        let rules = Rules {
            hosts: vec![
                rule("a.example", &[], &[], Tls::Pass),
                rule("b.example", &[], &[], Tls::Pass),
                rule("b.example", &[::http::Method::GET], &[], Tls::Pass),
                rule("10.0.0.1:5432", &[], &[], Tls::Tunnel),
            ],
            ..Rules::default()
        };
        let treatment = |host: &str, port| rules.treatment(&HostName::parse(host).unwrap(), port);
        assert_eq!(treatment("a.example", 443), Tls::Pass);
        assert_eq!(treatment("b.example", 443), Tls::Inspect);
        assert_eq!(treatment("10.0.0.1", 5432), Tls::Tunnel);
        assert_eq!(treatment("c.example", 443), Tls::Inspect);
        // What is written of a host's use counts, unless the host itself is allowed only in part.
        let narrower = vec![vec![rule("c.example", &[], &[], Tls::Pass), rule("b.example", &[], &[], Tls::Pass)]];
        let plain = HostRule::allow(HostPattern::parse("c.example").unwrap());
        let rules = Rules { hosts: rules.hosts.into_iter().chain([plain]).collect(), narrower, ..Rules::default() };
        let treatment = |host: &str| rules.treatment(&HostName::parse(host).unwrap(), 443);
        assert_eq!([treatment("a.example"), treatment("b.example"), treatment("c.example")], [Tls::Pass, Tls::Inspect, Tls::Pass]);
        assert!(rules.grants_address("10.0.0.1".parse().unwrap(), 5432));
        assert!(!rules.grants_address("10.0.0.1".parse().unwrap(), 80));
    }
}
