//! One session with a host: a checked address is dialled, the host shows a key that is known, one logs in, and one command is run.

use std::borrow::Cow;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use russh::client::{self, AuthResult, Config, Handle};
use russh::keys::{HashAlg, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Preferred, SshId};
use stockade_core::escape::escape;
use stockade_core::host::HostName;

use super::command::Command;
use super::key::Identity;
use super::{Use, refused};
use crate::dial::dial;
use crate::egress::Shared;
use crate::refusal::Refusal;
use crate::sandbox::Sandbox;

/// How long everything may take from the first byte to the command's start.
const PATIENCE: Duration = Duration::from_secs(20);
/// After so much silence a host is asked whether it is there, this often.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVES: usize = 3;
/// How much a host may send before it is read.
const WINDOW: u32 = 1 << 20;
/// How many of its messages wait.
const WAITING: usize = 16;
/// What git tells a server of the protocol.
const PROTOCOL: &str = "GIT_PROTOCOL";

/// A command that runs at a host. Dropped, its connection is gone, whatever still holds an end of it.
pub(super) struct Session {
    channel: Channel<client::Msg>,
    kept: Kept,
}

/// What a session stands by.
pub(super) struct Kept {
    _handle: Handle<Pinned>,
    _line: Line,
}

impl Session {
    /// The two ways of its channel, and what keeps it.
    pub(super) fn split(self) -> ((ChannelReadHalf, ChannelWriteHalf<client::Msg>), Kept) {
        (self.channel.split(), self.kept)
    }
}

/// What is wanted of a host.
pub(super) struct Wanted<'a> {
    pub(super) host: &'a HostName,
    pub(super) port: u16,
    pub(super) command: &'a Command,
    pub(super) protocol: Option<&'a str>,
}

/// Starts it.
pub(super) async fn start(
    shared: &Shared,
    sandbox: &Sandbox,
    wanted: &Wanted<'_>,
    how: &Use,
    identity: Identity,
) -> Result<Session, Refusal> {
    let Wanted { host, port, .. } = wanted;
    let unreachable = |why: String| Refusal::Unreachable { host: (*host).clone(), port: *port, why };
    let stream = dial(&sandbox.rules, &*shared.resolver, host, *port).await?;
    let line = Line(rustix::io::fcntl_dupfd_cloexec(stream.as_fd(), 0).map_err(|errno| unreachable(errno.to_string()))?);
    let known = how.known_hosts().ok_or_else(|| refused("ssh-host-key", "no key of the host is known".to_owned()))?;
    let setting = async {
        let mut handle =
            client::connect_stream(Arc::new(config(&known)), stream, Pinned { known }).await.map_err(|fault| fault.told(wanted))?;
        log_in(&mut handle, how, identity, wanted).await?;
        let failed = |error: russh::Error| unreachable(format!("opening a channel: {error}"));
        let mut channel = handle.channel_open_session().await.map_err(failed)?;
        if let Some(protocol) = wanted.protocol {
            // A server that does not take it speaks the older protocol.
            channel.set_env(false, PROTOCOL, protocol).await.map_err(failed)?;
        }
        channel.exec(true, wanted.command.text()).await.map_err(failed)?;
        loop {
            match channel.wait().await {
                Some(ChannelMsg::Success) => break,
                Some(ChannelMsg::WindowAdjusted { .. }) => {}
                Some(ChannelMsg::Failure) => return Err(unreachable("it does not run this command".to_owned())),
                Some(_) | None => return Err(unreachable("it ended before the command began".to_owned())),
            }
        }
        Ok((handle, channel))
    };
    let (handle, channel) =
        tokio::time::timeout(PATIENCE, setting).await.map_err(|_| unreachable("the session did not stand in time".to_owned()))??;
    Ok(Session { channel, kept: Kept { _handle: handle, _line: line } })
}

/// Only kinds of keys that are known are asked for, so that a host with several shows the one.
fn config(known: &[PublicKey]) -> Config {
    let kinds: Vec<_> = Preferred::DEFAULT.key.iter().filter(|kind| known.iter().any(|key| key.algorithm() == **kind)).cloned().collect();
    Config {
        client_id: SshId::Standard(Cow::Borrowed("SSH-2.0-stockade")),
        window_size: WINDOW,
        channel_buffer_size: WAITING,
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: KEEPALIVES,
        preferred: Preferred { key: Cow::Owned(kinds), ..Preferred::DEFAULT },
        ..Config::default()
    }
}

async fn log_in(handle: &mut Handle<Pinned>, how: &Use, identity: Identity, wanted: &Wanted<'_>) -> Result<(), Refusal> {
    let Identity { key, certificate } = identity;
    let (key, user) = (Arc::new(key), how.user.as_str());
    let shown = key.public_key().fingerprint(HashAlg::Sha256);
    let answer = match certificate {
        Some(certificate) => handle.authenticate_openssh_cert(user, key, certificate).await,
        None => handle.authenticate_publickey(user, PrivateKeyWithHashAlg::new(key, None)).await,
    };
    match answer {
        Ok(AuthResult::Success) => Ok(()),
        Ok(AuthResult::Failure { .. }) => Err(refused(
            "ssh-login",
            format!("`{}` does not let `{user}` in with the key {shown}: register it there, or renew its certificate", wanted.host),
        )),
        Err(error) => Err(Refusal::Unreachable { host: wanted.host.clone(), port: wanted.port, why: format!("logging in: {error}") }),
    }
}

