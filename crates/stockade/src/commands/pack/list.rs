//! `stockade pack list`: what there is, and what was left out.

use std::process::ExitCode;

use serde_json::json;
use stockade_store::packs::{Packs, Standing};

use super::failure;
use crate::Context;
use crate::failure::Failure;
use crate::printer::Table;

pub(super) fn run(context: &Context) -> Result<ExitCode, Failure> {
    let packs = Packs::load(context.places()?).map_err(|error| failure(&error))?;
    if context.printer.is_json() {
        let listed = packs.packs.iter().map(|pack| {
            let key = if let Standing::Signed { key_id, .. } = &pack.standing { Some(key_id) } else { None };
            json!({
                "name": pack.name.as_str(), "version": pack.version.to_string(), "publisher": pack.publisher.as_str(),
                "standing": pack.standing.name(), "key": key, "description": pack.description, "capabilities": pack.capabilities.len(),
            })
        });
        let problems: Vec<_> =
            packs.problems.iter().map(|problem| json!({ "name": problem.name, "error": failure(&problem.error).message })).collect();
        context.printer.json(&json!({ "packs": listed.collect::<Vec<_>>(), "problems": problems }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["PACK", "VERSION", "PUBLISHER", "STANDING", "CAPABILITIES", "DESCRIPTION"]);
    for pack in &packs.packs {
        let count = pack.capabilities.len().to_string();
        table.row([
            pack.name.as_str(),
            &pack.version.to_string(),
            pack.publisher.as_str(),
            pack.standing.name(),
            &count,
            &pack.description,
        ]);
    }
    context.printer.table(&table)?;
    tell_problems(&packs, context);
    Ok(ExitCode::SUCCESS)
}

/// Packs that were left out are said wherever packs are listed.
pub(crate) fn tell_problems(packs: &Packs, context: &Context) {
    for problem in &packs.problems {
        context.printer.warning(format!("the pack `{}` is left out: {}", problem.name, failure(&problem.error).message));
    }
}
