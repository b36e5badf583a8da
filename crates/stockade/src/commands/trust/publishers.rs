//! `stockade trust add|list|remove`: keys of publishers.

use std::io::Read;
use std::path::Path;

use serde_json::json;
use stockade_policy::pack::{PublicKey, PublisherName};
use stockade_store::packs::{Publishers, PublishersError};
use stockade_store::policy::trusted_projects;

use crate::Context;
use crate::admission;
use crate::approver;
use crate::cli::{TrustAddArgs, TrustRemoveArgs};
use crate::failure::Failure;
use crate::printer::Table;
use crate::receipts::approved;

const STEP: &str = "trust";
/// Longer than any public key.
const MAX_KEY: u64 = 4096;

pub(super) fn add(args: &TrustAddArgs, context: &Context) -> Result<(), Failure> {
    let publisher = args.publisher.parse::<PublisherName>().map_err(|error| Failure::from_error(STEP, &error))?;
    let key = key(&args.key)?;
    let id = key.id().to_owned();
    let decider = approver::demand("trust a key", context)?;
    approved("trust.add", &[publisher.as_str(), &id], &decider, context, || {
        change(context, |publishers| publishers.add(publisher.clone(), key))
    })?;
    if context.printer.is_json() {
        return context.printer.json(&json!({ "publisher": publisher.as_str(), "key": id }));
    }
    context.printer.note(format!("packs of `{publisher}` that the key {id} signed can be installed now"));
    Ok(())
}

/// Digits as they are, else a file.
fn key(text: &str) -> Result<PublicKey, Failure> {
    if let Ok(key) = PublicKey::parse(text) {
        return Ok(key);
    }
    let mut pem = String::new();
    let read = std::fs::File::open(Path::new(text)).and_then(|file| file.take(MAX_KEY).read_to_string(&mut pem));
    let failed = |why: String| {
        Failure::new(STEP, format!("`{text}`: {why}")).with_hint("give the publisher's .pub file, or the 64 hexadecimal digits of the key")
    };
    read.map_err(|error| failed(error.to_string()))?;
    PublicKey::parse(&pem).map_err(|error| failed(error.to_string()))
}

pub(super) fn remove(args: &TrustRemoveArgs, context: &Context) -> Result<(), Failure> {
    let words: &[&str] = if args.revoke { &["--revoke", &args.which] } else { &[&args.which] };
    let decider = approver::demand("change whom you trust", context)?;
    let ids = approved("trust.remove", words, &decider, context, || {
        change(context, |publishers| if args.revoke { publishers.revoke(&args.which) } else { publishers.remove(&args.which) })
    })?;
    if context.printer.is_json() {
        let word = if args.revoke { "revoked" } else { "removed" };
        return context.printer.json(&json!({ word: ids }));
    }
    let what = if args.revoke { "can never be trusted again" } else { "is not trusted any more" };
    for id in ids {
        context.printer.note(format!("the key {id} {what}; what it signed does not load"));
    }
    Ok(())
}

fn change<T>(context: &Context, act: impl FnOnce(&mut Publishers) -> Result<T, PublishersError>) -> Result<T, Failure> {
    let places = context.places()?;
    let mut publishers = Publishers::load(places).map_err(|error| failure(&error))?;
    let done = act(&mut publishers).map_err(|error| failure(&error))?;
    publishers.store(places).map_err(|error| failure(&error))?;
    Ok(done)
}

/// Words about keys, with their fix.
fn failure(error: &PublishersError) -> Failure {
    let failure = Failure::from_error(STEP, error);
    match error.hint() {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

pub(super) fn list(context: &Context) -> Result<(), Failure> {
    let publishers = Publishers::load(context.places()?).map_err(|error| failure(&error))?;
    let projects = trusted_projects(context.places()?).map_err(|error| admission::failure(&error))?;
    if context.printer.is_json() {
        let keys = publishers
            .iter()
            .map(|(id, one)| json!({ "publisher": one.name.as_str(), "key": id, "state": one.state.name(), "public": one.key.to_hex() }));
        let projects: Vec<_> = projects.iter().map(|(path, digest)| json!({ "path": path, "sha256": digest.0 })).collect();
        return context.printer.json(&json!({ "projects": projects, "keys": keys.collect::<Vec<_>>() }));
    }
    let mut table = Table::new(["WHAT", "NAME", "STATE", "KEY OR SHA-256"]);
    for (id, one) in publishers.iter() {
        table.row(["publisher", one.name.as_str(), one.state.name(), id]);
    }
    for (path, digest) in &projects {
        table.row(["project", path, "trusted", &digest.0]);
    }
    context.printer.table(&table)
}
