//! A connection to one host: opened, passed on after the check of its name, or any bytes where a rule says so.
//!
//! ```text
//! first byte ─ TLS ──▶ client hello: server name = host ─▶ pass: dial, relay
//!     │                                                  └▶ inspect: be the host, serve HTTP/1 or HTTP/2
//!     ├─ HTTP ─▶ serve HTTP/1
//!     ├─ SSH, where programs log in with a key of the agent ─▶ dial, relay
//!     └─ else, or none for a while ─▶ refused
//! ```

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use ::http::Method;
use stockade_core::host::HostName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::dial::dial;
use crate::egress::Shared;
use crate::event::{Subject, Verdict};
use crate::http::forward::LegTarget;
use crate::http::pool::{Destination, Scheme};
use crate::http::serve;
use crate::peek::Peek;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::relay::{Along, relay};
use crate::rules::judge::{Asked, Denied};
use crate::rules::{HostRule, Tls};
use crate::sandbox::Sandbox;
use crate::tls::hello::{self, HANDSHAKE, Hello};

/// How long a client may take for its first bytes. One that waits for the server to speak first waits in vain.
const FIRST_BYTES: Duration = Duration::from_mins(1);
/// How long it may take for a handshake.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a client of SSH begins with (RFC 4253, section 4.2).
const SSH: &[u8] = b"SSH-2.0-";

/// What the rules say of a connection.
pub(super) struct Judged {
    verdict: Verdict,
    rule: String,
    treatment: Tls,
}

/// Whether connections to this host may be made at all.
pub(super) fn judge(sandbox: &Sandbox, host: &HostName, port: u16) -> Result<Judged, Refusal> {
    let (verdict, rule) = sandbox.judge(host, port, sandbox.rules.connect(host, port).map(HostRule::name))?;
    // A secret is put in and taken out inside, so its hosts are always opened.
    let treatment = if sandbox.bound_to(host, port) == 0 { sandbox.rules.treatment(host, port) } else { Tls::Inspect };
    Ok(Judged { verdict, rule, treatment })
}

/// Serves the connection to its end.
pub(super) async fn serve<S>(shared: &Arc<Shared>, sandbox: &Arc<Sandbox>, host: HostName, port: u16, judged: Judged, mut stream: Peek<S>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    if judged.treatment == Tls::Tunnel {
        return pass(shared, sandbox, &host, port, judged, stream).await;
    }
    let refuse = |refusal: &Refusal| Record::new(&shared.events, sandbox, Subject::Connection, &host, port).refuse(refusal);
    let waited = FIRST_BYTES.min(sandbox.rules.limits.idle);
    let begun = match stream.begins_with(SSH, waited).await {
        Ok(true) => match sandbox.logs_in_at(&host, port) {
            Some(secret) => return pass_ssh(shared, sandbox, &host, port, &secret.name, judged, stream).await,
            None => return refuse(&Refusal::PlainSsh { host: host.clone(), port }),
        },
        Ok(false) => stream.first(waited).await,
        Err(error) => Err(error),
    };
    match begun {
        Ok(HANDSHAKE) => {}
        Ok(first) if first.is_ascii_uppercase() => {
            let destination = Destination { host, port, scheme: Scheme::Http };
            return serve::http1(shared, sandbox, LegTarget::Fixed(destination), stream).await;
        }
        Ok(_) => return refuse(&Refusal::Protocol { host: host.clone(), port }),
        Err(error) if error.kind() == ErrorKind::TimedOut => return refuse(&Refusal::Silent { host: host.clone(), port, waited }),
        // A connection that was opened and not used, as browsers do.
        Err(_) => return,
    }
    let hello = loop {
        match hello::read(&stream.seen) {
            Ok(Some(hello)) => break hello,
            Ok(None) => {
                if stream.more(PATIENCE).await.is_err() {
                    return refuse(&Refusal::Hello("broke off"));
                }
            }
            Err(bad) => return refuse(&Refusal::Hello(bad.as_str())),
        }
    };
    if let Err(refusal) = same_name(&host, &hello) {
        return refuse(&refusal);
    }
    match judged.treatment {
        Tls::Pass => pass(shared, sandbox, &host, port, judged, stream).await,
        Tls::Inspect | Tls::Tunnel => {
            if let Err(refusal) = inspect(shared, sandbox, host.clone(), port, stream).await {
                refuse(&refusal);
            }
        }
    }
}

