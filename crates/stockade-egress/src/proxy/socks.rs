//! SOCKS5 (RFC 1928): `CONNECT` without authentication, by name or by address. Pure readers of the client's two messages.
//!
//! A name goes through the same strict check as everywhere: one with a NUL, a space or an end in a dot is no host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use stockade_core::host::{BadHost, HostName};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const CONNECT: u8 = 1;

/// The longest message a client sends.
pub const MAX_MESSAGE: usize = 4 + 1 + 255 + 2;

/// The answer to a greeting: no authentication.
pub const WELCOME: [u8; 2] = [VERSION, NO_AUTHENTICATION];
/// The answer to a greeting that offers nothing we take.
pub const NO_METHOD: [u8; 2] = [VERSION, 0xff];

/// How a request ended, for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Connected.
    Granted,
    /// Not allowed by the rules.
    Refused,
    /// The host cannot be reached.
    Unreachable,
    /// Something other than `CONNECT`.
    NoCommand,
    /// An address of an unknown kind.
    NoKind,
}

impl Answer {
    /// The bytes of the answer; the bound address is told as none.
    pub fn bytes(self) -> [u8; 10] {
        let code = match self {
            Self::Granted => 0,
            Self::Refused => 2,
            Self::Unreachable => 4,
            Self::NoCommand => 7,
            Self::NoKind => 8,
        };
        [VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]
    }
}

/// What is wrong with a client's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocksError {
    /// Not SOCKS5.
    Malformed,
    /// The client insists on authentication.
    Method,
    /// Something other than `CONNECT`.
    Command,
    /// An address of an unknown kind.
    Kind,
    /// A name that is no host.
    Host(BadHost),
}

/// Reads the greeting. `None` when more bytes are needed; else how many it has.
pub fn greeting(bytes: &[u8]) -> Result<Option<usize>, SocksError> {
    match bytes {
        [] | [VERSION] => Ok(None),
        [VERSION, count, rest @ ..] => {
            let Some(methods) = rest.get(..usize::from(*count)) else { return Ok(None) };
            if methods.contains(&NO_AUTHENTICATION) { Ok(Some(2 + methods.len())) } else { Err(SocksError::Method) }
        }
        _ => Err(SocksError::Malformed),
    }
}

/// Where a client wants to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocksRequest {
    /// The host.
    pub host: HostName,
    /// The port.
    pub port: u16,
    /// Bytes of the message.
    pub length: usize,
}

/// Reads the request. `None` when more bytes are needed.
pub fn request(bytes: &[u8]) -> Result<Option<SocksRequest>, SocksError> {
    let (command, kind, rest) = match bytes {
        [] | [VERSION] | [VERSION, _] | [VERSION, _, 0] | [VERSION, _, 0, _] => return Ok(None),
        [VERSION, command, 0, kind, rest @ ..] => (*command, *kind, rest),
        _ => return Err(SocksError::Malformed),
    };
    if command != CONNECT {
        return Err(SocksError::Command);
    }
    let read = match kind {
        1 => rest.split_first_chunk::<4>().map(|(address, rest)| Ok((HostName::Address(IpAddr::V4(Ipv4Addr::from(*address))), 4, rest))),
        4 => rest.split_first_chunk::<16>().map(|(address, rest)| Ok((HostName::Address(IpAddr::V6(Ipv6Addr::from(*address))), 16, rest))),
        3 => rest.split_first().and_then(|(length, rest)| rest.split_at_checked(usize::from(*length))).map(|(name, rest)| {
            let text = String::from_utf8_lossy(name);
            Ok((HostName::parse(&text)?, 1 + name.len(), rest))
        }),
        _ => return Err(SocksError::Kind),
    };
    let Some(read) = read else { return Ok(None) };
    let (host, length, rest) = read.map_err(SocksError::Host)?;
    let Some((port, _)) = rest.split_first_chunk::<2>() else { return Ok(None) };
    let port = u16::from_be_bytes(*port);
    if port == 0 {
        return Err(SocksError::Malformed);
    }
    Ok(Some(SocksRequest { host, port, length: 4 + length + 2 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &[u8]) -> Vec<u8> {
        [&[5, 1, 0, 3, name.len() as u8][..], name, &[0x01, 0xbb]].concat()
    }

    #[test]
    fn greetings_and_requests_are_read() {
        assert_eq!(greeting(&[5]), Ok(None));
        assert_eq!(greeting(&[5, 2, 2]), Ok(None));
        assert_eq!(greeting(&[5, 2, 2, 0]), Ok(Some(4)));
        assert_eq!(greeting(&[5, 1, 2]), Err(SocksError::Method));
        assert_eq!(greeting(&[4, 1]), Err(SocksError::Malformed));
        let message = named(b"API.example");
        let expected = SocksRequest { host: HostName::parse("api.example").unwrap(), port: 443, length: message.len() };
        assert_eq!(request(&message), Ok(Some(expected)));
        for end in 0..message.len() {
            assert_eq!(request(&message[..end]), Ok(None), "{end}");
        }
        let v4 = request(&[5, 1, 0, 1, 127, 0, 0, 1, 0, 80]).unwrap().unwrap();
        assert_eq!((v4.host.to_string(), v4.port, v4.length), ("127.0.0.1".to_owned(), 80, 10));
        let v6 = [&[5, 1, 0, 4][..], &Ipv6Addr::LOCALHOST.octets(), &[0, 80]].concat();
        assert_eq!(request(&v6).unwrap().unwrap().host.to_string(), "[::1]");
    }

    #[test]
    fn h07_names_that_are_no_hosts_are_refused() {
        for name in
            [&b"allowed.example\0.attacker.tld"[..], b"a\rb", b"a b", b"a@b", b"a#b", b"a.example.", b"a%2e", b"\xd0\xb0.example", b""]
        {
            assert!(matches!(request(&named(name)), Err(SocksError::Host(_))), "{name:?}");
        }
        assert_eq!(request(&[5, 2, 0, 1, 1, 1, 1, 1, 0, 80]), Err(SocksError::Command));
        assert_eq!(request(&[5, 1, 0, 9, 1, 1, 1, 1, 0, 80]), Err(SocksError::Kind));
        assert_eq!(request(&[5, 1, 1, 1, 1, 1, 1, 1, 0, 80]), Err(SocksError::Malformed));
        assert_eq!(request(&[5, 1, 0, 1, 1, 1, 1, 1, 0, 0]), Err(SocksError::Malformed));
    }
}
