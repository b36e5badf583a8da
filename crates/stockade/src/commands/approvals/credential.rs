//! `stockade approvals credential`: what tells a person from an agent that runs as them.

use serde_json::json;
use stockade_core::escape::escape;
use stockade_gateway::approver::{Approver, Credential, CredentialError, Made, Place};

use crate::Context;
use crate::approver::{self, STEP};
use crate::cli::CredentialKeyArgs;
use crate::failure::Failure;
use crate::passphrase;
use crate::receipts::{approved, lifecycle};

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
            let (key, place, uid) = (credential.key_id(), credential.place.name(), credential.approver_uid());
            json!({ "key": key, "place": place, "file": credential.path().to_string_lossy(), "uid": uid })
        });
        return context.printer.json(&json!({ "credential": one }));
    }
    match found {
        Some(credential) if credential.approver_uid().is_some() => {
            let who = credential.approver_uid().map(stockade_store::person::name_of).unwrap_or_default();
            context.printer.line(format!("set: only `{who}` approves, key {} ({})", credential.key_id(), credential.path().display()))
        }
        Some(credential) => context.printer.line(format!("set: key {} ({})", credential.key_id(), credential.path().display())),
        None => {
            context.printer.line("not set: approvals are `same-uid`, and destructive calls stay denied; stockade approvals credential set")
        }
    }
}

/// Makes a key, or takes the one that is there, and prints what names its owner as the approver.
pub(super) fn key(args: &CredentialKeyArgs, context: &Context) -> Result<(), Failure> {
    if !args.sockets.is_absolute() {
        return Err(Failure::new("arguments", "`--sockets` is not an absolute path"));
    }
    let made = lifecycle("approvals.credential.key", &[], context, || {
        Approver::of_user(context.places()?).map_err(|error| approver::failure(&error))
    });
    let (approver, made) = made?;
    let uid = rustix::process::geteuid().as_raw();
    let document = approver.document(uid, &args.sockets).map_err(|error| approver::failure(&error))?;
    if made == Made::Now {
        context.printer.note("a key was made, for you alone to read");
    }
    let sockets = escape(&args.sockets.to_string_lossy());
    context.printer.note(format!("as root: put this into /etc/stockade/approver.json (mode 0644), and install -d -m 1777 {sockets}"));
    context.printer.bytes(format!("{document}\n").as_bytes())
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
