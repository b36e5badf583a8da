//! Connections to the agent: message after message, each bounded, and a record of each use and each refusal.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::login::Login;
use super::message::{Answer, Bind, MAX_MESSAGE, Request, Sign};
use super::policy::{self, Bound, Unfit};
use super::sessions::Session;
use super::{Entry, keys, ring};
use crate::egress::Shared;
use crate::event::{Subject, Verdict};
use crate::record::Record;
use crate::refusal::{Refusal, SSH_AGENT};
use crate::sandbox::Sandbox;

/// How long the rest of a message may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The method of a use, in the record.
const SIGN: &str = "SIGN";
/// The method of a binding that was refused.
const BIND: &str = "BIND";
/// The method of everything else that was refused.
const ASK: &str = "ASK";

/// Whose a connection is.
enum Standing {
    /// Nobody said.
    Unbound,
    /// A program's, for one session.
    Bound(Bound, Weak<Session>),
    /// A host's, for good: what a program let through to it cannot be told from the program's own words any more.
    Forwarded,
}

/// Serves one connection to its end.
pub(crate) async fn serve<S>(shared: &Arc<Shared>, sandbox: &Arc<Sandbox>, mut stream: S)
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    if sandbox.rules.agent.is_empty() {
        return;
    }
    let mut asked = Asked { shared, sandbox, standing: Standing::Unbound };
    let mut message = Vec::new();
    loop {
        let Ok(Ok(length)) = tokio::time::timeout(sandbox.rules.limits.idle, stream.read_u32()).await else { return };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if !(1..=MAX_MESSAGE).contains(&length) {
            return asked.refuse(ASK, None, &unfit(Unfit::Message));
        }
        message.resize(length, 0);
        let Ok(Ok(_)) = tokio::time::timeout(PATIENCE, stream.read_exact(&mut message)).await else { return };
        let Some(request) = Request::parse(&message) else { return asked.refuse(ASK, None, &unfit(Unfit::Message)) };
        if shared.events.has_room().await.is_err() {
            return;
        }
        let answer = asked.answer(request).await.bytes();
        if stream.write_all(&answer).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

fn unfit(why: Unfit) -> Refusal {
    Refusal::SshAgent { name: None, why }
}

/// One connection.
struct Asked<'a> {
    shared: &'a Arc<Shared>,
    sandbox: &'a Arc<Sandbox>,
    standing: Standing,
}

