//! What tools say of themselves: descriptions for a model to read, and JSON Schemas of what goes in and comes out.

use serde_json::{Map, Value, json};

pub(super) const SHELL: &str = "Run a bash script in a sandbox on a private copy of the workspace. Changes are kept from call to call and reach the real workspace only when a person applies them. There is no network unless a rule allows a host. Home and /tmp are fresh each time.";
pub(super) const SHELL_READ_ONLY: &str =
    "Run a bash script in a sandbox that cannot change the workspace. It sees what earlier calls changed.";
pub(super) const READ_FILE: &str = "Read a file as the sandbox sees it, earlier changes included. A relative path begins at the workspace.";
pub(super) const WRITE_FILE: &str = "Write a whole file in the private copy of the workspace; directories are made as needed. Give `content` for text or `content_base64` for bytes.";
pub(super) const LIST_DIR: &str = "List a directory as the sandbox sees it. A relative path begins at the workspace.";
pub(super) const APPROVAL_WAIT: &str = "Wait until a person answers a request for approval. Once it is approved, the call that asked runs, once, and this answers with its result.";
pub(super) const STATUS: &str = "Say which workspace and sandbox this is, who you are to the rules, and whether there are any.";
pub(super) const SEARCH: &str =
    "Find capabilities: typed operations of programs that the rules let you call. Give words, or nothing to see all.";
pub(super) const CAPABILITY_RUN: &str = "Run a capability by its name, with inputs as its schema (see capabilities_search) says.";
/// What a client may tell its model of the whole.
pub(super) const INSTRUCTIONS: &str = "These tools run behind a wall, on a private copy of the workspace that all of them share. Nothing reaches the real workspace until a person applies it with `stockade sandbox apply`. A denied call says which rule denied it and the narrowest change that would allow it: tell the person, and do not try to get around it. A call that waits for approval says so and names the request: a person answers it elsewhere; approval_wait waits for that.";

pub(super) fn shell() -> Map<String, Value> {
    object(&json!({
        "type": "object",
        "properties": {
            "script": { "type": "string", "description": "The bash script" },
            "cwd": { "type": "string", "description": "Where it starts, in the workspace; relative paths begin there" },
            "timeout_seconds": { "type": "number", "exclusiveMinimum": 0, "description": "Kill everything after so many seconds" },
            "env": { "type": "object", "additionalProperties": { "type": "string" }, "description": "Variables for the script" },
        },
        "required": ["script"],
        "additionalProperties": false,
    }))
}

pub(super) fn path() -> Map<String, Value> {
    object(&json!({
        "type": "object",
        "properties": { "path": { "type": "string", "description": "Absolute, or from the workspace on" } },
        "required": ["path"],
        "additionalProperties": false,
    }))
}

pub(super) fn write_file() -> Map<String, Value> {
    object(&json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "description": "Absolute, or from the workspace on" },
            "content": { "type": "string", "description": "The new contents, as text" },
            "content_base64": { "type": "string", "description": "The new contents, as base64" },
        },
        "required": ["path"],
        "additionalProperties": false,
    }))
}

pub(super) fn search() -> Map<String, Value> {
    object(&json!({
        "type": "object",
        "properties": { "query": { "type": "string", "description": "Words to look for" } },
        "additionalProperties": false,
    }))
}

pub(super) fn capability_run() -> Map<String, Value> {
    object(&json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "description": "The capability's name, such as git.log" },
            "input": { "type": "object", "description": "Its inputs" },
        },
        "required": ["name"],
        "additionalProperties": false,
    }))
}

pub(super) fn approval_wait() -> Map<String, Value> {
    object(&json!({
        "type": "object",
        "properties": {
            "approval_id": { "type": "string", "pattern": "^[0-9a-f]{12}$", "description": "The request, as the call that asked named it" },
            "timeout_seconds": { "type": "number", "minimum": 0, "maximum": 600, "description": "How long to wait [default: 50]" },
        },
        "required": ["approval_id"],
        "additionalProperties": false,
    }))
}

pub(super) fn nothing() -> Map<String, Value> {
    object(&json!({ "type": "object", "properties": {}, "additionalProperties": false }))
}

