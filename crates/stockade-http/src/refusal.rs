//! What is said to a request that is not let in: a status and one JSON object.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::json;
use std::convert::Infallible;

/// A whole or streamed answer.
pub type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Why a request is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The head makes no sense.
    Malformed,
    /// The name it came by is not ours.
    Host,
    /// A page that is not ours sent it.
    Origin,
    /// Not the token, or none.
    Token,
    /// There is nothing there.
    Path,
    /// That is not done there.
    Method,
    /// The body took too long.
    Slow,
    /// The body is too long.
    Large,
    /// Too many sessions.
    Full,
    /// The server ends.
    Ending,
}

/// A request that is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// The same in words.
    pub message: &'static str,
    /// What to do about it.
    pub hint: Option<&'static str>,
}

impl Refusal {
    /// A refusal.
    pub(crate) fn new(reason: Reason, message: &'static str) -> Self {
        Self { reason, message, hint: None }
    }

    /// The same with advice.
    pub(crate) fn with_hint(self, hint: &'static str) -> Self {
        Self { hint: Some(hint), ..self }
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        match self.reason {
            Reason::Malformed => StatusCode::BAD_REQUEST,
            Reason::Host | Reason::Origin => StatusCode::FORBIDDEN,
            Reason::Token => StatusCode::UNAUTHORIZED,
            Reason::Path => StatusCode::NOT_FOUND,
            Reason::Method => StatusCode::METHOD_NOT_ALLOWED,
            Reason::Slow => StatusCode::REQUEST_TIMEOUT,
            Reason::Large => StatusCode::PAYLOAD_TOO_LARGE,
            Reason::Full => StatusCode::TOO_MANY_REQUESTS,
            Reason::Ending => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// As an answer. Whoever is not let in has to connect again: what else they send is not read.
    pub(crate) fn answer(&self) -> Answer {
        let value = json!({ "error": { "step": "http", "message": self.message, "hint": self.hint } });
        let mut answer = of_json(self.status(), &value);
        let headers = answer.headers_mut();
        if self.reason == Reason::Token {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"stockade\""));
        }
        if !matches!(self.reason, Reason::Path | Reason::Full) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }
}

/// A JSON value as an answer.
pub(crate) fn of_json(status: StatusCode, value: &serde_json::Value) -> Answer {
    whole(status, "application/json", value.to_string())
}

/// Text as an answer.
pub(crate) fn whole(status: StatusCode, kind: &'static str, text: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text)).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
