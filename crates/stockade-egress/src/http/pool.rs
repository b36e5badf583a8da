//! Connections to hosts: made, lent to one request at a time, kept for a while.
//!
//! Each sandbox has its own: what one sandbox did to a connection, another never meets. HTTP/1 connections are not tasks of their own;
//! whoever borrows one drives it. HTTP/2 connections are shared and driven by a task that ends with them.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ::http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use stockade_core::host::HostName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::body::request::RequestBody;
use crate::dial::dial;
use crate::egress::Shared;
use crate::refusal::Refusal;
use crate::sandbox::{IDLE_UPSTREAM, Sandbox};
use crate::tls::upstream::server_name;

/// The most idle connections of one sandbox to one host.
const MAX_IDLE: usize = 64;
/// How long a TLS handshake may take.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(20);
/// How often a silent HTTP/2 connection is asked whether it is there.
const PING: Duration = Duration::from_mins(1);
/// The most bytes of an answer's head.
const MAX_ANSWER_HEAD: usize = 256 << 10;
/// Header lines of an answer.
const MAX_ANSWER_LINES: usize = 256;

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Destination {
    pub(crate) host: HostName,
    pub(crate) port: u16,
    pub(crate) scheme: Scheme,
}

/// How it is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    pub(crate) fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// Which protocol the client speaks; the other leg speaks the same where it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// Idle connections of one sandbox.
#[derive(Default)]
pub(crate) struct Pool {
    idle: Mutex<HashMap<Destination, Vec<(Instant, Wire)>>>,
    shared: Mutex<HashMap<Destination, http2::SendRequest<RequestBody>>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pool")
    }
}

type Line = TokioIo<UpstreamStream>;

/// One HTTP/1 connection.
struct Wire {
    sender: http1::SendRequest<RequestBody>,
    connection: Pin<Box<http1::Connection<Line, RequestBody>>>,
    alive: bool,
}

/// A borrowed HTTP/1 connection.
pub(crate) struct Lease {
    wire: Wire,
    destination: Destination,
    sandbox: Arc<Sandbox>,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("destination", &self.destination).finish_non_exhaustive()
    }
}

/// A connection that a request can be sent on.
pub(crate) enum Route {
    One(Box<Lease>),
    Shared(http2::SendRequest<RequestBody>),
}

/// Whether a connection was used before: then the other side may just have closed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    Fresh,
    Used,
}

impl Pool {
    pub(crate) fn clear(&self) {
        lock(&self.idle).clear();
        lock(&self.shared).clear();
    }

    /// Lets go of what has been idle for too long.
    pub(crate) fn sweep(&self) {
        lock(&self.idle).retain(|_, wires| {
            wires.retain(|(since, _)| since.elapsed() < IDLE_UPSTREAM);
            !wires.is_empty()
        });
        lock(&self.shared).retain(|_, sender| !sender.is_closed());
    }

    fn take_idle(&self, destination: &Destination) -> Option<Wire> {
        loop {
            let (since, mut wire) = lock(&self.idle).get_mut(destination)?.pop()?;
            if since.elapsed() >= IDLE_UPSTREAM {
                continue;
            }
            wire.drive(&mut Context::from_waker(Waker::noop()));
            if wire.is_ready() {
                return Some(wire);
            }
        }
    }
}

/// A connection to the destination: an idle one, a shared one, or a new one.
pub(crate) async fn route(
    shared: &Shared,
    sandbox: &Arc<Sandbox>,
    destination: &Destination,
    protocol: Protocol,
    wanted: Option<Freshness>,
) -> Result<(Route, Freshness), Refusal> {
    if wanted != Some(Freshness::Fresh) {
        if protocol == Protocol::Http2 {
            let sender = lock(&sandbox.pool.shared).get(destination).filter(|sender| !sender.is_closed()).cloned();
            if let Some(sender) = sender {
                return Ok((Route::Shared(sender), Freshness::Used));
            }
        }
        if let Some(wire) = sandbox.pool.take_idle(destination) {
            return Ok((Route::One(Box::new(lease(wire, destination, sandbox))), Freshness::Used));
        }
    }
    let (stream, spoken) = connect(shared, sandbox, destination, protocol).await?;
    let failed = |error: hyper::Error| unreachable(destination, error.to_string());
    match spoken {
        Protocol::Http1 => {
            let (sender, connection) = http1_builder().handshake(TokioIo::new(stream)).await.map_err(failed)?;
            let wire = Wire { sender, connection: Box::pin(connection), alive: true };
            Ok((Route::One(Box::new(lease(wire, destination, sandbox))), Freshness::Fresh))
        }
        Protocol::Http2 => {
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_header_list_size(MAX_ANSWER_HEAD as u32)
                .keep_alive_interval(PING)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(failed)?;
            let watched = Arc::clone(sandbox);
            tokio::spawn(async move {
                tokio::select! {
                    _ = connection => {}
                    () = watched.closed() => {}
                }
            });
            lock(&sandbox.pool.shared).insert(destination.clone(), sender.clone());
            Ok((Route::Shared(sender), Freshness::Fresh))
        }
    }
}

