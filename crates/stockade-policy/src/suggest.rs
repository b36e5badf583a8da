//! The narrowest rule that would allow a request, as Cedar text for a person to read.
//!
//! What was asked for comes from outside and is written as Cedar strings, each character that could end one escaped.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use crate::capability::{InputFact, Kind, Presence, Scalar, canonical};
use crate::cedar::NAMESPACE;
use crate::request::{Principal, Request};

/// A permit for this principal and this request, and as little else as Cedar can say.
pub fn rule(principal: &Principal, request: &Request<'_>) -> String {
    let (kind, id) = request.resource();
    let mut text = format!(
        "permit (\n  principal == {NAMESPACE}::{}::{},\n  action == {NAMESPACE}::Action::{},\n  resource == {NAMESPACE}::{kind}::{}\n)",
        principal.kind.name(),
        quoted(&principal.id),
        quoted(request.action_id()),
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
        Request::Invoke(invocation) => {
            invocation.capability.inputs.iter().map(|fact| same(fact, invocation.values.get(&fact.name))).collect()
        }
        Request::Approve { effect, method, .. } => {
            vec![format!("context.effect == {}", quoted(effect)), format!("context.method == {}", quoted(method))]
        }
    }
}

/// The input as it was in this call. Names of inputs are plain words.
fn same(fact: &InputFact, value: Option<&Value>) -> String {
    let InputFact { name, kind, presence } = fact;
    let Some(value) = value else { return format!("!(context.args has {name})") };
    let items = |item: fn(&Value) -> String| {
        let items: Vec<String> = value.as_array().into_iter().flatten().map(item).collect();
        if items.is_empty() { format!("context.args.{name}.isEmpty()") } else { format!("context.args.{name} == [{}]", items.join(", ")) }
    };
    let literal = match kind {
        Kind::Bool | Kind::Long => format!("context.args.{name} == {value}"),
        Kind::Text => format!("context.args.{name} == {}", quoted(value.as_str().unwrap_or_default())),
        Kind::Set(Scalar::Bool | Scalar::Long) => items(ToString::to_string),
        Kind::Set(Scalar::Text) => items(|item| quoted(item.as_str().unwrap_or_default())),
        Kind::Number | Kind::Json => format!("context.args.{name} == {}", quoted(&canonical(value))),
    };
    if *presence == Presence::Maybe { format!("context.args has {name} && {literal}") } else { literal }
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
