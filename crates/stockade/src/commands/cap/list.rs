//! `stockade cap list`: every capability of every pack that verified.

use std::process::ExitCode;

use serde_json::{Value, json};
use stockade_store::packs::{CapabilitySummary, LoadedPack, Packs};

use super::super::pack::{failure, tell_problems};
use crate::Context;
use crate::cli::CapListArgs;
use crate::failure::Failure;
use crate::printer::Table;

pub(super) fn run(args: &CapListArgs, context: &Context) -> Result<ExitCode, Failure> {
    let packs = Packs::load(context.places()?).map_err(|error| failure(&error))?;
    if let Some(wanted) = &args.pack
        && !packs.packs.iter().any(|pack| pack.name.as_str() == wanted)
    {
        return Err(failure(&stockade_store::packs::PackError::NoPack(stockade_core::escape::escape(wanted))));
    }
    let wanted = packs.packs.iter().filter(|pack| args.pack.as_ref().is_none_or(|wanted| pack.name.as_str() == wanted));
    let rows = wanted.flat_map(|pack| pack.capabilities.iter().map(move |capability| (pack, capability)));
    if context.printer.is_json() {
        let capabilities = rows.map(|(pack, capability)| listed(pack, capability));
        context.printer.json(&json!({ "capabilities": capabilities.collect::<Vec<_>>() }))?;
    } else {
        let mut table = Table::new(["CAPABILITY", "EFFECT", "RISK", "DESCRIPTION"]);
        for (_, capability) in rows {
            let facts = &capability.facts;
            table.row([facts.name.as_str(), facts.effect.name(), facts.risk.name(), &capability.description]);
        }
        context.printer.table(&table)?;
    }
    tell_problems(&packs, context);
    Ok(ExitCode::SUCCESS)
}

/// A capability, with `--json`.
pub(crate) fn listed(pack: &LoadedPack, capability: &CapabilitySummary) -> Value {
    json!({
        "name": capability.facts.name.as_str(), "pack": pack.name.as_str(), "effect": capability.facts.effect.name(),
        "risk": capability.facts.risk.name(), "description": capability.description,
    })
}
