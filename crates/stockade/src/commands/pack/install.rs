//! `stockade pack install` and `stockade pack remove`.

use std::io::{BufRead, IsTerminal, Read};
use std::process::ExitCode;

use serde_json::json;
use stockade_policy::pack::PackName;
use stockade_store::packs::{self, Checked, Downgrade, Standing, Unsigned};

use super::{STEP, consent, failure};
use crate::Context;
use crate::approver;
use crate::cli::{PackInstallArgs, PackRemoveArgs};
use crate::failure::Failure;
use crate::receipts::{approved, lifecycle};

/// Longer than any answer.
const MOST_ANSWER: u64 = 64;

pub(super) fn run(args: &PackInstallArgs, context: &Context) -> Result<ExitCode, Failure> {
    let places = context.places()?;
    let unsigned = if args.unsigned { Unsigned::Accept } else { Unsigned::Refuse };
    let checked = packs::check(places, &args.path, unsigned).map_err(|error| failure(&error))?;
    agree(args, &checked, context)?;
    let downgrade = if args.allow_downgrade { Downgrade::Allow } else { Downgrade::Refuse };
    let manifest = &checked.pack.manifest;
    let words = [manifest.name.as_str(), &manifest.version.to_string(), checked.standing.name()];
    let install = || packs::install(places, &checked, downgrade).map_err(|error| failure(&error));
    if args.unsigned {
        let decider = approver::demand("install a pack that nobody signed", context)?;
        approved("pack.install", &words, &decider, context, install)?;
    } else {
        lifecycle("pack.install", &words, context, install)?;
    }
    if context.printer.is_json() {
        let capabilities: Vec<&str> = checked.pack.capabilities.iter().map(|file| file.capability.name.as_str()).collect();
        context.printer.json(&json!({
            "pack": manifest.name.as_str(), "version": manifest.version.to_string(), "standing": checked.standing.name(), "capabilities": capabilities,
        }))?;
    } else {
        context.printer.note(format!("installed `{}` {} ({})", manifest.name, manifest.version, checked.standing.name()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows everything that the pack may do, and asks.
fn agree(args: &PackInstallArgs, checked: &Checked, context: &Context) -> Result<(), Failure> {
    let manifest = &checked.pack.manifest;
    let by = match &checked.standing {
        Standing::Signed { key_id, publisher } => format!("signed by `{publisher}` (key {key_id})"),
        Standing::Unsigned | Standing::BuiltIn => "signed by nobody whom you trust".to_owned(),
    };
    context.printer.note(format!("`{}` {}, {by}: {}", manifest.name, manifest.version, manifest.description));
    for line in consent::lines(&checked.pack) {
        context.printer.note(format!("  {line}"));
    }
    if args.yes {
        return Ok(());
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::new(STEP, "nobody can be asked whether this is agreed to").with_hint("look at it, then give --yes"));
    }
    context.printer.note("install it? [y/N]");
    let mut answer = String::new();
    let read = stdin.lock().take(MOST_ANSWER).read_line(&mut answer);
    read.map_err(|error| Failure::new(STEP, format!("reading the answer: {error}")))?;
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(Failure::new(STEP, "not installed: you did not agree")) }
}

pub(super) fn remove(args: &PackRemoveArgs, context: &Context) -> Result<ExitCode, Failure> {
    let name = args.name.parse::<PackName>().map_err(|error| Failure::from_error(STEP, &error))?;
    let places = context.places()?;
    lifecycle("pack.remove", &[name.as_str()], context, || packs::remove(places, &name).map_err(|error| failure(&error)))?;
    if context.printer.is_json() {
        context.printer.json(&json!({ "removed": name.as_str() }))?;
    } else {
        context.printer.note(format!("removed `{name}`"));
    }
    Ok(ExitCode::SUCCESS)
}
