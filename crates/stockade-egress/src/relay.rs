//! Bytes between two streams, counted both ways and limited one way; scrubbed where secrets are bound.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::record::Record;
use crate::sandbox::Sandbox;
use crate::secrets::needles::Needles;
use crate::secrets::scrub::Scrubber;

/// What is copied at one time, each way.
const PIECE: usize = 32 << 10;

/// Copies until both sides are done.
pub(crate) async fn relay<A, B>(sandbox: &Sandbox, record: &Record, inside: A, outside: B, needles: Option<Arc<Needles>>) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let mut inside = Metered { inner: inside, sandbox, record };
    let mut outside = Scrubbed { inner: outside, scrubber: needles.map(Scrubber::new), ready: Bytes::new(), ended: false };
    match tokio::io::copy_bidirectional_with_sizes(&mut inside, &mut outside, PIECE, PIECE).await {
        Ok(_) => Ok(()),
        // Many programs just go, and so do many servers.
        Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The sandbox's side: what is read goes out, what is written came in.
struct Metered<'a, S> {
    inner: S,
    sandbox: &'a Sandbox,
    record: &'a Record,
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<'_, S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        let count = (buffer.filled().len() - before) as u64;
        if let Err(refusal) = this.sandbox.count_sent(count) {
            buffer.set_filled(before);
            this.record.refuse(&refusal);
            return Poll::Ready(Err(io::Error::other(refusal)));
        }
        this.record.add_sent(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<'_, S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let count = ready!(Pin::new(&mut this.inner).poll_write(context, bytes))?;
        this.record.add_received(count as u64);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}

/// The host's side: what is read is searched first.
struct Scrubbed<S> {
    inner: S,
    scrubber: Option<Scrubber>,
    ready: Bytes,
    ended: bool,
}

impl<S: AsyncRead + Unpin> AsyncRead for Scrubbed<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(scrubber) = &mut this.scrubber else { return Pin::new(&mut this.inner).poll_read(context, buffer) };
        while this.ready.is_empty() && !this.ended {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
            let read = buffer.filled().get(before..).unwrap_or_default();
            this.ended = read.is_empty();
            this.ready = if this.ended { scrubber.finish() } else { scrubber.push(Bytes::copy_from_slice(read)) };
            buffer.set_filled(before);
        }
        let count = this.ready.len().min(buffer.remaining());
        buffer.put_slice(this.ready.get(..count).unwrap_or_default());
        this.ready.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Scrubbed<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}
