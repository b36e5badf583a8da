//! A connection from a sandbox whose HTTP/1 bytes are looked at strictly before hyper sees them.
//!
//! Where a head is malformed hyper is given a request that nobody sent, at a target that leads nowhere, so that the refusal can be
//! answered in words; then the connection ends. A malformed body ends it at once.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::head::{Guard, Shape};

/// The target of the request that stands for a malformed one.
pub(crate) const REFUSED_TARGET: &str = "/.stockade-refused";
const STAND_IN: &[u8] = b"GET /.stockade-refused HTTP/1.1\r\nhost: stockade.invalid\r\nconnection: close\r\n\r\n";

/// What was wrong, for whoever answers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notice(Arc<OnceLock<Shape>>);

impl Notice {
    pub(crate) fn shape(&self) -> Option<Shape> {
        self.0.get().copied()
    }
}

/// The guarded stream.
#[derive(Debug)]
pub(crate) struct Guarded<S> {
    inner: S,
    guard: Guard,
    /// Bytes that hyper must not see yet, and how many of them it may by now.
    held: BytesMut,
    released: usize,
    ended: bool,
    notice: Notice,
}

impl<S> Guarded<S> {
    pub(crate) fn new(inner: S, max_head: usize) -> (Self, Notice) {
        let notice = Notice::default();
        let guarded = Self { inner, guard: Guard::new(max_head), held: BytesMut::new(), released: 0, ended: false, notice: notice.clone() };
        (guarded, notice)
    }

    /// Notes a malformed request; hyper is given the stand-in where it waits for a head.
    fn break_off(&mut self, shape: Shape) -> io::Result<()> {
        let _ = self.notice.0.set(shape);
        self.ended = true;
        self.held.clear();
        self.released = 0;
        if !self.guard.is_between_requests() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, shape));
        }
        self.held.extend_from_slice(STAND_IN);
        self.released = STAND_IN.len();
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.released > 0 {
                let count = this.released.min(buffer.remaining());
                buffer.put_slice(this.held.get(..count).unwrap_or_default());
                this.held.advance(count);
                this.released -= count;
                return Poll::Ready(Ok(()));
            }
            if this.ended || buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            if !this.held.is_empty() {
                match this.guard.advance(&this.held) {
                    Ok(good) => this.released = good,
                    Err(shape) => this.break_off(shape)?,
                }
                if this.released > 0 {
                    continue;
                }
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
            let read = buffer.filled().get(before..).unwrap_or_default();
            if read.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if !this.held.is_empty() {
                this.held.extend_from_slice(read);
                buffer.set_filled(before);
                continue;
            }
            // The usual case: whole elements, judged where they lie.
            match this.guard.advance(read) {
                Ok(good) => {
                    this.held.extend_from_slice(read.get(good..).unwrap_or_default());
                    buffer.set_filled(before + good);
                    if good > 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
                Err(shape) => {
                    buffer.set_filled(before);
                    this.break_off(shape)?;
                }
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
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
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn pass(text: &[u8], cut: usize) -> (io::Result<Vec<u8>>, Option<Shape>) {
        let (mut sender, receiver) = tokio::io::duplex(64);
        let (mut guarded, notice) = Guarded::new(receiver, 4096);
        let text = text.to_vec();
        let send = tokio::spawn(async move {
            for piece in text.chunks(cut) {
                if sender.write_all(piece).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        });
        let mut out = Vec::new();
        let read = guarded.read_to_end(&mut out).await.map(|_| out);
        drop(guarded);
        send.await.unwrap();
        (read, notice.shape())
    }

    #[tokio::test]
    async fn good_bytes_pass_and_bad_heads_become_the_stand_in() {
        let good = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nhost: a\r\n\r\n";
        let bad = b"GET / HTTP/1.1\r\nhost: a\r\n\r\nGET / HTTP/1.1\nhost: b\r\n\r\n";
        let bad_body = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n";
        for cut in [1, 3, 1000] {
            assert_eq!(pass(good, cut).await.0.unwrap(), good);
            let (read, shape) = pass(bad, cut).await;
            assert_eq!(shape, Some(Shape::BareNewline));
            let expected = [b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", STAND_IN].concat();
            assert_eq!(read.unwrap(), expected);
            let (read, shape) = pass(bad_body, cut).await;
            assert!(read.is_err());
            assert_eq!(shape, Some(Shape::ChunkLine));
        }
    }
}
