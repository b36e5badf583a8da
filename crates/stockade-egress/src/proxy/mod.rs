//! The way in: what a connection's first bytes ask for. HTTP proxy, SOCKS5, DNS, or nothing at all because the program knows no proxy.

mod tunnel;

pub mod socks;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use stockade_core::host::HostName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::agent;
use crate::desk;
use crate::dns;
use crate::egress::Shared;
use crate::event::Subject;
use crate::http::forward::LegTarget;
use crate::http::head::{self, Shape};
use crate::http::serve;
use crate::origin::Kind;
use crate::peek::Peek;
use crate::record::{Record, shown_host};
use crate::refusal::Refusal;
use crate::rules::Mode;
use crate::sandbox::Sandbox;
use crate::tls::hello::HANDSHAKE;

/// How long a program may take to say what it wants.
const PATIENCE: Duration = Duration::from_mins(1);
/// The port that events about names show.
const DNS_PORT: u16 = 53;

/// Serves one connection to its end.
pub(crate) async fn serve<S>(shared: &Arc<Shared>, sandbox: &Arc<Sandbox>, kind: Kind, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Ok(_place) = Arc::clone(&sandbox.connections).try_acquire_owned() else {
        let most = sandbox.rules.limits.connections;
        refuse_text(shared, sandbox, String::new(), &Refusal::Limit { what: format!("{most} connections at one time") });
        return;
    };
    let work = async {
        match kind {
            Kind::Dns => names(shared, sandbox, stream).await,
            Kind::Agent => agent::serve(shared, sandbox, stream).await,
            Kind::Proxy => proxied(shared, sandbox, Peek::new(stream)).await,
            Kind::Transparent(address) => transparent(shared, sandbox, address, Peek::new(stream)).await,
        }
    };
    tokio::select! {
        () = Box::pin(work) => {}
        () = sandbox.closed() => {}
    }
}

/// A connection that a program made to an address it was told for a name, or knows by itself.
async fn transparent<S>(shared: &Arc<Shared>, sandbox: &Arc<Sandbox>, address: SocketAddr, stream: Peek<S>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    if desk::is_metadata(sandbox, &HostName::Address(address.ip()), address.port()) {
        return serve::http1(shared, sandbox, LegTarget::Metadata, stream).await;
    }
    let host = HostName::Address(address.ip());
    match named(sandbox, host, address.port()).and_then(|host| tunnel::judge(sandbox, &host, address.port()).map(|judged| (host, judged))) {
        Ok((host, judged)) => tunnel::serve(shared, sandbox, host, address.port(), judged, stream).await,
        Err(refusal) => {
            let record = Record::new(&shared.events, sandbox, Subject::Connection, &HostName::Address(address.ip()), address.port());
            record.refuse(&refusal);
            drop(record);
            answer_if_http(stream, &refusal).await;
        }
    }
}

/// Somebody who speaks HTTP in the clear can be told why.
async fn answer_if_http<S: AsyncRead + AsyncWrite + Unpin>(mut stream: Peek<S>, refusal: &Refusal) {
    if stream.first(Duration::from_secs(1)).await.is_ok_and(|byte| byte.is_ascii_uppercase()) {
        say(&mut stream.stream, &page(refusal)).await;
    }
}

/// The name behind one of our made-up addresses; other addresses are what they are.
fn named(sandbox: &Sandbox, host: HostName, port: u16) -> Result<HostName, Refusal> {
    let HostName::Address(IpAddr::V4(address)) = host else { return Ok(host) };
    if let Some(name) = sandbox.synthetic().name_of(address) {
        return Ok(HostName::Name(name.to_owned()));
    }
    let [first, second, ..] = address.octets();
    if first == 198 && second & 0xfe == 18 {
        return Err(Refusal::NoName { address: IpAddr::V4(address), port });
    }
    Ok(host)
}

