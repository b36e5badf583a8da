//! The first bytes of a TLS connection: whom does the client want? rustls reads them; the bytes are kept for whoever comes next.

use rustls::server::Acceptor;
use stockade_core::host::HostName;

/// The longest client hello that is waited for.
pub const MAX_HELLO: usize = 64 << 10;
/// The first byte of a TLS handshake record.
pub const HANDSHAKE: u8 = 0x16;

/// What a client hello says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The server name; `None` where the client sent none, as it must for an address.
    pub server_name: Option<HostName>,
    /// Which protocols the client offers.
    pub offers: Offers,
}

/// What ALPN offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offers {
    /// HTTP/2 among others.
    Http2,
    /// Anything else, or nothing.
    Http1,
}

/// Why a client hello is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadHello {
    /// Not a client hello.
    Malformed,
    /// Too long.
    TooLong,
    /// A name that is no host.
    Name,
}

impl BadHello {
    /// In words that go on from "the TLS handshake".
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "does not begin with a client hello",
            Self::TooLong => "begins with a client hello that is too long",
            Self::Name => "names a server that is no host",
        }
    }
}

/// Reads a client hello from the beginning of `bytes`. `Ok(None)` when more bytes are needed.
pub fn read(bytes: &[u8]) -> Result<Option<Hello>, BadHello> {
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    loop {
        let Ok(accepted) = acceptor.accept() else { return Err(BadHello::Malformed) };
        if let Some(accepted) = accepted {
            let hello = accepted.client_hello();
            let server_name = hello.server_name().map(HostName::parse).transpose().map_err(|_| BadHello::Name)?;
            let http2 = hello.alpn().is_some_and(|mut offered| offered.any(|protocol| protocol == b"h2"));
            return Ok(Some(Hello { server_name, offers: if http2 { Offers::Http2 } else { Offers::Http1 } }));
        }
        if rest.is_empty() {
            return if bytes.len() > MAX_HELLO { Err(BadHello::TooLong) } else { Ok(None) };
        }
        match acceptor.read_tls(&mut rest) {
            Ok(0) | Err(_) => return Err(BadHello::Malformed),
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn hello(name: &'static str, alpn: &[&[u8]]) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|one| one.to_vec()).collect();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name.try_into().unwrap()).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_server_name_is_read_from_whole_and_partial_hellos() {
        let bytes = hello("API.example", &[b"h2", b"http/1.1"]);
        assert_eq!(read(&bytes), Ok(Some(Hello { server_name: Some(HostName::parse("api.example").unwrap()), offers: Offers::Http2 })));
        for end in [0, 1, 5, 6, 60, bytes.len() - 1] {
            assert_eq!(read(&bytes[..end]), Ok(None), "{end}");
        }
        assert_eq!(read(&hello("127.0.0.1", &[])), Ok(Some(Hello { server_name: None, offers: Offers::Http1 })));
    }

    #[test]
    fn other_bytes_are_refused() {
        assert_eq!(read(b"GET / HTTP/1.1\r\n\r\n"), Err(BadHello::Malformed));
        assert_eq!(read(&[0x16, 3, 1, 0, 1, 0]), Ok(None));
        let mut broken = hello("api.example", &[]);
        broken[5] = 2;
        assert_eq!(read(&broken), Err(BadHello::Malformed));
    }
}
