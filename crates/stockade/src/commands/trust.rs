//! `stockade trust`: which projects' rules count.

use std::process::ExitCode;

use serde_json::json;
use stockade_policy::{Layer, RuleEffect};
use stockade_store::policy::{trust_project, trusted_projects, untrust_project};

use super::policy::workspace;
use crate::Context;
use crate::admission::failure;
use crate::cli::{TrustArgs, TrustProjectArgs, TrustVerb};
use crate::failure::Failure;
use crate::printer::Table;

pub(crate) fn run(args: &TrustArgs, context: &Context) -> Result<ExitCode, Failure> {
    match &args.verb {
        TrustVerb::Project(args) => project(args, context)?,
        TrustVerb::List(_) => list(context)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn project(args: &TrustProjectArgs, context: &Context) -> Result<(), Failure> {
    let (places, workspace) = (context.places()?, workspace(args.workspace.as_ref(), context)?);
    let shown = workspace.display();
    if args.remove {
        let was = untrust_project(places, &workspace).map_err(|error| failure(&error))?;
        context.printer.note(if was { format!("permits of {shown} no longer count") } else { format!("{shown} was not trusted") });
        return Ok(());
    }
    // Rules that do not stand cannot be agreed to.
    let rules = crate::admission::Rules::load(places, &workspace)?;
    let permits = rules.policies().into_iter().flat_map(stockade_policy::Policies::rules);
    let permits = permits.filter(|rule| rule.layer == Layer::Project && rule.effect != RuleEffect::Forbid);
    let permits: Vec<String> = permits.map(|rule| format!("{} ({}:{})", rule.id, rule.file, rule.line)).collect();
    match trust_project(places, &workspace).map_err(|error| failure(&error))? {
        Some(digest) if context.printer.is_json() => {
            context.printer.json(&json!({ "project": workspace.to_string_lossy(), "sha256": digest.0, "permits": permits }))
        }
        Some(_) => {
            context.printer.note(format!("permits of {shown} count now, until its rules change:"));
            for permit in &permits {
                context.printer.note(format!("  {permit}"));
            }
            Ok(())
        }
        None => Err(Failure::new("trust", format!("{shown} has no rules")).with_hint("they would be in .stockade/policy/*.cedar")),
    }
}

fn list(context: &Context) -> Result<(), Failure> {
    let projects = trusted_projects(context.places()?).map_err(|error| failure(&error))?;
    if context.printer.is_json() {
        let projects: Vec<_> = projects.iter().map(|(path, digest)| json!({ "path": path, "sha256": digest.0 })).collect();
        return context.printer.json(&json!({ "projects": projects, "keys": [] }));
    }
    let mut table = Table::new(["PROJECT", "SHA-256"]);
    for (path, digest) in &projects {
        table.row([path, &digest.0]);
    }
    context.printer.table(&table)
}
