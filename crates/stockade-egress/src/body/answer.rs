//! An answer's body on its way back: decoded and scrubbed where secrets are bound, metered where it comes from a model, counted always.
//!
//! For HTTP/1 it also drives the connection it comes from, so that one task serves both legs and no thread has to wake another. A
//! connection whose answer was read to its end goes back to the pool.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use ::http::HeaderMap;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::BodyError;
use super::decode::Decoder;
use crate::http::pool::Lease;
use crate::meter::Meter;
use crate::record::Record;
use crate::sandbox::Sandbox;
use crate::secrets::needles::Needles;
use crate::secrets::scrub::Scrubber;

/// What goes to the sandbox.
#[derive(Debug)]
pub(crate) enum AnswerBody {
    /// A text of our own.
    Text(Option<Bytes>),
    /// From the host.
    Passed(Box<Passed>),
}

/// A body from a host.
#[derive(Debug)]
pub(crate) struct Passed {
    inner: Incoming,
    lease: Option<Lease>,
    record: Arc<Record>,
    scrub: Option<Scrub>,
    metered: Option<Metered>,
}

/// Counts what an answer of a model says was used.
#[derive(Debug)]
pub(crate) struct Metered {
    pub(crate) meter: Meter,
    pub(crate) sandbox: Arc<Sandbox>,
}

/// Decoding and searching.
#[derive(Debug)]
struct Scrub {
    decoder: Option<Decoder>,
    scrubber: Scrubber,
    needles: Arc<Needles>,
    trailers: Option<HeaderMap>,
    state: State,
}

/// `Reading ⇄ Pulling`, then `Draining → Ending → Trailers → Ended`; the two with a decoder only where there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// More comes from the host.
    Reading,
    /// The decoder may hold more.
    Pulling,
    /// The decoder may hold more, and nothing else comes.
    Draining,
    /// What the scrubber holds.
    Ending,
    /// The trailers, if there were any.
    Trailers,
    /// Done.
    Ended,
}

impl AnswerBody {
    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        Self::Text(Some(text.into()))
    }

    pub(crate) fn passed(
        inner: Incoming,
        lease: Option<Lease>,
        record: Arc<Record>,
        scrub: Option<ScrubWith>,
        metered: Option<Metered>,
    ) -> Self {
        let scrub = scrub.map(|ScrubWith { decoder, needles }| Scrub {
            decoder,
            scrubber: Scrubber::new(Arc::clone(&needles)),
            needles,
            trailers: None,
            state: State::Reading,
        });
        Self::Passed(Box::new(Passed { inner, lease, record, scrub, metered }))
    }
}

/// How an answer is searched.
pub(crate) struct ScrubWith {
    pub(crate) decoder: Option<Decoder>,
    pub(crate) needles: Arc<Needles>,
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Passed(passed) => {
                let frame = ready!(passed.poll_frame(context));
                if let (Some(metered), Some(Ok(frame))) = (&mut passed.metered, &frame)
                    && let Some(piece) = frame.data_ref()
                {
                    metered.meter.push(piece);
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_none(),
            Self::Passed(passed) => passed.inner.is_end_stream() && passed.scrub.as_ref().is_none_or(Scrub::is_untouched),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            // Scrubbing keeps every length; decoding does not.
            Self::Passed(passed) if passed.scrub.as_ref().is_some_and(|scrub| scrub.decoder.is_some()) => SizeHint::default(),
            Self::Passed(passed) => passed.inner.size_hint(),
        }
    }
}

impl Passed {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            let Some(scrub) = &mut self.scrub else { return self.poll_host(context) };
            let piece = match scrub.state {
                State::Reading => match ready!(self.poll_host(context)) {
                    Some(Ok(frame)) => self.take(frame),
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => self.end(),
                },
                State::Pulling | State::Draining => scrub.pull()?,
                State::Ending => {
                    scrub.state = State::Trailers;
                    let rest = scrub.scrubber.finish();
                    if scrub.scrubber.found() > 0 {
                        self.record.note("a secret was taken out of the answer");
                    }
                    rest
                }
                State::Trailers => {
                    scrub.state = State::Ended;
                    match scrub.trailers.take() {
                        Some(trailers) => return Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                        None => Bytes::new(),
                    }
                }
                State::Ended => return Poll::Ready(None),
            };
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
        }
    }

    /// Takes a frame of the host's; gives what can be passed on at once.
    fn take(&mut self, frame: Frame<Bytes>) -> Bytes {
        let Some(scrub) = &mut self.scrub else { return Bytes::new() };
        match (frame.into_data(), &mut scrub.decoder) {
            (Ok(piece), None) => scrub.scrubber.push(piece),
            (Ok(piece), Some(decoder)) => {
                decoder.push(piece);
                scrub.state = State::Pulling;
                Bytes::new()
            }
            (Err(frame), _) => {
                if let Ok(mut trailers) = frame.into_trailers() {
                    if crate::http::headers::scrub(&mut trailers, &scrub.needles) > 0 {
                        self.record.note("a secret was taken out of the answer");
                    }
                    scrub.trailers = Some(trailers);
                }
                Bytes::new()
            }
        }
    }

    fn end(&mut self) -> Bytes {
        if let Some(scrub) = &mut self.scrub {
            scrub.state = match &mut scrub.decoder {
                Some(decoder) => {
                    decoder.end();
                    State::Draining
                }
                None => State::Ending,
            };
        }
        Bytes::new()
    }

    /// The next frame as the host sent it.
    fn poll_host(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(lease) = &mut self.lease {
            lease.drive(context);
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.record.add_received(data.len() as u64);
                }
            }
            Some(Err(error)) => self.record.note(format!("the answer broke off: {error}")),
            None => self.give_back(context),
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn give_back(&mut self, context: &mut Context<'_>) {
        if let Some(mut lease) = self.lease.take() {
            lease.drive(context);
            lease.give_back();
        }
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        // However it ends: what was said by then was used.
        if let Some(Metered { meter, sandbox }) = &self.metered
            && let Some(usage) = meter.usage()
        {
            sandbox.count_model_tokens(usage.tokens());
            self.record.usage(usage);
        }
        // A body that hyper knows to be empty is never polled.
        if self.inner.is_end_stream() {
            self.give_back(&mut Context::from_waker(Waker::noop()));
        }
    }
}

impl Scrub {
    /// Whether nothing waits here and nothing was found: then where nothing more comes, there is nothing to say. gRPC tells an answer
    /// without a body from one with an empty body, and has its status in the head of the first.
    fn is_untouched(&self) -> bool {
        let is_empty = self.scrubber.waiting() == 0 && self.trailers.is_none();
        self.state == State::Reading && self.decoder.is_none() && is_empty && self.scrubber.found() == 0
    }

    fn pull(&mut self) -> Result<Bytes, BodyError> {
        if let Some(piece) = self.decoder.as_mut().map(Decoder::pull).transpose()?.flatten() {
            return Ok(self.scrubber.push(piece));
        }
        self.state = if self.state == State::Pulling { State::Reading } else { State::Ending };
        Ok(Bytes::new())
    }
}
