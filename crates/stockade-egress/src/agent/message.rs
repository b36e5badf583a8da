//! Messages of the agent's protocol (draft-ietf-sshm-ssh-agent), as far as this agent speaks it, and OpenSSH's extension that binds a
//! connection to a session (`PROTOCOL.agent` of OpenSSH). Pure: bytes in, values out, and the other way round.
//!
//! A message is what follows its length. One of a kind that is spoken here and is not whole, or has something behind it, is refused.

use super::wire::{Reader, push_string};

/// The longest message: a key or certificate and a login, several times over.
pub const MAX_MESSAGE: usize = 64 << 10;

const FAILURE: u8 = 5;
const SUCCESS: u8 = 6;
const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;
const EXTENSION: u8 = 27;
const SESSION_BIND: &[u8] = b"session-bind@openssh.com";

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// Which keys there are.
    Identities,
    /// For a signature.
    Sign(Sign<'a>),
    /// That the connection belongs to a session from now on.
    Bind(Bind<'a>),
    /// Something that this agent does not do.
    Other(u8),
}

/// What is to be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sign<'a> {
    /// With this key or certificate, as SSH writes it.
    pub key: &'a [u8],
    /// These bytes.
    pub data: &'a [u8],
}

/// A session with a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bind<'a> {
    /// The host's key, as SSH writes it.
    pub host_key: &'a [u8],
    /// The session's identifier: the hash of its first key exchange.
    pub session: &'a [u8],
    /// The host's signature over that.
    pub signature: &'a [u8],
    /// Whether what follows comes from the host, not from a program here.
    pub is_forwarding: bool,
}

impl<'a> Request<'a> {
    /// Reads a message; `None` for one that is not whole and exact.
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(message);
        let request = match reader.byte()? {
            REQUEST_IDENTITIES => Self::Identities,
            SIGN_REQUEST => {
                let sign = Sign { key: reader.string()?, data: reader.string()? };
                // Flags say which algorithm of RSA; there are no such keys here.
                reader.number()?;
                Self::Sign(sign)
            }
            EXTENSION if reader.string()? == SESSION_BIND => Self::Bind(Bind {
                host_key: reader.string()?,
                session: reader.string()?,
                signature: reader.string()?,
                is_forwarding: reader.boolean()?,
            }),
            // What else they hold means nothing here.
            kind => return Some(Self::Other(kind)),
        };
        reader.end().map(|()| request)
    }
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// No; the protocol has no words for why.
    Failure,
    /// Done.
    Success,
    /// Keys and certificates, each with what it is called.
    Identities(Vec<(Vec<u8>, String)>),
    /// A signature, as SSH writes it.
    Signature(Vec<u8>),
}

impl Answer {
    /// The message with its length before it.
    pub fn bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        match self {
            Self::Failure => body.push(FAILURE),
            Self::Success => body.push(SUCCESS),
            Self::Identities(identities) => {
                body.push(IDENTITIES_ANSWER);
                body.extend_from_slice(&u32::try_from(identities.len()).unwrap_or(u32::MAX).to_be_bytes());
                for (key, comment) in identities {
                    push_string(&mut body, key);
                    push_string(&mut body, comment.as_bytes());
                }
            }
            Self::Signature(signature) => {
                body.push(SIGN_RESPONSE);
                push_string(&mut body, signature);
            }
        }
        let mut message = Vec::new();
        push_string(&mut message, &body);
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(kind: u8, strings: &[&[u8]], rest: &[u8]) -> Vec<u8> {
        let mut message = vec![kind];
        for string in strings {
            push_string(&mut message, string);
        }
        message.extend_from_slice(rest);
        message
    }

    #[test]
    fn requests_are_read_whole_and_exactly() {
        let bind = strings(27, &[SESSION_BIND, b"key", b"session", b"signature"], &[1]);
        let sign = strings(13, &[b"key", b"data"], &[0, 0, 0, 4]);
        for (message, request) in [
            (vec![11], Request::Identities),
            (sign, Request::Sign(Sign { key: b"key", data: b"data" })),
            (bind, Request::Bind(Bind { host_key: b"key", session: b"session", signature: b"signature", is_forwarding: true })),
        ] {
            assert_eq!(Request::parse(&message), Some(request));
            assert_eq!(Request::parse(&[&message[..], &[0]].concat()), None, "{request:?}");
            for length in 0..message.len() {
                assert_eq!(Request::parse(&message[..length]), None, "{request:?} {length}");
            }
        }
    }

    #[test]
    fn other_kinds_are_known_by_their_number() {
        for kind in [0, 1, 5, 9, 12, 17, 18, 19, 22, 25, 255] {
            assert_eq!(Request::parse(&[kind, 1, 2, 3]), Some(Request::Other(kind)));
        }
        assert_eq!(Request::parse(&strings(27, &[b"query"], b"")), Some(Request::Other(27)));
        assert_eq!(Request::parse(&strings(27, &[SESSION_BIND, b"key", b"session", b"signature"], &[2])), None);
    }

    #[test]
    fn answers_have_their_length_before_them() {
        assert_eq!(Answer::Failure.bytes(), [0, 0, 0, 1, 5]);
        assert_eq!(Answer::Success.bytes(), [0, 0, 0, 1, 6]);
        assert_eq!(Answer::Signature(b"s".to_vec()).bytes(), [0, 0, 0, 6, 14, 0, 0, 0, 1, b's']);
        let identities = Answer::Identities(vec![(b"k".to_vec(), "c".to_owned())]);
        assert_eq!(identities.bytes(), [0, 0, 0, 15, 12, 0, 0, 0, 1, 0, 0, 0, 1, b'k', 0, 0, 0, 1, b'c']);
    }
}
