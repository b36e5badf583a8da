//! `stockade trust project`: whether this repository's permits count.

use serde_json::json;
use stockade_policy::{Layer, RuleEffect};
use stockade_store::policy::{trust_project, untrust_project};

use super::super::policy::workspace;
use crate::Context;
use crate::admission::failure;
use crate::approver;
use crate::cli::TrustProjectArgs;
use crate::failure::Failure;
use crate::receipts::approved;

pub(super) fn project(args: &TrustProjectArgs, context: &Context) -> Result<(), Failure> {
    let (places, workspace) = (context.places()?, workspace(args.workspace.as_ref(), context)?);
    let shown = workspace.display();
    if args.remove {
        let words = ["--remove", &shown.to_string()];
        let decider = approver::demand("change which projects you trust", context)?;
        let forget = || untrust_project(places, &workspace).map_err(|error| failure(&error));
        let was = approved("trust.project", &words, &decider, context, forget)?;
        context.printer.note(if was { format!("permits of {shown} no longer count") } else { format!("{shown} was not trusted") });
        return Ok(());
    }
    // Rules that do not stand cannot be agreed to.
    let rules = crate::admission::Rules::load(places, &workspace)?;
    let permits = rules.policies()?.into_iter().flat_map(stockade_policy::Policies::rules);
    let permits = permits.filter(|rule| rule.layer == Layer::Project && rule.effect != RuleEffect::Forbid);
    let permits: Vec<String> = permits.map(|rule| format!("{} ({}:{})", rule.id, rule.file, rule.line)).collect();
    let named = shown.to_string();
    let agree = || trust_project(places, &workspace).map_err(|error| failure(&error));
    let decider = approver::demand("trust this project's rules", context)?;
    match approved("trust.project", &[&named], &decider, context, agree)? {
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
