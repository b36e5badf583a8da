//! Claude Code's settings: a hook that is asked before each tool that touches the machine.
//!
//! The hook is one command line, quoted for a shell, which every version understands; `onFailure` makes newer ones stop where the hook cannot
//! be run. (What it cannot decide it ends with the code that blocks in all of them.)

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstNode, CstObject, CstRootNode};
use serde_json::{Value, json};

use crate::settings::written;

/// The tools that are asked about.
const TOOLS: &str = "Bash|Read|Grep|Glob|LS|Write|Edit|MultiEdit|NotebookEdit|WebFetch";
/// Seconds that Claude Code waits for the answer.
const TIMEOUT: u32 = 60;
/// How the command ends by which ours is known.
const VERB: &str = " hook claude";
const EVENT: &str = "PreToolUse";

/// Settings with the hook; unchanged where it stands there already.
pub(super) fn put_in(text: &str, program: &str) -> Result<String, String> {
    let text = if text.trim().is_empty() { "{}\n" } else { text };
    let entry = entry(program);
    let root = parse(text)?;
    let hooks = object(&root)?.object_value_or_create("hooks").ok_or("`hooks` is not an object")?;
    let events = hooks.array_value_or_create(EVENT).ok_or("`hooks.PreToolUse` is not an array")?;
    let ours: Vec<CstNode> = events.elements().into_iter().filter(is_ours).collect();
    if ours.len() == 1 && ours.iter().all(|one| value(one).as_ref() == Some(&entry)) {
        return Ok(text.to_owned());
    }
    ours.into_iter().for_each(CstNode::remove);
    events.append(written(&entry));
    Ok(root.to_string())
}

/// Settings without the hook, and without the groups that it leaves empty.
pub(super) fn take_out(text: &str) -> Result<String, String> {
    let root = parse(text)?;
    let settings = object(&root)?;
    let Some(hooks) = settings.object_value("hooks") else { return Ok(text.to_owned()) };
    let Some(events) = hooks.array_value(EVENT) else { return Ok(text.to_owned()) };
    let ours: Vec<CstNode> = events.elements().into_iter().filter(is_ours).collect();
    if ours.is_empty() {
        return Ok(text.to_owned());
    }
    ours.into_iter().for_each(CstNode::remove);
    if events.elements().is_empty()
        && let Some(property) = hooks.get(EVENT)
    {
        property.remove();
    }
    if hooks.properties().is_empty()
        && let Some(property) = settings.get("hooks")
    {
        property.remove();
    }
    Ok(root.to_string())
}

fn parse(text: &str) -> Result<CstRootNode, String> {
    CstRootNode::parse(text, &ParseOptions::default()).map_err(|error| format!("it is not JSON: {error}"))
}

fn object(root: &CstRootNode) -> Result<CstObject, String> {
    root.object_value().ok_or_else(|| "it is not a JSON object".to_owned())
}

/// Whether an entry is one of this program's, wherever the program lay.
fn is_ours(entry: &CstNode) -> bool {
    let is_command = |hook: &Value| hook.get("command").and_then(Value::as_str).is_some_and(|line| line.ends_with(VERB));
    let Some(value) = value(entry) else { return false };
    value.get("hooks").and_then(Value::as_array).is_some_and(|hooks| !hooks.is_empty() && hooks.iter().all(is_command))
}

fn value(node: &CstNode) -> Option<Value> {
    jsonc_parser::parse_to_serde_value(&node.to_string(), &ParseOptions::default()).ok()
}

/// What is put in.
fn entry(program: &str) -> Value {
    let command = format!("{}{VERB}", quoted(program));
    let hook = json!({ "type": "command", "command": command, "timeout": TIMEOUT, "onFailure": "block" });
    json!({ "matcher": TOOLS, "hooks": [hook] })
}

/// One word of a shell's command line.
fn quoted(program: &str) -> String {
    format!("'{}'", program.replace('\'', r"'\''"))
}
