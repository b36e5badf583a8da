//! `stockade grants`: what was approved for longer than one call.

use serde_json::{Value, json};
use stockade_gateway::approvals::{ApprovalError, Method, RequestId, Store};
use stockade_gateway::grants::Grant;
use stockade_ledger::receipt::Approval;
use stockade_store::person;

use super::{failure, store, time};
use crate::Context;
use crate::approver::now;
use crate::cli::RevokeArgs;
use crate::failure::Failure;
use crate::printer::Table;
use crate::receipts::decided;

pub(super) fn list(context: &Context) -> Result<(), Failure> {
    let found = store(context)?.as_mut().map_or(Ok(Vec::new()), |store: &mut Store| store.grants(now()));
    let found = found.map_err(|error| failure(&error))?;
    if context.printer.is_json() {
        return context.printer.json(&json!({ "grants": found.iter().map(value).collect::<Vec<_>>() }));
    }
    if found.is_empty() {
        context.printer.note("no grant stands");
        return Ok(());
    }
    let mut table = Table::new(["ID", "UNTIL", "FOR", "USES", "BY", "WHO", "CALL"]);
    for one in &found {
        let scope = if one.session.is_some() { "session" } else { "time" };
        table.row([&one.id, &time(one.expires), scope, &one.uses.to_string(), &one.by, &one.principal, &one.title]);
    }
    context.printer.table(&table)
}

pub(super) fn revoke(args: &RevokeArgs, context: &Context) -> Result<(), Failure> {
    let mut gone = Vec::new();
    for text in &args.ids {
        let unknown = || failure(&ApprovalError::NoGrant(stockade_core::escape::escape(text)));
        let id = RequestId::parse(text).ok_or_else(unknown)?;
        let mut store = store(context)?.ok_or_else(unknown)?;
        let grants = store.grants(now()).map_err(|error| failure(&error))?;
        let grant = grants.into_iter().find(|grant| grant.id == id.as_str()).ok_or_else(unknown)?;
        // Taking back needs no credential: it lets nothing through.
        let method = Method::SameUid.name().to_owned();
        let approval = Approval { by: person::name(), method, shown_sha256: grant.shown_sha256.clone() };
        let revoked =
            decided("grants.revoke", &[id.as_str()], approval, "", context, || store.revoke(&id, now()).map_err(|error| failure(&error)))?;
        gone.push(revoked.id);
    }
    if context.printer.is_json() {
        return context.printer.json(&json!({ "revoked": gone }));
    }
    context.printer.note(format!("taken back: {}", gone.join(", ")));
    Ok(())
}

fn value(grant: &Grant) -> Value {
    json!({
        "id": grant.id, "principal": grant.principal, "effect": grant.effect, "call": grant.title, "session": grant.session,
        "made": time(grant.made), "expires": time(grant.expires), "uses": grant.uses, "by": grant.by, "method": grant.method,
        "shown": grant.shown, "shown_sha256": grant.shown_sha256,
    })
}
