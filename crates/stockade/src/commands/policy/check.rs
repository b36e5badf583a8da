//! `policy check` and `policy test`: whether the rules stand, and whether their examples hold.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use stockade_policy::capability::Vocabulary;
use stockade_policy::{Checks, Faults, Layer, Policies, PolicyFile, Trust, schema_text};
use stockade_store::packs::Packs;
use stockade_store::policy::{self, PolicyLayers};

use super::{STEP, read, workspace};
use crate::Context;
use crate::admission;
use crate::cli::CheckArgs;
use crate::failure::Failure;

pub(super) fn check(args: &CheckArgs, context: &Context) -> Result<ExitCode, Failure> {
    if args.schema {
        let schema = schema_text(&vocabulary(context)?);
        if context.printer.is_json() {
            context.printer.json(&json!({ "schema": schema }))?;
        } else {
            context.printer.bytes(schema.as_bytes())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let files =
        if args.files.is_empty() { in_force(context)? } else { args.files.iter().map(|path| named(path)).collect::<Result<_, _>>()? };
    match Policies::compile_with(&files, Checks::All, &vocabulary(context)?) {
        Ok(policies) => {
            if context.printer.is_json() {
                context.printer.json(&json!({ "faults": [], "files": files.len(), "rules": policies.rules().len() }))?;
            } else {
                context.printer.note(format!("{} rules in {} files stand", policies.rules().len(), files.len()));
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(faults) => {
            tell(&faults, context)?;
            Ok(ExitCode::from(125))
        }
    }
}

/// Examples are tried whenever rules are checked; this says how many there are.
pub(super) fn test(context: &Context) -> Result<ExitCode, Failure> {
    let files = in_force(context)?;
    let policies = match Policies::compile_with(&files, Checks::All, &vocabulary(context)?) {
        Ok(policies) => policies,
        Err(faults) => {
            tell(&faults, context)?;
            return Ok(ExitCode::from(125));
        }
    };
    let (examples, rules) = (policies.examples(), policies.rules().len());
    if context.printer.is_json() {
        context.printer.json(&json!({ "examples": examples, "rules": rules, "faults": [] }))?;
    } else {
        context.printer.note(format!("{examples} examples above {rules} rules hold"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what does not stand, and where.
pub(crate) fn tell(Faults(faults): &Faults, context: &Context) -> Result<(), Failure> {
    if context.printer.is_json() {
        let faults = faults.iter().map(
            |fault| json!({ "file": fault.file, "line": fault.line, "column": fault.column, "message": fault.message, "hint": fault.hint }),
        );
        return context.printer.json(&json!({ "faults": faults.collect::<Vec<_>>() }));
    }
    for fault in faults {
        // The text is escaped where it was put together.
        context.printer.page_aside(&format!("{fault}\n"));
    }
    Ok(())
}

/// The capabilities that rules may name.
fn vocabulary(context: &Context) -> Result<Vocabulary, Failure> {
    let packs = Packs::load(context.places()?).map_err(|error| super::super::pack::failure(&error))?;
    policy::vocabulary(context.places()?, &packs).map_err(|error| admission::failure(&error))
}

/// The files of all layers; none is an error, because somebody believes that there are some.
fn in_force(context: &Context) -> Result<Vec<PolicyFile>, Failure> {
    let workspace = workspace(None, context)?;
    let layers = PolicyLayers::load(context.places()?, Some(&workspace)).map_err(|error| admission::failure(&error))?;
    if layers.is_empty() {
        return Err(Failure::new(STEP, "there are no rules to check").with_hint("stockade init"));
    }
    Ok(layers.files)
}

/// A file that was named: checked as if it were one of the person's own.
fn named(path: &Path) -> Result<PolicyFile, Failure> {
    Ok(PolicyFile { layer: Layer::User, trust: Trust::Trusted, name: path.display().to_string(), text: read(path)? })
}
