//! `stockade approvals credential`: what tells a person from an agent that runs as them.

use serde_json::json;
use stockade_gateway::approver::{Credential, CredentialError, Place};

use crate::Context;
use crate::approver::{self, STEP};
use crate::failure::Failure;
use crate::passphrase;
use crate::receipts::approved;

pub(super) fn set(context: &Context) -> Result<(), Failure> {
    let places = context.places()?;
    let before = own(context)?;
    let decider = approver::demand("choose another", context)?;
    let passphrase = passphrase::ask_new("A passphrase for the approver (not shown): ", STEP, context)?;
    let credential = approved("approvals.credential.set", &[], &decider, context, || {
        Credential::set(places, &passphrase).map_err(|error| approver::failure(&error))
    })?;
    if context.printer.is_json() {
        let value = json!({ "key": credential.key_id(), "file": credential.path().to_string_lossy(), "replaced": before.is_some() });
        return context.printer.json(&value);
    }
    context
        .printer
        .note(format!("approvals are signed with the key {} from now on; what was approved before does not count", credential.key_id()));
    Ok(())
}

pub(super) fn remove(context: &Context) -> Result<(), Failure> {
    let places = context.places()?;
    let before = own(context)?;
    if before.is_none() {
        return Err(Failure::new(STEP, "no approver credential is set up"));
    }
    let decider = approver::demand("take it away", context)?;
    approved("approvals.credential.remove", &[], &decider, context, || {
        Credential::remove(places).map_err(|error| approver::failure(&error))
    })?;
    if context.printer.is_json() {
        return context.printer.json(&json!({ "removed": before.map(|credential| credential.key_id().to_owned()) }));
    }
    context.printer.note("nothing tells you from an agent that runs as you any more; destructive calls stay denied");
    Ok(())
}

pub(super) fn status(context: &Context) -> Result<(), Failure> {
    let found = Credential::load(context.places()?).map_err(|error| approver::failure(&error))?;
    if context.printer.is_json() {
        let one = found.map(|credential| {
            json!({ "key": credential.key_id(), "place": credential.place.name(), "file": credential.path().to_string_lossy() })
        });
        return context.printer.json(&json!({ "credential": one }));
    }
    match found {
        Some(credential) => context.printer.line(format!("set: key {} ({})", credential.key_id(), credential.path().display())),
        None => {
            context.printer.line("not set: approvals are `same-uid`, and destructive calls stay denied; stockade approvals credential set")
        }
    }
}

/// The person's own, where there is one; the machine's is an administrator's to change.
fn own(context: &Context) -> Result<Option<Credential>, Failure> {
    match Credential::load(context.places()?).map_err(|error| approver::failure(&error))? {
        Some(credential) if credential.place == Place::Machine => {
            Err(approver::failure(&CredentialError::Machine(credential.path().to_owned())).with_hint("ask your administrator"))
        }
        other => Ok(other),
    }
}
