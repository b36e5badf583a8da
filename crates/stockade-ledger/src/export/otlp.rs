//! OpenTelemetry log records as OTLP/JSON, a request per line, with the names of the semantic conventions where there are some.
//!
//! A call is one span: of the trace that its caller named, else of one of its own. The record that ends a call brings its span along, beside
//! the log record: who reads logs leaves out what it does not know, as OTLP wants it, and so does who reads traces.

use serde_json::{Value, json};

use super::malformed;
use crate::error::LedgerError;
use crate::facts::Facts;
use crate::query::Entry;
use crate::receipt::{ReceiptId, span_of, trace_of};

/// A span that somebody else's led to.
const SERVER: u32 = 2;
/// What a span came to: nothing is said of it, or that it failed.
const UNSET: u32 = 0;
const FAILED: u32 = 2;

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
        ("stockade.trace.parent_id", text("/trace/parent_id")),
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
    let id: Option<ReceiptId> = receipt.get("receipt_id").and_then(Value::as_str).and_then(|text| text.parse().ok());
    let named = receipt.pointer("/trace/trace_id").and_then(Value::as_str).map(str::to_owned);
    let trace = named.or_else(|| id.as_ref().map(trace_of));
    let is_denied = facts.verdict.as_deref() == Some("deny") || facts.kind == "denied";
    let (severity, number) = if is_denied { ("WARN", 13) } else { ("INFO", 9) };
    let nanoseconds = i128::from(facts.time) * 1000;
    let trace = trace.unwrap_or_default();
    let span = id.as_ref().map(span_of).unwrap_or_default();
    let record = json!({
        "timeUnixNano": nanoseconds.to_string(),
        "observedTimeUnixNano": nanoseconds.to_string(),
        "severityNumber": number,
        "severityText": severity,
        "eventName": format!("stockade.{}", facts.kind),
        "body": {"stringValue": String::from_utf8_lossy(&entry.body)},
        "attributes": attributes,
        "traceId": trace,
        "spanId": span,
    });
    let resource = json!({"attributes": [
        {"key": "service.name", "value": {"stringValue": "stockade"}},
        {"key": "stockade.ledger.origin", "value": {"stringValue": origin}},
    ]});
    let scope = json!({"name": "stockade-ledger", "version": env!("CARGO_PKG_VERSION")});
    let mut request = json!({"resourceLogs": [{"resource": resource, "scopeLogs": [{"scope": scope, "logRecords": [record]}]}]});
    let is_end = matches!(facts.kind.as_str(), "outcome" | "denied");
    if let Some(fields) = request.as_object_mut().filter(|_| is_end) {
        let milliseconds = receipt.pointer("/result/duration_ms").and_then(Value::as_i64).unwrap_or_default();
        let is_bad = is_denied || receipt.pointer("/result/failure").is_some() || receipt.pointer("/result/interrupted").is_some();
        let span = json!({
            "traceId": trace,
            "spanId": span,
            "parentSpanId": receipt.pointer("/trace/parent_id").and_then(Value::as_str).unwrap_or_default(),
            "name": name(&receipt),
            "kind": SERVER,
            "startTimeUnixNano": (nanoseconds - i128::from(milliseconds) * 1_000_000).to_string(),
            "endTimeUnixNano": nanoseconds.to_string(),
            "attributes": attributes,
            "status": {"code": if is_bad { FAILED } else { UNSET }},
        });
        let spans = json!([{"resource": resource, "scopeSpans": [{"scope": scope, "spans": [span]}]}]);
        fields.insert("resourceSpans".to_owned(), spans);
    }
    Ok(request)
}

/// What a call is called: its capability, or its program without arguments.
fn name(receipt: &Value) -> &str {
    let text = |path: &str| receipt.pointer(path).and_then(Value::as_str);
    text("/capability").or_else(|| text("/argv/0")).unwrap_or("call")
}
