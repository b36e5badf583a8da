//! Hosts: patterns as people write them (`host[:port]`, `*.host[:port]`, `address[:port]`) and names as requests carry them.
//!
//! Patterns may be written in any script and are kept in their `xn--` form; a request's name is taken only as it must be on the
//! wire. Names are compared label by label, addresses as numbers. Nothing is resolved here. Two patterns either nest or are
//! disjoint, so the intersection of two lists is exact.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::escape::escape;

/// The longest DNS name.
const MAX_HOST: usize = 253;
/// The longest label of a DNS name.
const MAX_LABEL: usize = 63;
/// What is wrong with `user:password@host`.
const USER: &str = "write the host without a user's name before it";
/// What a pattern without a port means.
const WEB_PORTS: [u16; 2] = [80, 443];

/// A checked pattern. Without a port it means 80 and 443.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPattern {
    host: Host,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Host {
    /// One address.
    Address(IpAddr),
    /// One name, lower case.
    Exact(String),
    /// One or more labels before this name, not the name itself.
    Below(String),
}

/// Text that is no host pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a host: {why}")]
pub struct BadHost {
    text: String,
    why: &'static str,
}

impl HostPattern {
    /// Checks and normalises (lower case) a pattern.
    pub fn parse(text: &str) -> Result<Self, BadHost> {
        let bad = |why| BadHost { text: escape(text.get(..64).unwrap_or(text)), why };
        if text.is_empty() {
            return Err(bad("it is empty"));
        }
        if text.contains('/') {
            return Err(bad("write the host alone, without scheme or path"));
        }
        if text.contains('@') {
            return Err(bad(USER));
        }
        let (host, port) = split_port(text).ok_or_else(|| bad("the port must be a number from 1 to 65535"))?;
        let below = host.strip_prefix("*.");
        let name = to_wire_form(below.unwrap_or(host)).ok_or_else(|| bad("it is no international name"))?;
        let host = match (below, address(&name)) {
            (None, Some(address)) => Host::Address(address),
            (Some(_), Some(_)) => return Err(bad("an address has no names below it")),
            (below, None) => {
                check_name(&name).map_err(bad)?;
                if below.is_some() { Host::Below(name) } else { Host::Exact(name) }
            }
        };
        Ok(Self { host, port })
    }

    /// The pattern that matches this host at this port and nothing else; a web port is left out, as people do.
    pub fn exactly(host: &HostName, port: u16) -> Self {
        let host = match host {
            HostName::Address(address) => Host::Address(*address),
            HostName::Name(name) => Host::Exact(name.clone()),
        };
        Self { host, port: (!WEB_PORTS.contains(&port)).then_some(port) }
    }

    /// Whether a request to this host and port is meant.
    pub fn matches(&self, host: &HostName, port: u16) -> bool {
        let is_port = self.port.map_or(WEB_PORTS.contains(&port), |wanted| wanted == port);
        is_port && self.matches_host(host)
    }

    /// Whether this host is meant, at whatever port.
    pub fn matches_host(&self, host: &HostName) -> bool {
        match (&self.host, host) {
            (Host::Address(wanted), HostName::Address(address)) => wanted == address,
            (Host::Exact(wanted), HostName::Name(name)) => wanted == name,
            (Host::Below(above), HostName::Name(name)) => is_below(name, above),
            (Host::Address(_), HostName::Name(_)) | (Host::Exact(_) | Host::Below(_), HostName::Address(_)) => false,
        }
    }

    /// Whether it is everything below one label, as in `*.com`: hosts of very many owners, unless the label is a network's own.
    pub fn is_below_one_label(&self) -> bool {
        matches!(&self.host, Host::Below(name) if !name.contains('.'))
    }

    /// The address, where the pattern is one: a grant by address.
    pub fn granted_address(&self) -> Option<IpAddr> {
        match &self.host {
            Host::Address(address) => Some(*address),
            Host::Exact(_) | Host::Below(_) => None,
        }
    }

    /// The ports that are meant.
    pub fn ports(&self) -> &[u16] {
        self.port.as_ref().map_or(&WEB_PORTS, std::slice::from_ref)
    }