/// A channel that a host would open, and the answer to that.
type Opened = Channel<client::Msg>;
type Reply = client::ChannelOpenHandle;

/// Believes a host by its key, where that is known, and by nothing else.
struct Pinned {
    known: Vec<PublicKey>,
}

impl client::Handler for Pinned {
    type Error = Fault;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, Fault> {
        let key = shown.public_key();
        if shown.certificate().is_none() && self.known.iter().any(|known| known.key_data() == key.key_data()) {
            return Ok(true);
        }
        Err(Fault::HostKey(Box::new(key)))
    }

    // A host may open nothing towards us. The library would say yes to all of these, and a reply that is dropped says no.

    async fn server_channel_open_session(&mut self, _: Opened, _reply: Reply, _: &mut client::Session) -> Result<(), Fault> {
        Ok(())
    }

    async fn server_channel_open_agent_forward(&mut self, _: Opened, _reply: Reply, _: &mut client::Session) -> Result<(), Fault> {
        Ok(())
    }

    async fn server_channel_open_x11(&mut self, _: Opened, _: &str, _: u32, _reply: Reply, _: &mut client::Session) -> Result<(), Fault> {
        Ok(())
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _: Opened,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _reply: Reply,
        _: &mut client::Session,
    ) -> Result<(), Fault> {
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _: Opened,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _reply: Reply,
        _: &mut client::Session,
    ) -> Result<(), Fault> {
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _: Opened,
        _: &str,
        _reply: Reply,
        _: &mut client::Session,
    ) -> Result<(), Fault> {
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _: Opened,
        _: &str,
        _reply: Reply,
        _: &mut client::Session,
    ) -> Result<(), Fault> {
        Ok(())
    }
}

/// Why a session ended before it began.
#[derive(Debug)]
enum Fault {
    HostKey(Box<PublicKey>),
    Other(russh::Error),
}

impl From<russh::Error> for Fault {
    fn from(error: russh::Error) -> Self {
        Self::Other(error)
    }
}

impl Fault {
    fn told(self, wanted: &Wanted<'_>) -> Refusal {
        let Wanted { host, port, .. } = wanted;
        match self {
            Self::HostKey(key) => {
                let mut plain = *key;
                plain.set_comment("");
                let line = plain.to_openssh().unwrap_or_default();
                let (fingerprint, line) = (plain.fingerprint(HashAlg::Sha256), line.trim());
                refused(
                    "ssh-host-key",
                    format!(
                        "`{host}:{port}` shows a key that is not known: {fingerprint}. Where that is what its owner publishes, add \"{line}\" to `ssh.hostKeys` of the secret; otherwise somebody else answers there"
                    ),
                )
            }
            Self::Other(russh::Error::NoCommonAlgo { kind: russh::AlgorithmKind::Key, .. }) => refused(
                "ssh-host-key",
                format!(
                    "`{host}:{port}` has no key of the kinds that `ssh.hostKeys` of the secret names: add what `ssh-keyscan -t ed25519,ecdsa -p {port} {host}` prints, without the host, after comparing it with what its owner publishes"
                ),
            ),
            Self::Other(error) => {
                Refusal::Unreachable { host: (*host).clone(), port: *port, why: format!("speaking SSH: {}", escape(&error.to_string())) }
            }
        }
    }
}

/// The connection itself: whoever waits for the host, or has too much to say to it, is let go when it is dropped.
struct Line(OwnedFd);

impl Drop for Line {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use russh::client::Handler as _;
    use russh::keys::PrivateKey;
    use russh::keys::ssh_key::certificate;
    use russh::keys::ssh_key::private::Ed25519Keypair;

    use super::*;

    #[tokio::test]
    async fn a_host_is_believed_by_its_key_and_not_by_a_certificate() {
        let key = |seed| PrivateKey::from(Ed25519Keypair::from_seed(&[seed; 32]));
        let mut pinned = Pinned { known: vec![key(1).public_key().clone()] };
        let plain = |seed| PublicKeyOrCertificate::PublicKey { key: key(seed).public_key().clone(), hash_alg: None };
        assert!(matches!(pinned.check_server_key(&plain(1)).await, Ok(true)));
        assert!(matches!(pinned.check_server_key(&plain(2)).await, Err(Fault::HostKey(_))));
        let mut builder = certificate::Builder::new(vec![7; 16], key(1).public_key().key_data().clone(), 0, u64::MAX - 1).unwrap();
        builder.cert_type(certificate::CertType::Host).unwrap().all_principals_valid().unwrap();
        let certificate = PublicKeyOrCertificate::Certificate(builder.sign(&key(3)).unwrap());
        assert!(matches!(pinned.check_server_key(&certificate).await, Err(Fault::HostKey(_))));
    }
}
