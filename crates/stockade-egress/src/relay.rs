//! Bytes between two streams, counted both ways and limited one way; scrubbed where secrets are bound.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use crate::record::Record;
use crate::sandbox::Sandbox;
use crate::secrets::needles::Needles;
use crate::secrets::scrub::Scrubber;

/// What is copied at one time, each way, by a connection that says little. Many are open and say nothing.
const LEAST: usize = 8 << 10;
/// What is copied at one time by one that fills what it is given.
const MOST: usize = 256 << 10;

/// The secrets that concern what is relayed.
#[derive(Debug, Default)]
pub(crate) struct Along {
    /// Those that whoever opened the connection showed, as bits: what is sent counts as theirs.
    pub(crate) carried: u64,
    /// What is searched for in what comes back.
    pub(crate) needles: Option<Arc<Needles>>,
}

/// Copies until both sides are done, or one has sent more than it may.
pub(crate) async fn relay<A, B>(sandbox: &Sandbox, record: &Record, inside: A, outside: B, along: Along) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (mut from_inside, mut to_inside) = tokio::io::split(Metered { inner: inside, sandbox, record, carried: along.carried });
    let outside = Scrubbed { inner: outside, scrubber: along.needles.map(Scrubber::new), ready: Bytes::new(), ended: false };
    let (mut from_outside, mut to_outside) = tokio::io::split(outside);
    match tokio::try_join!(copy(&mut from_inside, &mut to_outside), copy(&mut from_outside, &mut to_inside)) {
        Ok(_) => Ok(()),
        // Many programs just go, and so do many servers.
        Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Copies one way until its end, which is passed on.
async fn copy(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let mut piece = vec![0; LEAST];
    loop {
        let count = from.read(&mut piece).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(piece.get(..count).unwrap_or_default()).await?;
        to.flush().await?;
        let fitting = fitting(piece.len(), count);
        if fitting != piece.len() {
            piece = vec![0; fitting];
        }
    }
}

/// How much to copy next, where so much of so much came last: what a large transfer needed is not kept while nothing comes.
fn fitting(length: usize, count: usize) -> usize {
    if count == length {
        (length * 4).min(MOST)
    } else if count < length / 4 {
        count.next_power_of_two().max(LEAST)
    } else {
        length
    }
}

/// The sandbox's side: what is read goes out, what is written came in.
struct Metered<'a, S> {
    inner: S,
    sandbox: &'a Sandbox,
    record: &'a Record,
    carried: u64,
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<'_, S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        let count = (buffer.filled().len() - before) as u64;
        if let Err(refusal) = this.sandbox.count_sent_with(this.carried, count) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_grow_with_what_comes_and_shrink_again() {
        let mut length = LEAST;
        for _ in 0..5 {
            length = fitting(length, length);
        }
        assert_eq!(length, MOST);
        assert_eq!(fitting(length, length - 1), MOST);
        assert_eq!(fitting(length, 100), LEAST);
        assert_eq!(fitting(length, 20_000), 32 << 10);
    }
}
