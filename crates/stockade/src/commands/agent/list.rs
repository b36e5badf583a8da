//! `agent list`.

use std::process::ExitCode;

use serde_json::{Value, json};
use stockade_sandbox::once;
use stockade_sandbox::state::Sandboxes;
use stockade_sandbox::workspace::layer::Layer;

use super::super::sandbox::sandboxes;
use crate::Context;
use crate::agent::roll::{Entry, Roll};
use crate::failure::Failure;
use crate::printer::Table;

pub(super) fn list(context: &Context) -> Result<ExitCode, Failure> {
    let all = Roll::open(context)?.list();
    let sandboxes = sandboxes(context)?;
    if context.printer.is_json() {
        let agents: Vec<Value> = all.iter().map(|entry| describe(entry, &sandboxes)).collect();
        context.printer.json(&json!({ "agents": agents }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["ID", "NAME", "AGENT", "STATUS", "CHANGES", "TOKENS", "WORKSPACE"]);
    for entry in &all {
        let agent = &entry.agent;
        let number = |pointer: &str| entry.summary.as_ref().and_then(|summary| summary.pointer(pointer)).and_then(Value::as_u64);
        let tokens = number("/tokens/total").map_or_else(|| "-".to_owned(), |tokens| tokens.to_string());
        let changes = changes(entry, &sandboxes).map_or_else(|| "-".to_owned(), |count| count.to_string());
        let name = agent.name.as_ref().map_or("-", |name| name.as_str());
        table.row([agent.id.as_str(), name, &agent.profile, &status(entry), &changes, &tokens, &agent.workspace]);
    }
    context.printer.table(&table)?;
    Ok(ExitCode::SUCCESS)
}

/// In a word: it runs, how it ended, or that it was killed with its owner.
fn status(entry: &Entry) -> String {
    let Some(summary) = &entry.summary else {
        return if entry.is_running() { "running".into() } else { "killed".into() };
    };
    if summary.get("error").is_some() {
        return "failed".into();
    }
    match (summary.get("limit").and_then(Value::as_str), summary.get("exit_code").and_then(Value::as_i64)) {
        (Some(limit), _) => format!("limit: {limit}"),
        (None, Some(code)) => format!("code {code}"),
        (None, None) => "ended".into(),
    }
}

/// Changes that wait to be applied.
fn changes(entry: &Entry, sandboxes: &Sandboxes) -> Option<usize> {
    let found = sandboxes.find(entry.agent.id.as_str()).ok().filter(|found| !found.alive)?;
    let kept = found.record.kept.as_ref()?;
    // Of one that was killed nobody wrote down what changed.
    let upper = found.directory.join("layer/upper");
    if kept.is_empty() && upper.is_dir() {
        return Layer::new(upper, found.record.workspace_path()).changes().ok().map(|changes| once::listed(&changes).len());
    }
    Some(kept.len())
}

fn describe(entry: &Entry, sandboxes: &Sandboxes) -> Value {
    let agent = &entry.agent;
    json!({
        "id": agent.id,
        "name": agent.name,
        "agent": agent.profile,
        "status": status(entry),
        "running": entry.is_running(),
        "command": agent.command,
        "workspace": agent.workspace,
        "started": jiff::Timestamp::from_second(agent.started).map(|time| time.to_string()).unwrap_or_default(),
        "waiting_changes": changes(entry, sandboxes),
        "summary": entry.summary,
    })
}
