//! The one thing that is signed: a user's request to be let in with a key (RFC 4252, section 7, and OpenSSH's form of it that names the
//! host's key). Pure.
//!
//! Nothing else can be taken for one: it begins with the session's identifier, which is the hash of a key exchange. A signature over a file
//! or a commit begins with `SSHSIG`.

use super::wire::Reader;

/// `SSH_MSG_USERAUTH_REQUEST`.
const USERAUTH_REQUEST: u8 = 50;
const PLAIN: &str = "publickey";
const HOST_BOUND: &str = "publickey-hostbound-v00@openssh.com";

/// A user's request to be let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Login<'a> {
    /// In which session.
    pub session: &'a [u8],
    /// As whom.
    pub user: &'a str,
    /// For which service.
    pub service: &'a str,
    /// How it is signed.
    pub algorithm: &'a str,
    /// With which key or certificate.
    pub key: &'a [u8],
    /// At the host of this key, where the request says so.
    pub host_key: Option<&'a [u8]>,
}

impl<'a> Login<'a> {
    /// Reads what is to be signed; `None` for anything else than a whole and exact request.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(data);
        let session = reader.string()?;
        if reader.byte()? != USERAUTH_REQUEST {
            return None;
        }
        let (user, service, method) = (reader.name()?, reader.name()?, reader.name()?);
        let is_host_bound = match method {
            PLAIN => false,
            HOST_BOUND => true,
            _ => return None,
        };
        // Without a signature it would be a question whether the key will do, which nobody signs.
        if !reader.boolean()? {
            return None;
        }
        let (algorithm, key) = (reader.name()?, reader.string()?);
        let host_key = if is_host_bound { Some(reader.string()?) } else { None };
        reader.end().map(|()| Self { session, user, service, algorithm, key, host_key })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::wire::push_string;
    use super::*;

    /// A request as `ssh` writes it.
    pub(in super::super) fn written(login: &Login<'_>) -> Vec<u8> {
        let mut data = Vec::new();
        push_string(&mut data, login.session);
        data.push(USERAUTH_REQUEST);
        push_string(&mut data, login.user.as_bytes());
        push_string(&mut data, login.service.as_bytes());
        push_string(&mut data, if login.host_key.is_some() { HOST_BOUND } else { PLAIN }.as_bytes());
        data.push(1);
        push_string(&mut data, login.algorithm.as_bytes());
        push_string(&mut data, login.key);
        if let Some(host_key) = login.host_key {
            push_string(&mut data, host_key);
        }
        data
    }

    #[test]
    fn only_whole_requests_are_read() {
        let plain = Login { session: b"s", user: "git", service: "ssh-connection", algorithm: "ssh-ed25519", key: b"k", host_key: None };
        for login in [plain, Login { host_key: Some(b"h"), ..plain }] {
            let data = written(&login);
            assert_eq!(Login::parse(&data), Some(login));
            assert_eq!(Login::parse(&[&data[..], b"x"].concat()), None);
            for length in 0..data.len() {
                assert_eq!(Login::parse(&data[..length]), None, "{length}");
            }
        }
    }

    #[test]
    fn anything_else_is_none() {
        let login = Login { session: b"s", user: "git", service: "ssh-connection", algorithm: "ssh-ed25519", key: b"k", host_key: None };
        let data = written(&login);
        let changed = |from: &[u8], to: &[u8]| {
            let at = data.windows(from.len()).position(|window| window == from).unwrap();
            [&data[..at], to, &data[at + from.len()..]].concat()
        };
        // Another message, another method, a question instead of a request, a name that is none.
        for other in [
            changed(&[50], &[51]),
            changed(b"publickey", b"hostbased"),
            changed(b"publickey\x01", b"publickey\x00"),
            changed(b"publickey\x01", b"publickey\x02"),
            changed(b"git", b"g t"),
            b"SSHSIG\0\0\0\x03git\0\0\0\0\0\0\0\x06sha512\0\0\0\x02hh".to_vec(),
            b"any other bytes that somebody would like to have signed".to_vec(),
            Vec::new(),
        ] {
            assert_eq!(Login::parse(&other), None, "{other:?}");
        }
    }
}
