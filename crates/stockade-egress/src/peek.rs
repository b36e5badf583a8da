//! A stream whose first bytes were looked at, and are still there for whoever reads it next.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// What is read at one time while looking.
const PIECE: usize = 4 << 10;

/// The stream and what was read of it so far.
#[derive(Debug)]
pub(crate) struct Peek<S> {
    pub(crate) seen: BytesMut,
    pub(crate) stream: S,
}

impl<S: AsyncRead + Unpin> Peek<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { seen: BytesMut::new(), stream }
    }

    /// Waits for more bytes; an error at the end of the stream or when they take too long.
    pub(crate) async fn more(&mut self, patience: Duration) -> io::Result<()> {
        self.seen.reserve(PIECE);
        let mut limited = (&mut self.stream).take(PIECE as u64);
        match tokio::time::timeout(patience, limited.read_buf(&mut self.seen)).await {
            Ok(Ok(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Whether the stream begins so, as soon as that is known.
    pub(crate) async fn begins_with(&mut self, start: &[u8], patience: Duration) -> io::Result<bool> {
        loop {
            let known = self.seen.len().min(start.len());
            if self.seen.get(..known) != start.get(..known) {
                return Ok(false);
            }
            if known == start.len() {
                return Ok(true);
            }
            self.more(patience).await?;
        }
    }

    /// The first byte, once it is there.
    pub(crate) async fn first(&mut self, patience: Duration) -> io::Result<u8> {
        loop {
            match self.seen.first() {
                Some(byte) => return Ok(*byte),
                None => self.more(patience).await?,
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Peek<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.seen.is_empty() {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        let count = this.seen.len().min(buffer.remaining());
        buffer.put_slice(this.seen.get(..count).unwrap_or_default());
        this.seen.advance(count);
        if this.seen.is_empty() {
            // The memory goes: connections stay for long, their first bytes do not.
            this.seen = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Peek<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