/// A connection to the proxy's own port.
async fn proxied<S>(shared: &Arc<Shared>, sandbox: &Arc<Sandbox>, mut stream: Peek<S>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    match stream.first(sandbox.rules.limits.idle.min(PATIENCE)).await {
        Ok(5) => socks5(shared, sandbox, stream).await,
        Ok(HANDSHAKE) => refuse_text(shared, sandbox, String::new(), &Refusal::Unsupported("the proxy itself is spoken to in the clear")),
        Ok(_) => http(shared, sandbox, stream).await,
        // Whoever says nothing is owed no answer.
        Err(_) => {}
    }
}

/// What the first head asks for.
enum Asked {
    Tunnel { host: HostName, port: u16, head: usize },
    Request,
}

async fn http<S>(shared: &Arc<Shared>, sandbox: &Arc<Sandbox>, mut stream: Peek<S>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let asked = loop {
        match head::parse(&stream.seen, sandbox.rules.limits.head_bytes) {
            Ok(Some(head)) if head.method == "CONNECT" => break connect_target(&head),
            Ok(Some(_)) => break Ok(Asked::Request),
            Ok(None) => {}
            Err(shape) => break Err((Refusal::Shape(shape), String::new())),
        }
        if stream.more(PATIENCE).await.is_err() {
            return;
        }
    };
    match asked {
        Ok(Asked::Request) => serve::http1(shared, sandbox, LegTarget::Named, stream).await,
        Ok(Asked::Tunnel { host, port, head }) => {
            let judged =
                named(sandbox, host.clone(), port).and_then(|host| tunnel::judge(sandbox, &host, port).map(|judged| (host, judged)));
            match judged {
                Ok((host, judged)) => {
                    bytes::Buf::advance(&mut stream.seen, head);
                    say(&mut stream.stream, b"HTTP/1.1 200 Connection established\r\n\r\n").await;
                    tunnel::serve(shared, sandbox, host, port, judged, stream).await;
                }
                Err(refusal) => {
                    Record::new(&shared.events, sandbox, Subject::Connection, &host, port).refuse(&refusal);
                    say(&mut stream.stream, &page(&refusal)).await;
                }
            }
        }
        Err((refusal, text)) => {
            refuse_text(shared, sandbox, text, &refusal);
            say(&mut stream.stream, &page(&refusal)).await;
        }
    }
}

/// Whom `CONNECT` names; a `Host` beside it must name the same.
fn connect_target(head: &head::Head<'_>) -> Result<Asked, (Refusal, String)> {
    let bad = |text: &str| (Refusal::BadHost(format!("`{}` is not a host with a port", shown_host(text))), shown_host(text));
    let (host, port) =
        HostName::parse_authority(head.target, 0).map_err(|error| (Refusal::BadHost(error.to_string()), shown_host(head.target)))?;
    if port == 0 {
        return Err(bad(head.target));
    }
    if !head.host.is_empty() {
        let (also, also_port) =
            HostName::parse_authority(head.host, port).map_err(|_| (Refusal::Shape(Shape::HostDiffers), shown_host(head.host)))?;
        if (&also, also_port) != (&host, port) {
            return Err((Refusal::Shape(Shape::HostDiffers), host.to_string()));
        }
    }
    Ok(Asked::Tunnel { host, port, head: head.length })
}

