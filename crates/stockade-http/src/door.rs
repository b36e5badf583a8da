//! Listens, and serves each connection until it ends or the server does.
//!
//! ```text
//!  accepted ─▶ (handshake) ─▶ idle ⇄ request ─▶ closed
//!                 │ too slow    │ too long          ▲
//!                 └─────────────┴───────────────────┤
//!  the end: no more are accepted ─▶ calls end and are answered ─▶ streams end ─▶ what is still open is cut
//! ```

use std::convert::Infallible;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{HeaderName, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::ServerHandler;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::body;
use crate::error::HttpError;
use crate::guard::{Guard, HEALTH, Head};
use crate::journal::{Answered, Journal, known};
use crate::mcp::Mcp;
use crate::metrics::{Metrics, Now};
use crate::names::Names;
use crate::refusal::{Answer, Reason, Refusal, of_json, whole};
use crate::rest::{PREFIX, Rest, Template};
use crate::tls::Identity;
use crate::token::TokenFile;

/// Connections at once; others wait to be accepted.
const MOST_CONNECTIONS: usize = 512;
/// Bodies that are read at once: what is not read yet takes no memory.
const MOST_BODIES: usize = 32;
/// Fields of a head.
const MOST_FIELDS: usize = 64;
/// Bytes of a head.
const MOST_HEAD: usize = 64 << 10;
/// How long to wait when the system has no more descriptors.
const BREATH: Duration = Duration::from_millis(100);
/// Where Prometheus reads.
const METRICS: &str = "/metrics";
/// Where MCP is.
const MCP: &str = "/mcp";
/// Sent with every answer: a browser must not guess what it is.
const NOSNIFF: (HeaderName, HeaderValue) = (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));

/// How long others may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For the TLS handshake, for a head, and between two requests of one connection.
    pub head: Duration,
    /// For a body.
    pub body: Duration,
    /// For what is still to be sent when the server ends.
    pub end: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { head: Duration::from_secs(30), body: Duration::from_mins(1), end: Duration::from_secs(5) }
    }
}

/// A server that listens and serves nobody yet.
pub struct Door {
    listener: TcpListener,
    address: SocketAddr,
    identity: Option<Arc<Identity>>,
    token: TokenFile,
    patience: Patience,
    rest: Option<Arc<dyn Rest>>,
    journal: Option<Arc<dyn Journal>>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Door {
    /// Listens. Where other machines could connect, only with a certificate.
    #[expect(clippy::disallowed_methods, reason = "the one place that listens: loopback or TLS, and a token for every request")]
    pub fn open(address: SocketAddr, identity: Option<Identity>, token: TokenFile) -> Result<Self, HttpError> {
        if identity.is_none() && !address.ip().is_loopback() {
            return Err(HttpError::NotLoopback(address));
        }
        let failed = |error| HttpError::Listen(address, error);
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        // Whoever asks for port 0 gets another.
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, identity: identity.map(Arc::new), token, patience: Patience::default(), rest: None, journal: None })
    }

    /// The same with other patience.
    #[must_use]
    pub fn with_patience(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    /// The same with somebody who answers `/v1`.
    #[must_use]
    pub fn with_rest(self, rest: Arc<dyn Rest>) -> Self {
        Self { rest: Some(rest), ..self }
    }

    /// The same with somebody who is told of every answer.
    #[must_use]
    pub fn with_journal(self, journal: Arc<dyn Journal>) -> Self {
        Self { journal: Some(journal), ..self }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What its addresses begin with.
    pub fn url(&self) -> String {
        format!("{}://{}", self.names().scheme(), self.address)
    }

    /// Serves until `ending` is over, then waits for `last_words`, in which what runs is to end, and lets their answers out.
    pub async fn serve<H: ServerHandler + Send + 'static>(
        self,
        make: impl Fn() -> H + Send + Sync + 'static,
        metrics: Arc<Metrics>,
        ending: impl Future<Output = ()>,
        last_words: impl Future<Output = ()>,
    ) -> Result<(), HttpError> {
        let address = self.address;
        let acceptor = self.identity.as_ref().map(|identity| TlsAcceptor::from(identity.config()));
        let names = self.names();
        let listener = tokio::net::TcpListener::from_std(self.listener).map_err(|error| HttpError::Listen(address, error))?;
        let (ended, end) = watch::channel(End::Not);
        let hall = Arc::new(Hall {
            guard: Guard::new(names, self.token),
            mcp: Mcp::new(make),
            rest: self.rest,
            journal: self.journal,
            metrics,
            connections: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
            bodies: Semaphore::new(MOST_BODIES),
            patience: self.patience,
            end,
        });
        let accepting = async {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    // Who went away again is no trouble; where descriptors are short, others must end first.
                    tokio::time::sleep(BREATH).await;
                    continue;
                };
                let Ok(place) = Arc::clone(&hall.connections).acquire_owned().await else { return };
                drop(tokio::spawn(Arc::clone(&hall).receive(stream, acceptor.clone(), place)));
            }
        };
        tokio::select! {
            () = accepting => {}
            () = ending => {}
        }
        drop(listener);
        let _ = ended.send(End::Begun);
        last_words.await;
        hall.mcp.close();
        let _ = ended.send(End::Come);
        let all = u32::try_from(MOST_CONNECTIONS).unwrap_or(u32::MAX);
        // Each connection waits that long itself before it is cut.
        let _ = tokio::time::timeout(2 * self.patience.end, hall.connections.acquire_many(all)).await;
        Ok(())
    }

    fn names(&self) -> Names {
        Names::new(self.address, self.identity.clone())
    }
}

