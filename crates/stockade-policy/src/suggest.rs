//! The narrowest rule that would allow a request, as Cedar text for a person to read.
//!
//! What was asked for comes from outside and is written as Cedar strings, each character that could end one escaped.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::cedar::NAMESPACE;
use crate::request::{Principal, Request};

/// A permit for this principal and this request, and as little else as Cedar can say.
pub(crate) fn rule(principal: &Principal, request: &Request<'_>) -> String {
    let (kind, id) = request.resource();
    let mut text = format!(
        "permit (\n  principal == {NAMESPACE}::{}::{},\n  action == {NAMESPACE}::Action::{},\n  resource == {NAMESPACE}::{kind}::{}\n)",
        principal.kind.name(),
        quoted(&principal.id),
        quoted(request.action().id()),
        quoted(id),
    );
    let conditions = conditions(request);
    if !conditions.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(text, " when {{\n  {}\n}}", conditions.join(" &&\n  "));
    }
    text + ";"
}

fn conditions(request: &Request<'_>) -> Vec<String> {
    match request {
        Request::Exec(call) => {
            let mut conditions = vec![
                format!("context.subcommand == {}", quoted(&call.subcommand)),
                within("flags", &call.flags),
                within("operands", &call.operands),
                within("reads", &call.reads),
                within("writes", &call.writes),
            ];
            if !call.opaque {
                conditions.push("!context.opaque".to_owned());
            }
            conditions
        }
        Request::Connect { port, tls, method, path, .. } => {
            let mut conditions = vec![format!("context.port == {port}"), if *tls { "context.tls".into() } else { "!context.tls".into() }];
            if !method.is_empty() {
                conditions.push(format!("context.method == {}", quoted(method)));
                conditions.push(format!("context.path == {}", quoted(path)));
            }
            conditions
        }
        Request::Read { .. } | Request::Write { .. } => Vec::new(),
    }
}

/// Nothing in the set but this.
fn within(name: &str, values: &BTreeSet<String>) -> String {
    if values.is_empty() {
        return format!("context.{name}.isEmpty()");
    }
    let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
    format!("[{}].containsAll(context.{name})", values.join(", "))
}

/// A Cedar string.
pub(crate) fn quoted(value: &str) -> String {
    format!("\"{}\"", value.escape_debug())
}
