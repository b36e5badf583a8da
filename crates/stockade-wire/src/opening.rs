//! The message that comes with a connection that a guest passes to egress as a descriptor: a version, what the connection was made to, and
//! for transparent ones the address.
//!
//! It has a form of its own rather than the codec's, because every one has the same length and travels as a packet.
//!
//! ```text
//! 0        1      2        3..5   5..21
//! version  kind   family   port   address (IPv4 in the first four)
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Every message has this many bytes.
pub const LENGTH: usize = 21;
const VERSION: u8 = 1;
const PROXY: u8 = 1;
const TRANSPARENT: u8 = 2;
const DNS: u8 = 3;
const AGENT: u8 = 4;

/// What a connection was made to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The proxy's port.
    Proxy,
    /// This address.
    Transparent(SocketAddr),
    /// The resolver.
    Dns,
    /// The agent of SSH.
    Agent,
}

impl Opening {
    /// Reads a message; `None` for anything but a whole and exact one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LENGTH] = bytes.try_into().ok()?;
        let [VERSION, kind, family, high, low, address @ ..] = bytes else { return None };
        let rest_is_zero = |from: usize| address.iter().skip(from).all(|byte| *byte == 0);
        let port = u16::from_be_bytes([*high, *low]);
        match (*kind, *family) {
            (PROXY, 0) if port == 0 && rest_is_zero(0) => Some(Self::Proxy),
            (DNS, 0) if port == 0 && rest_is_zero(0) => Some(Self::Dns),
            (AGENT, 0) if port == 0 && rest_is_zero(0) => Some(Self::Agent),
            (TRANSPARENT, 4) if port != 0 && rest_is_zero(4) => {
                let [a, b, c, d, ..] = *address;
                Some(Self::Transparent(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), port)))
            }
            (TRANSPARENT, 6) if port != 0 => Some(Self::Transparent(SocketAddr::new(IpAddr::V6(Ipv6Addr::from(*address)), port))),
            _ => None,
        }
    }

    /// Writes a message.
    pub fn bytes(self) -> [u8; LENGTH] {
        let (kind, family, port, address) = match self {
            Self::Proxy => (PROXY, 0, 0, [0; 16]),
            Self::Dns => (DNS, 0, 0, [0; 16]),
            Self::Agent => (AGENT, 0, 0, [0; 16]),
            Self::Transparent(address) => match address.ip() {
                IpAddr::V4(ip) => {
                    let [a, b, c, d] = ip.octets();
                    (TRANSPARENT, 4, address.port(), [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
                }
                IpAddr::V6(ip) => (TRANSPARENT, 6, address.port(), ip.octets()),
            },
        };
        let mut bytes = [0; LENGTH];
        let head = [VERSION, kind, family].into_iter().chain(port.to_be_bytes());
        for (to, from) in bytes.iter_mut().zip(head.chain(address)) {
            *to = from;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_are_written_and_nothing_else_is() {
        for opening in [
            Opening::Proxy,
            Opening::Dns,
            Opening::Agent,
            Opening::Transparent("198.18.0.1:443".parse().unwrap()),
            Opening::Transparent("[2001:db8::1]:80".parse().unwrap()),
        ] {
            let bytes = opening.bytes();
            assert_eq!(Opening::parse(&bytes), Some(opening));
            assert_eq!(Opening::parse(&bytes[..20]), None);
            assert_eq!(Opening::parse(&[&bytes[..], &[0]].concat()), None);
            let mut other = bytes;
            other[0] = 2;
            assert_eq!(Opening::parse(&other), None);
        }
        assert_eq!(Opening::parse(&Opening::Transparent("1.2.3.4:0".parse().unwrap()).bytes()), None);
        for opening in [Opening::Proxy, Opening::Dns, Opening::Agent] {
            for at in [2, 4, 20] {
                let mut odd = opening.bytes();
                odd[at] = 1;
                assert_eq!(Opening::parse(&odd), None, "{opening:?} {at}");
            }
        }
        let mut unknown = Opening::Proxy.bytes();
        unknown[1] = 5;
        assert_eq!(Opening::parse(&unknown), None);
    }
}
