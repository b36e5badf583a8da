//! What is behind `/v1`: requests that were let in and read, as the door hands them on, and the forms of what comes back.
//!
//! Who answers is elsewhere. Whoever went away is noticed by what is dropped: the future of an answer that was not given yet, or the body
//! of one that is being sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame};

use crate::refusal::{self, Answer};

/// Where it is.
pub(crate) const PREFIX: &str = "/v1/";

/// Which path was asked for, with names in the places of what callers choose: an extension of an answer, for those who count and write down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Template(pub &'static str);

/// An answer that is on its way.
pub type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Answers what comes for `/v1`.
pub trait Rest: Send + Sync + 'static {
    /// One request that was let in, with its whole body. Dropped where its sender went away.
    fn answer(self: Arc<Self>, request: Request<Bytes>) -> Answering;
}

/// A JSON value as an answer.
pub fn json(status: StatusCode, value: &serde_json::Value) -> Answer {
    refusal::of_json(status, value)
}

/// Where the pieces of an answer come from that is sent as it comes. Dropped with it, however it ends.
pub trait Source: Send + Sync + Unpin + 'static {
    /// The next piece; nothing at the end.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>>;
}

/// An answer that is sent piece by piece.
pub fn streamed(kind: &'static str, source: impl Source) -> Answer {
    let mut answer = Response::new(Pieces(source).boxed());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// The body of such an answer.
struct Pieces<S>(S);

impl<S: Source> Body for Pieces<S> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_next(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
