//! `sandbox list`.

use std::process::ExitCode;

use serde_json::{Value, json};
use stockade_sandbox::keeper;
use stockade_sandbox::state::{Found, Kind};

use super::{sandboxes, state_failure};
use crate::Context;
use crate::failure::Failure;
use crate::printer::Table;

pub(super) fn list(context: &Context) -> Result<ExitCode, Failure> {
    let sandboxes = sandboxes(context)?;
    let all = sandboxes.list().map_err(|e| state_failure(&e))?;
    for (id, error) in sandboxes.damaged().map_err(|e| state_failure(&e))? {
        context.printer.warning(format!("left out: {error}; `stockade sandbox destroy {id}` removes it"));
    }
    if context.printer.is_json() {
        context.printer.json(&json!({ "sandboxes": all.iter().map(describe).collect::<Vec<_>>() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["ID", "NAME", "STATUS", "BACKEND", "WORKSPACE", "CHANGES"]);
    for found in &all {
        let record = &found.record;
        let changes = record.kept.as_ref().map_or_else(|| "-".to_owned(), |c| c.len().to_string());
        let workspace = format!("{} ({})", record.workspace, record.mode);
        let name = record.name.as_ref().map_or("-", |n| n.as_str());
        table.row([record.id.as_str(), name, status(found), &record.backend, &workspace, &changes]);
    }
    context.printer.table(&table)?;
    Ok(ExitCode::SUCCESS)
}

fn status(found: &Found) -> &'static str {
    match (found.alive, found.record.kind) {
        (false, _) => "kept",
        (true, Kind::Created) if keeper::is_paused(&found.directory) => "paused",
        (true, _) => "running",
    }
}

/// One of them, with `--json`.
pub(crate) fn describe(found: &Found) -> Value {
    let record = &found.record;
    json!({
        "sandbox_id": record.id,
        "name": record.name,
        "status": status(found),
        "kind": record.kind,
        "backend": record.backend,
        "workspace": record.workspace,
        "workspace_mode": record.mode,
        "started": jiff::Timestamp::from_second(record.started.seconds).map(|t| t.to_string()).unwrap_or_default(),
        "command": record.command,
        "changes": record.kept,
    })
}