/// How far the end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Not,
    /// What runs is being ended.
    Begun,
    /// Everything ran to its end.
    Come,
}

/// What all connections share.
struct Hall<H> {
    guard: Guard,
    mcp: Mcp<H>,
    rest: Option<Arc<dyn Rest>>,
    journal: Option<Arc<dyn Journal>>,
    metrics: Arc<Metrics>,
    connections: Arc<Semaphore>,
    bodies: Semaphore,
    patience: Patience,
    end: watch::Receiver<End>,
}

impl<H: ServerHandler + Send + 'static> Hall<H> {
    async fn receive(self: Arc<Self>, stream: TcpStream, acceptor: Option<TlsAcceptor>, place: OwnedSemaphorePermit) {
        // Answers are small and awaited; what cannot be set is only slower.
        let _ = stream.set_nodelay(true);
        let patience = self.patience.head;
        match acceptor {
            None => self.converse(stream).await,
            Some(acceptor) => {
                if let Ok(Ok(stream)) = tokio::time::timeout(patience, acceptor.accept(stream)).await {
                    self.converse(stream).await;
                }
            }
        }
        drop(place);
    }

    async fn converse(self: Arc<Self>, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let mut end = self.end.clone();
        let patience = self.patience;
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(patience.head)
            .max_headers(MOST_FIELDS)
            // How much is read at a time is hyper's own affair, and may be more than a head has: so the head is bounded by itself.
            .max_header_size(MOST_HEAD)
            .max_buf_size(MOST_HEAD)
            .serve_connection(TokioIo::new(stream), service_fn(move |request| Arc::clone(&self).serve(request)));
        let mut connection = pin!(connection);
        tokio::select! {
            // How it ended, its other end knows.
            _ = connection.as_mut() => return,
            _ = end.wait_for(|end| *end == End::Come) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(patience.end, connection).await;
    }

    async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer, Infallible> {
        let begun = Instant::now();
        let method = known(request.method());
        let fixed = [HEALTH, METRICS, MCP].into_iter().find(|path| *path == request.uri().path());
        let mut answer = self.answer(request).await.unwrap_or_else(|refusal| refusal.answer());
        self.metrics.answered(answer.status());
        if let Some(journal) = &self.journal {
            let route = answer.extensions().get::<Template>().map(|template| template.0).or(fixed).unwrap_or("-");
            journal.answered(&Answered { method, route, status: answer.status(), time: begun.elapsed() });
        }
        let (name, value) = NOSNIFF;
        answer.headers_mut().insert(name, value);
        Ok(answer)
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        self.guard.judge(Head { uri: request.uri(), headers: request.headers() })?;
        let is_ending = *self.end.borrow() != End::Not;
        match request.uri().path() {
            HEALTH => {
                only_read(request.method())?;
                let (status, word) = if is_ending { (StatusCode::SERVICE_UNAVAILABLE, "ending") } else { (StatusCode::OK, "ok") };
                Ok(of_json(status, &json!({ "status": word })))
            }
            METRICS => {
                only_read(request.method())?;
                let connections = MOST_CONNECTIONS - self.connections.available_permits().min(MOST_CONNECTIONS);
                let text = self.metrics.text(Now { connections, sessions: self.mcp.sessions().await });
                Ok(whole(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text))
            }
            path if is_ending && (path == MCP || path.starts_with(PREFIX)) => Err(Refusal::new(Reason::Ending, "the server is ending")),
            MCP => {
                let request = self.read(request).await?;
                Ok(self.mcp.answer(request.map(Full::new)).await)
            }
            path => match self.rest.as_ref().filter(|_| path.starts_with(PREFIX)) {
                Some(rest) => Ok(Arc::clone(rest).answer(self.read(request).await?).await),
                None => Err(Refusal::new(Reason::Path, "there is nothing here").with_hint("MCP is at /mcp, REST at /v1")),
            },
        }
    }

    /// A request with its whole body.
    async fn read(&self, request: Request<Incoming>) -> Result<Request<Bytes>, Refusal> {
        let (head, body) = request.into_parts();
        let reading = self.bodies.acquire().await;
        let body = body::read(body, self.patience.body).await?;
        drop(reading);
        Ok(Request::from_parts(head, body))
    }
}

fn only_read(method: &Method) -> Result<(), Refusal> {
    if matches!(*method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    Err(Refusal::new(Reason::Method, "this can only be read"))
}

#[cfg(test)]
mod tests;
