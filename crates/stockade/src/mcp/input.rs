//! Standard input, watched for its end: a client that goes away takes what it started with it, at once.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

/// A reader that says when nothing more will come.
pub(super) struct Watched<R> {
    inner: R,
    ended: Option<Box<dyn FnOnce() + Send>>,
}

impl<R> Watched<R> {
    /// Calls `ended` once, at the end of input or when it breaks.
    pub(super) fn new(inner: R, ended: impl FnOnce() + Send + 'static) -> Self {
        Self { inner, ended: Some(Box::new(ended)) }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Watched<R> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        let is_over = match &read {
            Poll::Ready(Ok(())) => buffer.filled().len() == before && buffer.remaining() > 0,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        if is_over && let Some(ended) = self.ended.take() {
            ended();
        }
        read
    }
}
