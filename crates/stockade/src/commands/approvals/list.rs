//! `stockade approvals list` and `show`.

use serde_json::{Value, json};
use stockade_gateway::approvals::{Request, State, Store};

use super::{failure, store, store_with, time};
use crate::Context;
use crate::approver::now;
use crate::cli::{ApprovalsListArgs, OneRequest};
use crate::failure::Failure;
use crate::printer::Table;

pub(super) fn list(args: &ApprovalsListArgs, context: &Context) -> Result<(), Failure> {
    let found = store(context)?.as_mut().map_or(Ok(Vec::new()), |store: &mut Store| store.requests(now()));
    let mut found = found.map_err(|error| failure(&error))?;
    found.retain(|request| args.all || request.state == State::Pending);
    if context.printer.is_json() {
        return context.printer.json(&json!({ "approvals": found.iter().map(brief).collect::<Vec<_>>() }));
    }
    if found.is_empty() {
        context.printer.note("nothing waits for you");
        return Ok(());
    }
    let mut table = Table::new(["ID", "STATE", "ASKED", "TIMES", "EFFECT", "WHO", "CALL"]);
    for one in &found {
        table.row([&one.id, one.state.name(), &time(one.asked), &one.times.to_string(), &one.effect, &one.principal, &one.title]);
    }
    context.printer.table(&table)?;
    context.printer.note("stockade approvals show ID · approve ID · deny ID");
    Ok(())
}

pub(super) fn show(args: &OneRequest, context: &Context) -> Result<(), Failure> {
    let (mut store, id) = store_with(&args.id, context)?;
    let request = store.request(&id, now()).map_err(|error| failure(&error))?;
    if context.printer.is_json() {
        return context.printer.json(&whole(&request));
    }
    context.printer.line(format!("{} {}, asked {} ({} times)", request.id, request.state.name(), time(request.asked), request.times))?;
    request.shown.lines().try_for_each(|line| context.printer.line(format!("  {line}")))?;
    if let (Some(decided), Some(by), Some(method)) = (request.decided, &request.by, &request.method) {
        context.printer.line(format!("decided {} by {by} ({method})", time(decided)))?;
    }
    if matches!(request.state, State::Pending | State::Approved | State::Denied) {
        context.printer.line(format!("until {}", time(request.expires)))?;
    }
    Ok(())
}

/// A request with everything that a person is shown.
pub(crate) fn whole(request: &Request) -> Value {
    let mut value = brief(request);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("shown".to_owned(), json!(request.shown));
        fields.insert("rules".to_owned(), json!(request.rules));
    }
    value
}

/// What a list says of one.
pub(crate) fn brief(request: &Request) -> Value {
    let decided = request.decided.map(|when| json!({ "time": time(when), "by": request.by, "method": request.method }));
    json!({
        "id": request.id, "state": request.state.name(), "principal": request.principal, "effect": request.effect, "call": request.title,
        "asked": time(request.asked), "asked_last": time(request.asked_last), "times": request.times, "expires": time(request.expires),
        "shown_sha256": request.shown_sha256, "receipt_id": request.receipt, "decided": decided,
    })
}