/// The object of `run --json`; where Stockade itself failed, that of its error.
pub(crate) fn run_result() -> Map<String, Value> {
    let or_null = |kind: &str| json!({ "type": [kind, "null"] });
    object(&json!({
        "type": "object",
        "properties": {
            "receipt_id": or_null("string"),
            "sandbox_id": { "type": "string" },
            "backend": { "type": "string" },
            "exit_code": or_null("integer"),
            "signal": or_null("integer"),
            "timed_out": { "type": "boolean" },
            "limit": or_null("string"),
            "stdout": { "type": "string" },
            "stdout_base64": { "type": "string" },
            "stderr": { "type": "string" },
            "stderr_base64": { "type": "string" },
            "truncated": { "type": "object", "properties": { "stdout": { "type": "boolean" }, "stderr": { "type": "boolean" } } },
            "duration_ms": { "type": "integer" },
            "changes": { "type": "array", "items": { "type": "object" } },
            "network": { "type": "array", "items": { "type": "object" } },
            "enforcement": { "type": "object", "additionalProperties": { "type": "string" } },
            "decision": decision(),
            "violations": { "type": "array", "items": { "type": "string" } },
            "approval": approval(),
            "error": error(),
        },
    }))
}

pub(crate) fn read_result() -> Map<String, Value> {
    about_file(&json!({
        "content": { "type": "string" }, "content_base64": { "type": "string" },
        "bytes": { "type": "integer" }, "truncated": { "type": "boolean" },
    }))
}

pub(crate) fn write_result() -> Map<String, Value> {
    about_file(&json!({ "bytes": { "type": "integer" } }))
}

pub(crate) fn list_result() -> Map<String, Value> {
    let entry = json!({
        "type": "object",
        "properties": { "name": { "type": "string" }, "kind": { "enum": ["file", "directory", "link", "other"] }, "size": { "type": "integer" } },
        "required": ["name", "kind", "size"],
    });
    about_file(&json!({ "entries": { "type": "array", "items": entry }, "truncated": { "type": "boolean" } }))
}

pub(super) fn search_result() -> Map<String, Value> {
    object(&json!({
        "type": "object",
        "properties": { "capabilities": { "type": "array", "items": { "type": "object" } }, "error": error() },
    }))
}

/// What came of the request; where the call ran, everything that it would have said itself.
pub(super) fn wait_result() -> Map<String, Value> {
    object(&json!({ "type": "object", "properties": { "approval": approval(), "decision": decision(), "error": error() } }))
}

pub(super) fn status_result() -> Map<String, Value> {
    object(&json!({
        "type": "object",
        "properties": {
            "workspace": { "type": "string" },
            "workspace_mode": { "type": "string" },
            "backend": { "type": "string" },
            "principal": { "type": "string" },
            "policy": { "enum": ["none", "in force"] },
            "sandbox_id": { "type": ["string", "null"] },
            "hosts": { "type": "array", "items": { "type": "string" } },
            "calls": { "type": "integer" },
            "error": error(),
        },
    }))
}

fn about_file(more: &Value) -> Map<String, Value> {
    let mut properties = object(&json!({
        "receipt_id": { "type": "string" }, "path": { "type": "string" }, "decision": decision(), "error": error(),
    }));
    properties.extend(object(more));
    object(&json!({ "type": "object", "properties": properties }))
}

pub(crate) fn decision() -> Value {
    let or_null = json!({ "type": ["string", "null"] });
    json!({
        "type": "object",
        "properties": {
            "verdict": { "enum": ["allow", "ask", "deny"] }, "rule": { "type": "string" },
            "reason": or_null, "source": or_null, "suggest": or_null, "approval_id": or_null,
        },
    })
}

fn approval() -> Value {
    let or_null = json!({ "type": ["string", "null"] });
    let state = json!({ "enum": ["pending", "approved", "granted", "denied", "expired", "used"] });
    json!({ "type": "object", "properties": { "id": { "type": "string" }, "state": state, "by": or_null, "method": or_null } })
}

pub(crate) fn error() -> Value {
    json!({
        "type": "object",
        "properties": { "step": { "type": "string" }, "message": { "type": "string" }, "hint": { "type": ["string", "null"] } },
    })
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}