async fn socks5<S>(shared: &Arc<Shared>, sandbox: &Arc<Sandbox>, mut stream: Peek<S>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    use socks::{Answer, SocksError};
    let greeted = loop {
        match socks::greeting(&stream.seen) {
            Ok(Some(length)) => break length,
            Ok(None) if stream.seen.len() <= socks::MAX_MESSAGE && stream.more(PATIENCE).await.is_ok() => {}
            Err(SocksError::Method) => return say(&mut stream.stream, &socks::NO_METHOD).await,
            Ok(None) | Err(_) => return,
        }
    };
    bytes::Buf::advance(&mut stream.seen, greeted);
    say(&mut stream.stream, &socks::WELCOME).await;
    let asked = loop {
        match socks::request(&stream.seen) {
            Ok(Some(asked)) => break asked,
            Ok(None) if stream.seen.len() <= socks::MAX_MESSAGE && stream.more(PATIENCE).await.is_ok() => {}
            Ok(None) | Err(SocksError::Malformed | SocksError::Method) => return,
            Err(SocksError::Command) => return say(&mut stream.stream, &Answer::NoCommand.bytes()).await,
            Err(SocksError::Kind) => return say(&mut stream.stream, &Answer::NoKind.bytes()).await,
            Err(SocksError::Host(bad)) => {
                refuse_text(shared, sandbox, String::new(), &Refusal::BadHost(bad.to_string()));
                return say(&mut stream.stream, &Answer::Refused.bytes()).await;
            }
        }
    };
    bytes::Buf::advance(&mut stream.seen, asked.length);
    let port = asked.port;
    let judged = named(sandbox, asked.host.clone(), port).and_then(|host| tunnel::judge(sandbox, &host, port).map(|judged| (host, judged)));
    match judged {
        Ok((host, judged)) => {
            say(&mut stream.stream, &Answer::Granted.bytes()).await;
            tunnel::serve(shared, sandbox, host, port, judged, stream).await;
        }
        Err(refusal) => {
            Record::new(&shared.events, sandbox, Subject::Connection, &asked.host, port).refuse(&refusal);
            let answer = if matches!(refusal, Refusal::Unreachable { .. }) { Answer::Unreachable } else { Answer::Refused };
            say(&mut stream.stream, &answer.bytes()).await;
        }
    }
}

/// DNS messages, each after its length.
async fn names<S>(shared: &Arc<Shared>, sandbox: &Arc<Sandbox>, mut stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut message = Vec::new();
    loop {
        let Ok(Ok(length)) = tokio::time::timeout(sandbox.rules.limits.idle, stream.read_u16()).await else { return };
        if usize::from(length) > dns::MAX_MESSAGE || shared.events.has_room().await.is_err() {
            return;
        }
        message.resize(usize::from(length), 0);
        let Ok(Ok(_)) = tokio::time::timeout(PATIENCE, stream.read_exact(&mut message)).await else { return };
        let Some(answer) = dns::answer(&message, |host| look_up(shared, sandbox, host)) else { continue };
        let Ok(length) = u16::try_from(answer.len()) else { continue };
        let framed = [&length.to_be_bytes()[..], &answer].concat();
        if stream.write_all(&framed).await.is_err() {
            return;
        }
    }
}

fn look_up(shared: &Shared, sandbox: &Sandbox, host: &HostName) -> dns::Known {
    if desk::is_metadata(sandbox, host, desk::METADATA_PORT) {
        return dns::Known::At(desk::METADATA);
    }
    if let HostName::Name(name) = host
        && (sandbox.rules.knows(host) || sandbox.rules.mode == Mode::Learn)
    {
        return dns::Known::At(sandbox.synthetic().address_of(name));
    }
    let record = Record::new(&shared.events, sandbox, Subject::Name, host, DNS_PORT);
    record.refuse(&Refusal::Host { host: host.clone(), port: 443 });
    dns::Known::Nothing
}

fn refuse_text(shared: &Shared, sandbox: &Sandbox, host: String, refusal: &Refusal) {
    Record::of_text(&shared.events, sandbox, Subject::Connection, host, 0).refuse(refusal);
}

/// A whole answer, for where hyper is not there yet.
fn page(refusal: &Refusal) -> Vec<u8> {
    let (status, text) = (refusal.status(), refusal.page());
    let reason = status.canonical_reason().unwrap_or("Refused");
    format!(
        "HTTP/1.1 {} {reason}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\nx-stockade-rule: {}\r\nconnection: close\r\n\r\n{text}",
        status.as_u16(),
        text.len(),
        refusal.rule(),
    )
    .into_bytes()
}

/// Writes, to somebody who may have gone; then that is all the same.
async fn say<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) {
    let _ = stream.write_all(bytes).await;
    let _ = stream.flush().await;
}
