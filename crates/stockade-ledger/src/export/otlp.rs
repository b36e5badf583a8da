//! OpenTelemetry log records as OTLP/JSON, a request per line, with the names of the semantic conventions where there are some.

use serde_json::{Value, json};

use super::malformed;
use crate::error::LedgerError;
use crate::facts::Facts;
use crate::query::Entry;

/// One `ExportLogsServiceRequest` with one record.
pub(super) fn request(entry: &Entry, origin: &str) -> Result<Value, LedgerError> {
    let receipt: Value = serde_json::from_slice(&entry.body).map_err(|_| malformed(entry))?;
    let facts = Facts::of(&entry.body);
    let text = |path: &str| receipt.pointer(path).and_then(Value::as_str).map(|text| json!({"stringValue": text}));
    // Whole numbers of 64 bits are strings in OTLP's JSON.
    let whole = |path: &str| receipt.pointer(path).and_then(Value::as_i64).map(|number| json!({"intValue": number.to_string()}));
    let argv = receipt.get("argv").and_then(Value::as_array).map(|items| {
        let values: Vec<Value> = items.iter().filter_map(Value::as_str).map(|item| json!({"stringValue": item})).collect();
        json!({"arrayValue": {"values": values}})
    });
    let seq = Some(json!({"intValue": entry.seq.to_string()}));
    let attributes: Vec<Value> = [
        ("stockade.receipt.id", text("/receipt_id")),
        ("stockade.receipt.seq", seq),
        ("stockade.receipt.kind", text("/kind")),
        ("stockade.receipt.prev", text("/prev")),
        ("stockade.policy.verdict", text("/policy/verdict")),
        ("stockade.policy.rule", text("/policy/rule")),
        ("stockade.sandbox.id", text("/sandbox/id")),
        ("stockade.sandbox.backend", text("/sandbox/backend")),
        ("gen_ai.agent.name", text("/principal/agent")),
        ("gen_ai.conversation.id", text("/principal/session")),
        ("gen_ai.tool.name", text("/capability")),
        ("user.name", text("/principal/human")),
        ("process.executable.path", text("/program/path")),
        ("process.command_args", argv),
        ("process.working_directory", text("/cwd")),
        ("process.exit.code", whole("/result/exit_code")),
        ("stockade.duration_ms", whole("/result/duration_ms")),
    ]
    .into_iter()
    .filter_map(|(key, value)| value.map(|value| json!({"key": key, "value": value})))
    .collect();
    let is_denied = facts.verdict.as_deref() == Some("deny") || facts.kind == "denied";
    let (severity, number) = if is_denied { ("WARN", 13) } else { ("INFO", 9) };
    let nanoseconds = i128::from(facts.time) * 1000;
    let record = json!({
        "timeUnixNano": nanoseconds.to_string(),
        "observedTimeUnixNano": nanoseconds.to_string(),
        "severityNumber": number,
        "severityText": severity,
        "eventName": format!("stockade.{}", facts.kind),
        "body": {"stringValue": String::from_utf8_lossy(&entry.body)},
        "attributes": attributes,
    });
    let resource = json!({"attributes": [
        {"key": "service.name", "value": {"stringValue": "stockade"}},
        {"key": "stockade.ledger.origin", "value": {"stringValue": origin}},
    ]});
    let scope = json!({"name": "stockade-ledger", "version": env!("CARGO_PKG_VERSION")});
    Ok(json!({"resourceLogs": [{"resource": resource, "scopeLogs": [{"scope": scope, "logRecords": [record]}]}]}))
}
