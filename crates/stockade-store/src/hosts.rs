//! Host patterns as settings write them: `host[:port]`, `*.host[:port]`, `address[:port]`.
//!
//! Only what is written is compared here; nothing is resolved. Two patterns either nest or are disjoint, so the
//! intersection of two lists is exact.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use stockade_core::escape::escape;

/// The longest DNS name.
const MAX_HOST: usize = 253;
/// The longest label of a DNS name.
const MAX_LABEL: usize = 63;

/// A checked pattern. Without a port it means 80 and 443.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPattern {
    host: Host,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Host {
    /// One name or address, lower case.
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
        if !text.is_ascii() {
            return Err(bad("write international names in their `xn--` form"));
        }
        if text.contains('/') {
            return Err(bad("write the host alone, without scheme or path"));
        }
        let (host, port) = split_port(text).ok_or_else(|| bad("the port must be a number from 1 to 65535"))?;
        let host = host.to_ascii_lowercase();
        let host = match host.strip_prefix("*.") {
            Some(name) => Host::Below(name.to_owned()),
            None => Host::Exact(host),
        };
        match &host {
            Host::Exact(name) if is_address(name) => {}
            Host::Below(name) if is_address(name) => return Err(bad("an address has no names below it")),
            Host::Exact(name) | Host::Below(name) => check_name(name).map_err(bad)?,
        }
        Ok(Self { host, port })
    }

    /// What both patterns match, if anything.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let host = match (&self.host, &other.host) {
            (one, two) if one == two => one,
            (one @ (Host::Exact(name) | Host::Below(name)), Host::Below(above)) if is_below(name, above) => one,
            (Host::Below(above), two @ (Host::Exact(name) | Host::Below(name))) if is_below(name, above) => two,
            (Host::Exact(_) | Host::Below(_), _) => return None,
        };
        let port = match (self.port, other.port) {
            (one, two) if one == two => one,
            (None, Some(port @ (80 | 443))) | (Some(port @ (80 | 443)), None) => Some(port),
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

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
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

fn is_address(name: &str) -> bool {
    let bracketed = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    name.parse::<Ipv4Addr>().is_ok() || bracketed.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok())
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
            "bücher.example",
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