impl Asked<'_> {
    async fn answer(&mut self, request: Request<'_>) -> Answer {
        if let Err(refusal) = self.sandbox.take_request() {
            self.refuse(ASK, None, &refusal);
            return Answer::Failure;
        }
        match request {
            Request::Identities => Answer::Identities(self.identities().await),
            Request::Bind(bind) => self.bind(&bind),
            Request::Sign(sign) => self.sign(sign).await,
            Request::Other(kind) => {
                self.refuse(ASK, None, &unfit(Unfit::Other(kind)));
                Answer::Failure
            }
        }
    }

    /// The keys that can be had now; one that cannot is told when it is needed.
    async fn identities(&self) -> Vec<(Vec<u8>, String)> {
        let mut identities = Vec::new();
        for entry in &self.sandbox.rules.agent {
            if let (Ok(shown), Ok(secret)) = (self.shown_of(entry).await, ring::secret_of(self.sandbox, entry)) {
                identities.extend(shown.into_iter().map(|shown| (shown, secret.name.to_string())));
            }
        }
        identities
    }

    fn bind(&mut self, asked: &Bind<'_>) -> Answer {
        match self.bound(asked) {
            Ok(standing) => {
                self.standing = standing;
                Answer::Success
            }
            Err(why) => {
                if why == Unfit::Forwarded {
                    self.standing = Standing::Forwarded;
                }
                self.refuse(BIND, Some(keys::fingerprint(asked.host_key)), &unfit(why));
                Answer::Failure
            }
        }
    }

    fn bound(&self, asked: &Bind<'_>) -> Result<Standing, Unfit> {
        match self.standing {
            Standing::Unbound => {}
            Standing::Forwarded => return Err(Unfit::Forwarded),
            // A connection that comes to be a host's is none of the program's any more.
            Standing::Bound(..) if asked.is_forwarding => return Err(Unfit::Forwarded),
            Standing::Bound(..) => return Err(Unfit::Again),
        }
        let bound = policy::bind(asked)?;
        if !self.sandbox.rules.agent.iter().any(|entry| entry.host_keys.contains(&bound.host_key)) {
            return Err(Unfit::HostKey(keys::fingerprint(asked.host_key)));
        }
        let session = self.sandbox.sessions.find(asked.host_key, asked.signature);
        let session = session.ok_or_else(|| Unfit::Elsewhere(keys::fingerprint(asked.host_key)))?;
        Ok(Standing::Bound(bound, session))
    }

    async fn sign(&self, sign: Sign<'_>) -> Answer {
        let record = self.record(SIGN, self.shown(sign.data));
        match self.signed(sign, &record).await {
            Ok(signature) => Answer::Signature(signature),
            Err(refusal) => {
                record.refuse(&refusal);
                Answer::Failure
            }
        }
    }

    /// The one place where something goes inside.
    async fn signed(&self, sign: Sign<'_>, record: &Record) -> Result<Vec<u8>, Refusal> {
        let (bound, session) = match &self.standing {
            Standing::Bound(bound, session) => (bound, session.upgrade().ok_or_else(|| unfit(Unfit::Over))?),
            Standing::Unbound => return Err(unfit(Unfit::NotBound)),
            Standing::Forwarded => return Err(unfit(Unfit::Forwarded)),
        };
        // Before anybody is asked for a value.
        let login = policy::login(bound, sign.key, sign.data).map_err(unfit)?;
        let mut fitting = Err(unfit(Unfit::Key));
        for entry in self.owners(sign.key).await? {
            let secret = ring::secret_of(self.sandbox, entry)?;
            let fits = policy::may_sign(bound, &login, &entry.host_keys, &entry.user)
                .and_then(|()| if secret.is_for(&session.host, session.port) { Ok(()) } else { Err(Unfit::Host) });
            fitting = fits.map(|()| (entry, secret)).map_err(|why| Refusal::SshAgent { name: Some(Arc::clone(&secret.name)), why });
            if fitting.is_ok() {
                break;
            }
        }
        let (entry, secret) = fitting?;
        secret.spend(SystemTime::now())?;
        let key = self.sandbox.ring.take(self.sandbox, &*self.shared.secrets, entry).await?;
        // It may be another one by now.
        let signature = key.shown().any(|shown| shown == sign.key).then(|| key.sign(sign.data)).flatten();
        let signature = signature.ok_or_else(|| unfit(Unfit::Key))?;
        record.use_secret(&secret.name);
        record.allow(Verdict::Allow, SSH_AGENT.to_owned());
        record.add_received(signature.len() as u64);
        Ok(signature)
    }

    /// Whose a key is that a program names: secrets for several hosts may be one key.
    async fn owners(&self, named: &[u8]) -> Result<Vec<&Entry>, Refusal> {
        let (mut owners, mut missing) = (Vec::new(), None);
        for entry in &self.sandbox.rules.agent {
            match self.shown_of(entry).await {
                Ok(shown) if shown.iter().any(|shown| shown == named) => owners.push(entry),
                Ok(_) => {}
                Err(refusal) => missing = Some(refusal),
            }
        }
        match missing {
            Some(refusal) if owners.is_empty() => Err(refusal),
            Some(_) | None => Ok(owners),
        }
    }

    async fn shown_of(&self, entry: &Entry) -> Result<Vec<Vec<u8>>, Refusal> {
        self.sandbox.ring.shown(self.sandbox, &*self.shared.secrets, entry).await
    }

    /// As whom, and at whose: `git@SHA256:…`.
    fn shown(&self, data: &[u8]) -> Option<String> {
        let Standing::Bound(bound, _) = &self.standing else { return None };
        let user = Login::parse(data).map_or("", |login| login.user);
        Some(format!("{user}@{}", keys::fingerprint(&bound.host_key)))
    }

    fn refuse(&self, method: &'static str, path: Option<String>, refusal: &Refusal) {
        self.record(method, path).refuse(refusal);
    }

    fn record(&self, method: &'static str, path: Option<String>) -> Record {
        let session = match &self.standing {
            Standing::Bound(_, session) => session.upgrade(),
            Standing::Unbound | Standing::Forwarded => None,
        };
        let (host, port) = session.map(|session| (session.host.to_string(), session.port)).unwrap_or_default();
        let record = Record::of_text(&self.shared.events, self.sandbox, Subject::Request, host, port);
        record.of_agent(method, path)
    }
}
