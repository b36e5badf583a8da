//! A request's body on its way out: counted against limits and budgets, watched for placeholders that do not belong there, and changed
//! where a binding says so.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::BodyError;
use crate::http::pool::Destination;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::sandbox::Sandbox;
use crate::secrets::substitute::{BodyReplacer, BodyWatch};

/// What goes to the host.
#[derive(Debug)]
pub(crate) enum RequestBody {
    /// Nothing.
    Empty,
    /// All of it, checked already.
    Whole(Option<Bytes>),
    /// Piece by piece.
    Streamed(Box<Streamed>),
}

/// A body that is read while it is sent.
#[derive(Debug)]
pub(crate) struct Streamed {
    inner: Incoming,
    checks: Checks,
    replacer: Option<BodyReplacer>,
    ended: bool,
}

/// What every piece goes through.
#[derive(Debug)]
pub(crate) struct Checks {
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) record: Arc<Record>,
    /// Where the reason is left for whoever answers the request.
    pub(crate) stopped: Stopped,
    pub(crate) destination: Destination,
    pub(crate) watch: Option<BodyWatch>,
    /// Secrets that this request carries, as bits.
    pub(crate) carried: u64,
    /// Bytes of the head, and of the body so far.
    pub(crate) head: u64,
    pub(crate) seen: u64,
}

/// Why a body was stopped, for whoever answers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stopped(Arc<Mutex<Option<Refusal>>>);

impl Stopped {
    pub(crate) fn take(&self) -> Option<Refusal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, refusal: Refusal) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
    }
}

impl Checks {
    /// Counts the use of these secrets (as bits), each once for a request.
    pub(crate) fn spend(&mut self, used: u64) -> Result<(), Refusal> {
        let fresh = used & !self.carried;
        self.carried |= used;
        for (_, bound) in self.sandbox.bound.iter().enumerate().filter(|(index, _)| fresh >> index & 1 == 1) {
            bound.spend(std::time::SystemTime::now())?;
            // Found only now, so it is all of what came before as well.
            bound.count_bytes(self.head.saturating_add(self.seen))?;
            self.record.use_secret(&bound.name);
        }
        Ok(())
    }

    /// Checks a piece before anything else is done with it.
    pub(crate) fn check(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        let count = piece.len() as u64;
        self.seen = self.seen.saturating_add(count);
        let most = self.sandbox.rules.limits.body_bytes;
        if self.seen > most {
            return Err(Refusal::Limit { what: format!("{most} bytes in one request") });
        }
        self.sandbox.count_sent(count)?;
        if let Some(index) = self.watch.as_mut().and_then(|watch| watch.look(piece))
            && let Some(bound) = self.sandbox.bound.get(index)
        {
            let Destination { host, port, .. } = self.destination.clone();
            return Err(Refusal::SecretElsewhere { name: Arc::clone(&bound.name), host, port });
        }
        for (index, bound) in self.sandbox.bound.iter().enumerate() {
            if self.carried >> index & 1 == 1 {
                bound.count_bytes(count)?;
            }
        }
        self.record.add_sent(count);
        Ok(())
    }
}

impl RequestBody {
    /// All of it, where it is here.
    pub(crate) fn whole(&self) -> Option<&Bytes> {
        match self {
            Self::Whole(bytes) => bytes.as_ref(),
            Self::Empty | Self::Streamed(_) => None,
        }
    }

    pub(crate) fn streamed(inner: Incoming, checks: Checks, replacer: Option<BodyReplacer>) -> Self {
        Self::Streamed(Box::new(Streamed { inner, checks, replacer, ended: false }))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Streamed(streamed) => streamed.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(bytes) => bytes.is_none(),
            Self::Streamed(streamed) => streamed.replacer.is_none() && streamed.inner.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            // What is put in may have another length than what it stands for.
            Self::Streamed(streamed) if streamed.replacer.is_some() => SizeHint::default(),
            Self::Streamed(streamed) => streamed.inner.size_hint(),
        }
    }
}

impl Streamed {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        while !self.ended {
            match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
                Some(Ok(frame)) => {
                    let piece = match frame.into_data() {
                        Ok(piece) => piece,
                        Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                    };
                    match self.take(piece) {
                        Ok(piece) if piece.is_empty() => {}
                        Ok(piece) => return Poll::Ready(Some(Ok(Frame::data(piece)))),
                        Err(refusal) => {
                            self.checks.stopped.set(refusal.clone());
                            return Poll::Ready(Some(Err(refusal.into())));
                        }
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => self.ended = true,
            }
        }
        let rest = self.replacer.take().map(|mut replacer| replacer.finish()).filter(|rest| !rest.is_empty());
        Poll::Ready(rest.map(|rest| Ok(Frame::data(rest))))
    }

    fn take(&mut self, piece: Bytes) -> Result<Bytes, Refusal> {
        self.checks.check(&piece)?;
        let Some(replacer) = &mut self.replacer else { return Ok(piece) };
        let piece = replacer.push(&piece);
        self.checks.spend(replacer.take_used())?;
        Ok(piece)
    }
}
