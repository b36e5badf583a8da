//! The pipes between the front and the server, and what a server may do with them: lines in bounded number, and reading what it is sent.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::pipe::PipeFlags;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::failure::Failure;

/// Messages that a server may send within [`WINDOW`]: far more than any that works, and few enough to be looked at.
const MOST_LINES: usize = 20_000;
/// See [`MOST_LINES`].
const WINDOW: Duration = Duration::from_secs(10);
/// How long a server may leave unread what it is sent: answers to it would pile up otherwise.
const UNREAD: Duration = Duration::from_secs(30);

/// All of them.
pub(super) struct Pipes {
    /// The server's ends.
    pub(super) theirs: Ends,
    /// The front's.
    pub(super) ours: Ends,
}

/// One side's ends.
pub(super) struct Ends {
    /// What the server reads.
    pub(super) input: OwnedFd,
    /// What it says.
    pub(super) output: OwnedFd,
    /// What it writes to its standard error.
    pub(super) noise: OwnedFd,
}

impl Pipes {
    /// Fresh ones.
    pub(super) fn make() -> Result<Self, Failure> {
        let pipe =
            || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|errno| Failure::new("server", format!("making its pipes: {errno}")));
        let ((input, our_input), (our_output, output), (our_noise, noise)) = (pipe()?, pipe()?, pipe()?);
        Ok(Self { theirs: Ends { input, output, noise }, ours: Ends { input: our_input, output: our_output, noise: our_noise } })
    }
}

/// What a server says, counted: one that floods is cut off.
pub(super) struct Counted<R> {
    inner: R,
    since: Instant,
    lines: usize,
}

impl<R> Counted<R> {
    /// Counts from now on.
    pub(super) fn new(inner: R) -> Self {
        Self { inner, since: Instant::now(), lines: 0 }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Counted<R> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let fresh = buffer.filled().get(before..).unwrap_or_default();
        if self.since.elapsed() > WINDOW {
            (self.since, self.lines) = (Instant::now(), 0);
        }
        self.lines += fresh.split(|byte| *byte == b'\n').count() - 1;
        if self.lines > MOST_LINES {
            // With an error nothing was read.
            buffer.set_filled(before);
            return Poll::Ready(Err(io::Error::other("the server floods")));
        }
        Poll::Ready(Ok(()))
    }
}

/// What a server is sent: one that does not read for long is cut off.
pub(super) struct Patient<W> {
    inner: W,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<W> Patient<W> {
    /// With patience from the first byte that does not fit.
    pub(super) fn new(inner: W) -> Self {
        Self { inner, waiting: None }
    }

    fn settle<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waiting = None;
            return polled;
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(UNREAD)));
        std::task::ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the server does not read")))
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Patient<W> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.settle(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(context);
        self.settle(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(context);
        self.settle(polled, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn block_on<T>(act: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(act)
    }

    #[test]
    fn a_flood_is_cut_off_and_long_lines_are_not() {
        block_on(async {
            let long = vec![b'x'; 1 << 20];
            let mut all = Vec::new();
            assert_eq!(Counted::new(long.as_slice()).read_to_end(&mut all).await.unwrap(), 1 << 20);
            let flood = vec![b'\n'; 1 << 20];
            assert!(Counted::new(flood.as_slice()).read_to_end(&mut all).await.is_err());
        });
    }

    #[test]
    fn what_is_read_in_time_is_no_failure() {
        block_on(async {
            let (ours, mut theirs) = tokio::io::duplex(8);
            let mut ours = Patient::new(ours);
            let reading = async { theirs.read_exact(&mut [0; 64]).await.unwrap() };
            let (written, read) = tokio::join!(ours.write_all(&[7; 64]), reading);
            assert_eq!((written.is_ok(), read, ours.waiting.is_none()), (true, 64, true));
        });
    }
}
