//! Agents that ask before they act: the hook of Claude Code, and what puts it into its settings.

#![allow(clippy::indexing_slicing, clippy::needless_pass_by_value, clippy::panic, reason = "tests")]

mod answers;
mod install;

use serde_json::{Value, json};

use crate::Outcome;
use crate::wall::Ground;
use crate::wall::ground::finish_with;

/// Agents may run `ls`, `cat` and `touch`, and use files.
const RULES: &str = "@id(\"look\") permit (principal is Stockade::Agent, action == Stockade::Action::\"exec\", resource) when {
  resource in [Stockade::Program::\"ls\", Stockade::Program::\"cat\", Stockade::Program::\"touch\"] };
@id(\"files\") permit (principal is Stockade::Agent, action in [Stockade::Action::\"read\", Stockade::Action::\"write\"], resource);
@id(\"docs\") permit (principal is Stockade::Agent, action == Stockade::Action::\"connect\", resource == Stockade::Host::\"docs.example\") when { context.tls };";

fn rules(ground: &Ground, text: &str) {
    ground.plant(&ground.home.join(".config/stockade/policy/rules.cedar"), text, 0o600);
}

/// What Claude Code would ask.
fn question(ground: &Ground, tool: &str, input: Value) -> Value {
    json!({
        "session_id": "s-1", "transcript_path": "/t", "cwd": ground.work, "permission_mode": "default", "hook_event_name": "PreToolUse",
        "tool_name": tool, "tool_input": input, "tool_use_id": "toolu_1",
    })
}

fn asked(ground: &Ground, question: &Value) -> Outcome {
    finish_with(&mut ground.stockade(["hook", "claude"]), question.to_string().as_bytes())
}

/// The answer to a question, if there is one.
fn answer(ground: &Ground, tool: &str, input: Value) -> Option<Value> {
    let outcome = asked(ground, &question(ground, tool, input));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    if outcome.stdout.is_empty() {
        return None;
    }
    let value: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
    assert_eq!(value["hookSpecificOutput"]["hookEventName"], "PreToolUse");
    Some(value["hookSpecificOutput"].clone())
}

/// The reason of a refusal.
fn refusal(ground: &Ground, tool: &str, input: Value) -> String {
    let said = answer(ground, tool, input.clone()).unwrap_or_else(|| panic!("{tool} {input} was not refused"));
    assert_eq!(said["permissionDecision"], "deny", "{said}");
    said["permissionDecisionReason"].as_str().expect("a reason").to_owned()
}
