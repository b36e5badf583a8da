//! The names by which this server may be called: what a request's `Host` and `Origin` are compared with.
//!
//! A page in a browser can have any name lead to this address. The name it used is in both fields, so a request by a name that is not this
//! server's own is somebody else's.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::uri::Authority;

use crate::tls::Identity;

/// Longer than any name (RFC 1035) with a port.
const MOST_NAME: usize = 300;

/// The names of one server.
#[derive(Clone)]
pub struct Names {
    address: SocketAddr,
    identity: Option<Arc<Identity>>,
}

impl Names {
    /// Of a server at an address; with a certificate, those that it is for as well.
    pub fn new(address: SocketAddr, identity: Option<Arc<Identity>>) -> Self {
        Self { address, identity }
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.identity.is_some() { "https" } else { "http" }
    }

    /// Whether `name[:port]` is one of them. Without a port it is that of the scheme.
    pub fn has(&self, authority: &[u8]) -> bool {
        if authority.len() > MOST_NAME || authority.contains(&b'@') {
            return false;
        }
        let Ok(authority) = Authority::try_from(authority) else { return false };
        let usual = if self.identity.is_some() { 443 } else { 80 };
        // A port that is no number is none of ours.
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            None if authority.as_str().ends_with(authority.host()) => usual,
            None => return false,
        };
        port == self.address.port() && self.is_name(authority.host())
    }

    /// Whether an `Origin` is this server's own.
    pub fn has_origin(&self, origin: &[u8]) -> bool {
        let rest = origin.strip_prefix(self.scheme().as_bytes()).and_then(|rest| rest.strip_prefix(b"://"));
        rest.is_some_and(|authority| self.has(authority))
    }

    fn is_name(&self, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let ours = match bare.parse::<IpAddr>() {
            Ok(address) => address == self.address.ip(),
            Err(_) => self.address.ip().is_loopback() && host.eq_ignore_ascii_case("localhost"),
        };
        ours || self.identity.as_ref().is_some_and(|identity| identity.is_for(bare))
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").field("address", &self.address).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: &str, good: &[&str], bad: &[&str]) {
        let names = Names::new(address.parse().unwrap(), None);
        for name in good {
            assert!(names.has(name.as_bytes()), "{address}: {name}");
            assert!(names.has_origin(format!("http://{name}").as_bytes()), "{address}: {name}");
        }
        for name in bad {
            assert!(!names.has(name.as_bytes()), "{address}: {name}");
            assert!(!names.has_origin(format!("http://{name}").as_bytes()), "{address}: {name}");
        }
    }

    #[test]
    fn only_our_own_names_with_our_port_are_ours() {
        let bad = ["127.0.0.1", "127.0.0.1:7071", "localhost", "evil.example:7070", "localhost.evil.example:7070", "", ":7070"];
        check("127.0.0.1:7070", &["127.0.0.1:7070", "localhost:7070", "LocalHost:7070"], &bad);
        let odd = ["user@127.0.0.1:7070", "127.0.0.1:7070:7070", "127.0.0.1:070 70", "0x7f.1:7070", "[::1]:7070", "localhost:", "a/b:7070"];
        check("127.0.0.1:7070", &[], &odd);
        check("[::1]:7070", &["[::1]:7070", "localhost:7070", "[0:0::1]:7070"], &["::1:7070", "127.0.0.1:7070", "[::1]"]);
        check("127.0.0.1:80", &["127.0.0.1", "localhost", "localhost:80"], &["localhost:443"]);
        check("192.0.2.1:80", &["192.0.2.1"], &["localhost"]);
    }

    #[test]
    fn an_origin_has_our_scheme_and_nothing_else() {
        let names = Names::new("127.0.0.1:7070".parse().unwrap(), None);
        for bad in ["null", "", "https://127.0.0.1:7070", "http://127.0.0.1:7070/", "http:127.0.0.1:7070", "file://", "http://evil.example"]
        {
            assert!(!names.has_origin(bad.as_bytes()), "{bad}");
        }
    }
}