    /// The same hosts at one port only.
    #[must_use]
    pub fn at_port(&self, port: u16) -> Self {
        Self { host: self.host.clone(), port: Some(port) }
    }

    /// The hosts as they are written, without a port.
    pub fn without_port(&self) -> String {
        match &self.host {
            Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
            Host::Address(IpAddr::V4(address)) => address.to_string(),
            Host::Exact(name) => name.clone(),
            Host::Below(name) => format!("*.{name}"),
        }
    }

    /// What both patterns match, if anything.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let host = match (&self.host, &other.host) {
            (one, two) if one == two => one,
            (one @ (Host::Exact(name) | Host::Below(name)), Host::Below(above)) if is_below(name, above) => one,
            (Host::Below(above), two @ (Host::Exact(name) | Host::Below(name))) if is_below(name, above) => two,
            (Host::Address(_) | Host::Exact(_) | Host::Below(_), _) => return None,
        };
        let port = match (self.port, other.port) {
            (one, two) if one == two => one,
            (None, Some(port)) | (Some(port), None) if WEB_PORTS.contains(&port) => Some(port),
            (Some(_) | None, _) => return None,
        };
        Some(Self { host: host.clone(), port })
    }
}

/// What both lists match, in the first list's order, without repetition.
pub fn intersect(first: &[HostPattern], second: &[HostPattern]) -> Vec<HostPattern> {
    let mut common: Vec<HostPattern> = Vec::new();
    for one in first {
        for pattern in second.iter().filter_map(|two| one.intersection(two)) {
            if !common.contains(&pattern) {
                common.push(pattern);
            }
        }
    }
    common
}

/// A host that a request names: checked, in wire form, lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostName {
    /// An address; IPv6 is written in brackets.
    Address(IpAddr),
    /// A name.
    Name(String),
}

impl HostName {
    /// Checks a host without port. What a resolver might read differently (other scripts, spaces, an end in a dot, addresses in
    /// octal or hexadecimal, zones) is refused rather than guessed.
    pub fn parse(text: &str) -> Result<Self, BadHost> {
        let bad = |why| BadHost { text: escape(text.get(..64).unwrap_or(text)), why };
        if !text.is_ascii() {
            return Err(bad("a name in a request is written in its `xn--` form"));
        }
        if let Some(address) = address(text) {
            return Ok(Self::Address(address));
        }
        let name = text.to_ascii_lowercase();
        check_name(&name).map_err(bad)?;
        if name.split('.').any(|label| label.starts_with("xn--")) && to_wire_form(&name).as_deref() != Some(&name) {
            return Err(bad("it is no international name"));
        }
        Ok(Self::Name(name))
    }

