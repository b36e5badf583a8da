//! Serves the requests of one connection from a sandbox with hyper, until it ends or the sandbox does.

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::forward::{self, Leg, LegTarget};
use super::guarded::{Guarded, Notice};
use super::head::MAX_LINES;
use super::pool::Protocol;
use crate::egress::Shared;
use crate::sandbox::Sandbox;

/// Requests of one HTTP/2 connection at one time.
const MAX_STREAMS: u32 = 128;
/// hyper's own buffer; what is larger waits in the socket.
const MAX_BUFFER: usize = 128 << 10;
/// How often a silent HTTP/2 connection is asked whether it is there.
const PING: Duration = Duration::from_mins(1);

/// Serves HTTP/1.
pub(crate) async fn http1<S>(shared: &Arc<Shared>, sandbox: &Arc<Sandbox>, target: LegTarget, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let max_head = sandbox.rules.limits.head_bytes;
    let (stream, notice) = Guarded::new(stream, max_head);
    let leg = leg(shared, sandbox, target, Protocol::Http1, notice);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(sandbox.rules.limits.idle)
        .max_headers(MAX_LINES)
        .max_buf_size(MAX_BUFFER.max(max_head))
        .auto_date_header(false)
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service_fn(move |request| forward::serve(Arc::clone(&leg), request)))
        .with_upgrades();
    tokio::select! {
        // How a connection ended was told by each of its requests.
        _ = connection => {}
        () = sandbox.closed() => {}
    }
}

/// Serves HTTP/2.
pub(crate) async fn http2<S>(shared: &Arc<Shared>, sandbox: &Arc<Sandbox>, target: LegTarget, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let leg = leg(shared, sandbox, target, Protocol::Http2, Notice::default());
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(sandbox.rules.limits.head_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(PING)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service_fn(move |request| forward::serve(Arc::clone(&leg), request)));
    tokio::select! {
        _ = connection => {}
        () = sandbox.closed() => {}
    }
}

fn leg(shared: &Arc<Shared>, sandbox: &Arc<Sandbox>, target: LegTarget, protocol: Protocol, notice: Notice) -> Arc<Leg> {
    Arc::new(Leg { shared: Arc::clone(shared), sandbox: Arc::clone(sandbox), target, protocol, notice })
}
