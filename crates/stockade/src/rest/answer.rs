//! What is answered: the JSON of a result, or of a problem with the right status.

use http::header::{ALLOW, CONNECTION};
use http::{HeaderValue, StatusCode};
use serde_json::Value;
use stockade_core::escape::escape;
use stockade_http::{Answer, Verdict};

use crate::failure::{Failure, FailureKind};

/// Steps of which a failure is the caller's doing: what they named makes no sense, or is not there.
const CALLERS: [&str; 13] = [
    "arguments",
    "capability",
    "changes",
    "copy",
    "exec",
    "exec list",
    "file",
    "mounts",
    "pack",
    "read",
    "sandbox",
    "working directory",
    "write",
];

/// What came of a request.
#[derive(Debug)]
pub(super) struct Reply {
    status: StatusCode,
    value: Value,
}

/// Why nothing came of it.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    failure: Failure,
    allow: Option<String>,
}

impl Reply {
    /// A result; one whose decision is no yes is a 403.
    pub(super) fn of(value: Value) -> Self {
        let verdict = value.pointer("/decision/verdict").and_then(Value::as_str);
        let status = if verdict.is_none_or(|verdict| verdict == "allow") { StatusCode::OK } else { StatusCode::FORBIDDEN };
        Self { status, value }
    }

    /// What only says something, a decision included.
    pub(super) fn saying(value: Value) -> Self {
        Self { status: StatusCode::OK, value }
    }

    /// Something was made.
    pub(super) fn made(value: Value) -> Self {
        let reply = Self::of(value);
        if reply.status == StatusCode::OK { Self { status: StatusCode::CREATED, ..reply } } else { reply }
    }

    /// The value.
    pub(super) fn value(&self) -> &Value {
        &self.value
    }

    /// What it says of a decision.
    pub(super) fn verdict(&self) -> Verdict {
        match self.value.pointer("/decision/verdict").and_then(Value::as_str) {
            Some("allow") | None => Verdict::Allow,
            Some("ask") => Verdict::Ask,
            Some("deny") => Verdict::Deny,
            Some(_) => Verdict::Failed,
        }
    }

    /// As an answer.
    pub(super) fn answer(&self) -> Answer {
        stockade_http::json(self.status, &self.value)
    }
}

impl Problem {
    fn new(status: StatusCode, failure: Failure) -> Self {
        Self { status, failure, allow: None }
    }

    /// The request makes no sense.
    pub(super) fn malformed(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Failure::new("arguments", why))
    }

    /// There is no such thing, or none of the asker's.
    pub(super) fn nothing(what: &str, name: &str) -> Self {
        let shown: String = escape(name).chars().take(80).collect();
        Self::new(StatusCode::NOT_FOUND, Failure::new("arguments", format!("there is no {what} `{shown}` here")))
    }

    /// There is no such path.
    pub(super) fn no_path() -> Self {
        let failure = Failure::new("http", "there is nothing here").with_hint("GET /v1/openapi.json says what there is");
        Self::new(StatusCode::NOT_FOUND, failure)
    }

    /// That is not done there.
    pub(super) fn method(allowed: &[&str]) -> Self {
        let allow = allowed.join(", ");
        let failure = Failure::new("http", format!("only {allow} can be asked for here"));
        Self { allow: Some(allow), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, failure) }
    }

    /// The body is not JSON, and says so.
    pub(super) fn kind() -> Self {
        let failure = Failure::new("http", "the body must be JSON").with_hint("send `Content-Type: application/json`");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, failure)
    }

    /// It collides with what is there.
    pub(super) fn conflict(failure: Failure) -> Self {
        Self::new(StatusCode::CONFLICT, failure)
    }

    /// Not before some of what is there has ended.
    pub(super) fn full(failure: Failure) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, failure)
    }

    /// Whoever asks has not shown that they may.
    pub(super) fn forbidden(failure: Failure) -> Self {
        Self::new(StatusCode::FORBIDDEN, failure)
    }

    /// Our own fault.
    pub(super) fn broken(why: &str) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, Failure::new("server", why))
    }

    /// `{"error": {"step", "message", "hint"}}`
    pub(super) fn value(&self) -> Value {
        self.failure.to_json()
    }

    /// As an answer. Whoever is refused may ask for something else over the same connection, unless the fault is ours.
    pub(super) fn answer(&self) -> Answer {
        let mut answer = stockade_http::json(self.status, &self.value());
        if let Some(allow) = self.allow.as_ref().and_then(|allow| HeaderValue::from_str(allow).ok()) {
            answer.headers_mut().insert(ALLOW, allow);
        }
        if self.status.is_server_error() {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let status = match failure.kind {
            FailureKind::NoProgram => StatusCode::UNPROCESSABLE_ENTITY,
            FailureKind::Full => StatusCode::TOO_MANY_REQUESTS,
            FailureKind::Ending => StatusCode::SERVICE_UNAVAILABLE,
            FailureKind::Broken if CALLERS.contains(&failure.step.as_str()) => StatusCode::BAD_REQUEST,
            FailureKind::Broken => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, failure)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn statuses_say_whose_doing_it_was() {
        let status = |failure: Failure| Problem::from(failure).answer().status().as_u16();
        assert_eq!(status(Failure::new("arguments", "x")), 400);
        assert_eq!(status(Failure::no_program("exec", "x")), 422);
        assert_eq!(status(Failure::full("sandbox", "x")), 429);
        assert_eq!(status(Failure::ending()), 503);
        assert_eq!(status(Failure::new("receipt", "the disk is full")), 500);
        let of = |verdict: &str| Reply::of(json!({"decision": {"verdict": verdict}})).answer().status().as_u16();
        assert_eq!([of("allow"), of("ask"), of("deny")], [200, 403, 403]);
        assert_eq!(Reply::made(json!({"decision": {"verdict": "deny"}})).answer().status(), 403);
    }
}