    /// Checks `host` or `host:port`; the port is given for where it is not written.
    pub fn parse_authority(text: &str, default_port: u16) -> Result<(Self, u16), BadHost> {
        if let Some((_, host)) = text.rsplit_once('@') {
            // What stands before it may be a password, and is not repeated.
            return Err(BadHost { text: format!("…@{}", escape(host.get(..64).unwrap_or(host))), why: USER });
        }
        let bad = || BadHost { text: escape(text.get(..64).unwrap_or(text)), why: "the port must be a number from 1 to 65535" };
        let (host, port) = split_port(text).ok_or_else(bad)?;
        Ok((Self::parse(host)?, port.unwrap_or(default_port)))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write_address(f, *address),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl TryFrom<String> for HostPattern {
    type Error = BadHost;
    fn try_from(text: String) -> Result<Self, BadHost> {
        Self::parse(&text)
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> Self {
        pattern.to_string()
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(address) => write_address(f, *address)?,
            Host::Exact(name) => f.write_str(name)?,
            Host::Below(name) => write!(f, "*.{name}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// `None` when there is a port and it is wrong.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    // The colons of an IPv6 address stand inside its brackets.
    let after_address = text.rfind(']').map_or(0, |end| end + 1);
    let Some((host, port)) = text.rsplit_once(':').filter(|(host, _)| host.len() >= after_address) else { return Some((text, None)) };
    let digits = (1..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit());
    let port = port.parse().ok().filter(|port| digits && *port != 0)?;
    Some((host, Some(port)))
}

fn address(name: &str) -> Option<IpAddr> {
    let bracketed = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    bracketed.map_or_else(|| name.parse::<Ipv4Addr>().ok().map(IpAddr::V4), |inner| inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6))
}

fn write_address(f: &mut fmt::Formatter<'_>, address: IpAddr) -> fmt::Result {
    match address {
        IpAddr::V4(address) => write!(f, "{address}"),
        IpAddr::V6(address) => write!(f, "[{address}]"),
    }
}

/// The form in which a name travels: lower case, other scripts as `xn--`. `None` where there is none.
fn to_wire_form(name: &str) -> Option<String> {
    let international =
        !name.is_ascii() || name.split('.').any(|label| label.get(..4).is_some_and(|four| four.eq_ignore_ascii_case("xn--")));
    if !international {
        return Some(name.to_ascii_lowercase());
    }
    // Bounded before the tables are asked: no name of this length is one.
    if name.len() > 4 * MAX_HOST {
        return None;
    }
    idna::domain_to_ascii_cow(name.as_bytes(), idna::AsciiDenyList::EMPTY).ok().map(std::borrow::Cow::into_owned)
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.len() > MAX_HOST {
        return Err("it is longer than any DNS name");
    }
    if name.contains('*') {
        return Err("`*` may only stand first, as in `*.example.com`");
    }
    if name.contains(':') || name.contains('[') {
        return Err("an IPv6 address is written in brackets, as in `[::1]:8080`");
    }
    let good = |label: &str| {
        (1..=MAX_LABEL).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    if !name.split('.').all(good) {
        return Err("write a name such as `example.com`, `*.example.com` or `example.com:8080`");
    }
    // `1.2.3.256` or `0x7f.1` could be taken for an address by whoever resolves it.
    if name.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x")) {
        return Err("it looks like an address but is none");
    }
    Ok(())
}

fn is_below(name: &str, above: &str) -> bool {
    name.strip_suffix(above).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_patterns_are_normalised() {
        for (text, shown) in [
            ("Example.COM", "example.com"),
            ("*.Example.com:8443", "*.example.com:8443"),
            ("127.0.0.1:3000", "127.0.0.1:3000"),
            ("[::1]:80", "[::1]:80"),
            ("[::1]", "[::1]"),
            ("localhost", "localhost"),
            ("_dmarc.xn--bcher-kva.example", "_dmarc.xn--bcher-kva.example"),
            ("*.Bücher.example:80", "*.xn--bcher-kva.example:80"),
            ("[0:0::1]", "[::1]"),
        ] {
            assert_eq!(HostPattern::parse(text).map(|p| p.to_string()).as_deref(), Ok(shown));
        }
    }

    #[test]
    fn bad_patterns_are_refused() {
        let long = format!("{}.com", "a".repeat(64));
        for text in [
            "",
            "*",
            "*.",
            "a..b",
            ".a",
            "a.",
            "https://a.com",
            "a.com/x",
            "a.com:0",
            "a.com:65536",
            "a.com:",
            "a.com:+1",
            "a b",
            "a\0b",
            "a.*.com",
            "*a.com",
            "-a.com",
            "::1",
            "[::1",
            "[zz]",
            "xn--a.example",
            "a\u{200b}b.example\u{202e}",
            "a\u{3002}",
            "1.2.3.256",
            "*.1.2.3.4",
            "0x7f.0x1",
            "a,b",
            &long,
        ] {
            assert!(HostPattern::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_pattern_matches_by_label() {
        for (pattern, host, port, expected) in [
            ("allowed.example", "allowed.example", 443, true),
            ("allowed.example", "ALLOWED.example", 80, true),
            ("allowed.example", "allowed.example", 8080, false),
            ("allowed.example", "allowed.example.attacker.tld", 443, false),
            ("allowed.example", "evil-allowed.example", 443, false),
            ("allowed.example", "x.allowed.example", 443, false),
            ("*.allowed.example", "x.allowed.example", 443, true),
            ("*.allowed.example", "y.x.allowed.example", 443, true),
            ("*.allowed.example", "allowed.example", 443, false),
            ("*.allowed.example", "xallowed.example", 443, false),
            ("bücher.example", "xn--bcher-kva.example", 443, true),
            ("127.0.0.1:3000", "127.0.0.1", 3000, true),
            ("127.0.0.1:3000", "127.0.0.1", 443, false),
            ("127.0.0.1", "[::ffff:127.0.0.1]", 443, false),
            ("[::1]", "[0:0:0:0:0:0:0:1]", 443, true),
        ] {
            let (pattern, host) = (HostPattern::parse(pattern).unwrap(), HostName::parse(host).unwrap());
            assert_eq!(pattern.matches(&host, port), expected, "{pattern} {host} {port}");
        }
    }

    #[test]
    fn names_that_could_be_read_twice_are_refused() {
        for text in [
            "",
            "a\0b.example",
            "a\rb",
            "a\nb",
            "a b",
            "user@a.example",
            "a.example#b",
            "a.example.",
            "a%2eexample",
            "аpple.example",
            "2130706433",
            "0177.0.0.1",
            "0x7f.0.0.1",
            "0x7f000001",
            "127.1",
            "[fe80::1%25eth0]",
            "[fe80::1%eth0]",
            "fe80::1",
            "[127.0.0.1]",
            "a..b",
            "-a.example",
            "*.a.example",
            "xn--.example",
            "a/b",
            "a\\b",
            "a?b",
        ] {
            assert!(HostName::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(HostName::parse_authority("A.example:8443", 443), Ok((HostName::Name("a.example".into()), 8443)));
        assert!(HostName::parse_authority("a.example:0", 443).is_err());
        assert!(HostName::parse_authority("a.example:80:80", 443).is_err());
        for text in ["u:p@127.0.0.1", "u:p@127.0.0.1:7100", "u@a.example"] {
            let told = HostName::parse_authority(text, 443).unwrap_err().to_string();
            assert!(told.starts_with("`…@") && told.ends_with("without a user's name before it"), "{told}");
            assert!(HostPattern::parse(text).unwrap_err().to_string().ends_with("without a user's name before it"));
        }
        for (text, wide) in [("*.com", true), ("*.com:8443", true), ("*.example.com", false), ("com", false), ("127.0.0.1", false)] {
            assert_eq!(HostPattern::parse(text).unwrap().is_below_one_label(), wide, "{text}");
        }
    }

    #[test]
    fn intersections_are_exact() {
        for (one, two, both) in [
            ("a.com", "a.com", Some("a.com")),
            ("a.com", "b.com", None),
            ("*.a.com", "x.a.com", Some("x.a.com")),
            ("*.a.com", "a.com", None),
            ("*.a.com", "xa.com", None),
            ("*.a.com", "*.b.a.com", Some("*.b.a.com")),
            ("*.a.com", "*.a.com:443", Some("*.a.com:443")),
            ("*.a.com:443", "x.a.com", Some("x.a.com:443")),
            ("a.com", "a.com:8080", None),
            ("a.com:80", "a.com:443", None),
            ("127.0.0.1:3000", "127.0.0.1:3000", Some("127.0.0.1:3000")),
        ] {
            let (first, second) = (HostPattern::parse(one).unwrap(), HostPattern::parse(two).unwrap());
            assert_eq!(first.intersection(&second).map(|p| p.to_string()).as_deref(), both, "{one} and {two}");
            assert_eq!(second.intersection(&first).map(|p| p.to_string()).as_deref(), both, "{two} and {one}");
        }
    }

    #[test]
    fn lists_intersect_without_repetition() {
        let list = |texts: &[&str]| texts.iter().map(|t| HostPattern::parse(t).unwrap()).collect::<Vec<_>>();
        assert_eq!(intersect(&list(&["x.a.com", "*.a.com"]), &list(&["*.a.com", "x.a.com"])), list(&["x.a.com", "*.a.com"]));
        assert_eq!(intersect(&list(&["a.com"]), &list(&[])), list(&[]));
    }
}