/// A new connection for an upgrade: HTTP/1, driven by a task, never shared or kept.
pub(crate) async fn dedicated(
    shared: &Shared,
    sandbox: &Arc<Sandbox>,
    destination: &Destination,
) -> Result<http1::SendRequest<RequestBody>, Refusal> {
    let (stream, _) = connect(shared, sandbox, destination, Protocol::Http1).await?;
    let made = http1_builder().handshake(TokioIo::new(stream)).await;
    let (sender, connection) = made.map_err(|error| unreachable(destination, error.to_string()))?;
    let watched = Arc::clone(sandbox);
    tokio::spawn(async move {
        tokio::select! {
            _ = connection.with_upgrades() => {}
            () = watched.closed() => {}
        }
    });
    Ok(sender)
}

fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.max_headers(MAX_ANSWER_LINES).max_header_size(MAX_ANSWER_HEAD);
    builder
}

fn lease(wire: Wire, destination: &Destination, sandbox: &Arc<Sandbox>) -> Lease {
    Lease { wire, destination: destination.clone(), sandbox: Arc::clone(sandbox) }
}

async fn connect(
    shared: &Shared,
    sandbox: &Sandbox,
    destination: &Destination,
    protocol: Protocol,
) -> Result<(UpstreamStream, Protocol), Refusal> {
    let Destination { host, port, scheme } = destination;
    let stream = dial(&sandbox.rules, &*shared.resolver, host, *port).await?;
    if *scheme == Scheme::Http {
        return Ok((UpstreamStream::Plain(stream), Protocol::Http1));
    }
    let settings = sandbox.trust.settings(&shared.tls, host, *port).map_err(|error| unreachable(destination, error.to_string()))?;
    let config = match protocol {
        Protocol::Http1 => settings.http1,
        Protocol::Http2 => settings.http2,
    };
    let name = server_name(host).ok_or_else(|| unreachable(destination, "no certificate can carry its name".to_owned()))?;
    let handshake = TlsConnector::from(config).connect(name, stream);
    let stream = match tokio::time::timeout(HANDSHAKE_PATIENCE, handshake).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(unreachable(destination, format!("TLS: {error}"))),
        Err(_) => return Err(unreachable(destination, "the TLS handshake took too long".to_owned())),
    };
    let spoken = if stream.get_ref().1.alpn_protocol() == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 };
    Ok((UpstreamStream::Tls(Box::new(stream)), spoken))
}

fn unreachable(destination: &Destination, why: String) -> Refusal {
    Refusal::Unreachable { host: destination.host.clone(), port: destination.port, why }
}

impl Wire {
    fn drive(&mut self, context: &mut Context<'_>) {
        if self.alive && self.connection.as_mut().poll(context).is_ready() {
            self.alive = false;
        }
    }

    fn is_ready(&self) -> bool {
        self.alive && self.sender.is_ready()
    }
}

/// Why nothing came back, and the request where it never left.
pub(crate) struct Failed {
    pub(crate) why: hyper::Error,
    pub(crate) unsent: Option<Box<Request<RequestBody>>>,
}

impl Lease {
    /// Lets the connection read and write.
    pub(crate) fn drive(&mut self, context: &mut Context<'_>) {
        self.wire.drive(context);
    }

    /// Back to the pool, where it is fit for another request.
    pub(crate) fn give_back(self) {
        let Self { wire, destination, sandbox } = self;
        if wire.is_ready() {
            let mut idle = lock(&sandbox.pool.idle);
            let wires = idle.entry(destination).or_default();
            if wires.len() < MAX_IDLE {
                wires.push((Instant::now(), wire));
            }
        }
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(&mut self, request: Request<RequestBody>) -> Result<Response<Incoming>, Failed> {
        let mut answer = pin!(self.wire.sender.try_send_request(request));
        let (connection, alive) = (&mut self.wire.connection, &mut self.wire.alive);
        let sent = poll_fn(|context| {
            if *alive && connection.as_mut().poll(context).is_ready() {
                *alive = false;
            }
            answer.as_mut().poll(context)
        });
        sent.await.map_err(|mut error| Failed { unsent: error.take_message().map(Box::new), why: error.into_error() })
    }
}

/// The stream below HTTP.
#[derive(Debug)]
pub(crate) enum UpstreamStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for UpstreamStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for UpstreamStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
