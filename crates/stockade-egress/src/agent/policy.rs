//! What is signed: the checks of a connection's binding and of a login, one refusal for each. Pure but for the arithmetic of signatures.

use super::keys;
use super::login::Login;
use super::message::Bind;

/// The service that a login is for.
const SERVICE: &str = "ssh-connection";
/// The longest name of a user, or kind of a key, that is shown.
const SHOWN: usize = 64;

/// Why there is no signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A message that is not the protocol's.
    #[error("what was said to the agent is too long, or is no message of its protocol")]
    Message,
    /// A message that this agent does not answer.
    #[error("the agent only lists keys and signs logins; it does nothing else (message {0})")]
    Other(u8),
    /// What follows comes from a host.
    #[error("the agent is not forwarded to hosts (`ssh -A`)")]
    Forwarded,
    /// A second session on one connection.
    #[error("the connection to the agent belongs to another session already")]
    Again,
    /// The signature is not the host's.
    #[error("the host with the key {0} did not sign this session")]
    NotSigned(String),
    /// Nobody has a session with that host through here.
    #[error("no session with the key {0} was seen on its way out of this sandbox")]
    Elsewhere(String),
    /// A host that no secret is for.
    #[error("{0} is no key of a host that the secret is for; its settings name them in `ssh.hostKeys`")]
    HostKey(String),
    /// Nobody said which session it is for.
    #[error("the connection to the agent belongs to no session with a host: `ssh` of OpenSSH 8.9 and later says which")]
    NotBound,
    /// The session is over.
    #[error("the session is over")]
    Over,
    /// Something else than a login.
    #[error("only logins are signed, and this is none")]
    NotALogin,
    /// A login in another session.
    #[error("the login is for another session than the one that the connection to the agent belongs to")]
    Session,
    /// A login at another host.
    #[error("the login names another host's key than the session's")]
    LoginHostKey,
    /// A login as somebody else.
    #[error("the login is as `{0}`, which the secret is not for; its settings name the user in `ssh.user`")]
    User(String),
    /// A login for something else.
    #[error("the login is for another service than `{SERVICE}`")]
    Service,
    /// A login with another key than the one that is to sign.
    #[error("the login is with another key than the one that is to sign it")]
    LoginKey,
    /// A login that is to be signed in another way.
    #[error("the login is to be signed as `{0}`, which is not the key's own way")]
    Algorithm(String),
    /// A key that is not here.
    #[error("there is no such key")]
    Key,
    /// A host that the secret is not for.
    #[error("the session is with another host than those that the secret is for")]
    Host,
}

/// The session that a connection to the agent belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The host's key.
    pub host_key: Vec<u8>,
    /// The session's identifier.
    pub session: Vec<u8>,
}

/// Checks what binds a connection.
pub fn bind(bind: &Bind<'_>) -> Result<Bound, Unfit> {
    if bind.is_forwarding {
        return Err(Unfit::Forwarded);
    }
    if !keys::is_signed(bind.host_key, bind.session, bind.signature) {
        return Err(Unfit::NotSigned(keys::fingerprint(bind.host_key)));
    }
    Ok(Bound { host_key: bind.host_key.to_vec(), session: bind.session.to_vec() })
}

/// Reads what is to be signed with a key, and checks what holds whichever key it is.
pub fn login<'a>(bound: &Bound, key: &[u8], data: &'a [u8]) -> Result<Login<'a>, Unfit> {
    let login = Login::parse(data).ok_or(Unfit::NotALogin)?;
    if login.session != bound.session {
        return Err(Unfit::Session);
    }
    if login.host_key.is_some_and(|host_key| host_key != bound.host_key) {
        return Err(Unfit::LoginHostKey);
    }
    if login.service != SERVICE {
        return Err(Unfit::Service);
    }
    if login.key != key {
        return Err(Unfit::LoginKey);
    }
    if keys::kind(key) != Some(login.algorithm) {
        return Err(Unfit::Algorithm(login.algorithm.chars().take(SHOWN).collect()));
    }
    Ok(login)
}

/// Checks what one key may be used for.
pub fn may_sign(bound: &Bound, login: &Login<'_>, host_keys: &[Vec<u8>], user: &str) -> Result<(), Unfit> {
    if !host_keys.contains(&bound.host_key) {
        return Err(Unfit::HostKey(keys::fingerprint(&bound.host_key)));
    }
    if login.user != user {
        return Err(Unfit::User(login.user.chars().take(SHOWN).collect()));
    }
    Ok(())
}