/// The name in the hello is the host; where the host is an address there is none.
fn same_name(host: &HostName, hello: &Hello) -> Result<(), Refusal> {
    match (&hello.server_name, host) {
        (Some(name), host) if name == host => Ok(()),
        (None, HostName::Address(_)) => Ok(()),
        (None, HostName::Name(_)) => Err(Refusal::Hello("names no server")),
        (Some(name), _) => Err(Refusal::NamesDiffer {
            first_place: "connection",
            first: host.to_string(),
            second_place: "TLS server name",
            second: name.to_string(),
        }),
    }
}

/// Dials and relays, unopened.
async fn pass<S>(shared: &Arc<Shared>, sandbox: &Arc<Sandbox>, host: &HostName, port: u16, judged: Judged, stream: Peek<S>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let record = Record::new(&shared.events, sandbox, Subject::Connection, host, port);
    if shared.events.has_room().await.is_err() {
        return record.refuse(&Refusal::NoRecord);
    }
    record.allow(judged.verdict, judged.rule);
    match reach(shared, sandbox, host, port).await {
        Ok(outside) => copy(sandbox, &record, stream, outside).await,
        Err(refusal) => record.refuse(&refusal),
    }
}

/// Dials and relays a session of SSH, unopened but for its beginning, which the agent must know. It can be asked for anything inside, so rules that look
/// inside of connections to this host must let anything through.
async fn pass_ssh<S>(
    shared: &Arc<Shared>,
    sandbox: &Arc<Sandbox>,
    host: &HostName,
    port: u16,
    secret: &str,
    judged: Judged,
    stream: Peek<S>,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let record = Record::new(&shared.events, sandbox, Subject::Connection, host, port);
    if shared.events.has_room().await.is_err() {
        return record.refuse(&Refusal::NoRecord);
    }
    let allowed = sandbox.judge(host, port, sandbox.rules.request(host, port, &Method::CONNECT, "/").map(HostRule::name));
    let asked = Asked { host, port, tls: false, method: Method::CONNECT.as_str(), path: "/", secret: Some(secret) };
    let denied = |Denied { rule, why }| Refusal::Policy { rule, why };
    let allowed = allowed.and_then(|_| sandbox.rules.judge.as_ref().map_or(Ok(()), |judge| judge.judge(&asked).map_err(denied)));
    if let Err(refusal) = allowed {
        return record.refuse(&refusal);
    }
    record.allow(judged.verdict, judged.rule);
    let outside = reach(shared, sandbox, host, port).await.and_then(|outside| sandbox.sessions.overhear(host, port, outside));
    match outside {
        Ok(outside) => copy(sandbox, &record, stream, outside).await,
        Err(refusal) => record.refuse(&refusal),
    }
}

async fn reach(shared: &Shared, sandbox: &Sandbox, host: &HostName, port: u16) -> Result<TcpStream, Refusal> {
    sandbox.take_request()?;
    dial(&sandbox.rules, &*shared.resolver, host, port).await
}

async fn copy<A, B>(sandbox: &Sandbox, record: &Record, inside: A, outside: B)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    if let Err(error) = relay(sandbox, record, inside, outside, Along::default()).await {
        record.note(error.to_string());
    }
}

/// Is the host towards the client, and serves its requests.
async fn inspect<S>(shared: &Arc<Shared>, sandbox: &Arc<Sandbox>, host: HostName, port: u16, stream: Peek<S>) -> Result<(), Refusal>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let config = shared.authority.server_config(&host).map_err(|_| Refusal::Hello("needs a certificate that cannot be made"))?;
    let stream = match tokio::time::timeout(PATIENCE, TlsAcceptor::from(config).accept(stream)).await {
        Ok(Ok(stream)) => stream,
        // As a rule: the client does not trust our authority.
        Ok(Err(_)) => return Err(Refusal::Hello("failed on the client's side: does it trust the sandbox's certificate authority?")),
        Err(_) => return Err(Refusal::Hello("took too long")),
    };
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let target = LegTarget::Fixed(Destination { host, port, scheme: Scheme::Https });
    if http2 {
        serve::http2(shared, sandbox, target, stream).await;
    } else {
        serve::http1(shared, sandbox, target, stream).await;
    }
    Ok(())
}
