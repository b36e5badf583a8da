//! REST as clients meet it: requests by hand for what must hold to the letter, and Schemathesis for everything that the document names.

#![allow(clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod approvals;
mod calls;
mod looking;
mod sandboxes;
mod strangers;

use serde_json::Value;

use crate::http::server::{Answer, BEARER, Server};

/// What a client of ours sends with each request.
const FIELDS: [(&str, &str); 3] = [BEARER, ("Content-Type", "application/json"), ("X-Stockade-Client", "tests")];

/// A request with a body, which may be nothing.
fn ask(server: &Server, what: &str, body: &Value) -> Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    server.request(what, &FIELDS, &body)
}

/// The same, which must be answered so; its JSON.
fn told(server: &Server, what: &str, body: &Value, status: u16) -> Value {
    let answer = ask(server, what, body);
    assert_eq!(answer.status, status, "{what} {body}: {answer:?}");
    answer.json()
}
