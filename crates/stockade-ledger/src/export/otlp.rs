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

/// Bytes of arguments, as JSON, that a span which is sent at once takes along.
const MOST_ARGUMENTS: usize = 8 << 10;
/// The attribute that holds them.
const ARGUMENTS: &str = "process.command_args";

/// One `ExportLogsServiceRequest` with one record.
pub(super) fn request(entry: &Entry, origin: &str) -> Result<Value, LedgerError> {
    let read = Read::of(entry)?;
    let (severity, number) = if read.is_denied() { ("WARN", 13) } else { ("INFO", 9) };
    let record = json!({
        "timeUnixNano": read.nanoseconds().to_string(),
        "observedTimeUnixNano": read.nanoseconds().to_string(),
        "severityNumber": number,
        "severityText": severity,
        "eventName": format!("stockade.{}", read.facts.kind),
        "body": {"stringValue": String::from_utf8_lossy(&entry.body)},
        "attributes": read.attributes,
        "traceId": read.trace,
        "spanId": read.span,
    });
    let (resource, scope) = (resource(origin), scope());
    let mut request = json!({"resourceLogs": [{"resource": resource, "scopeLogs": [{"scope": scope, "logRecords": [record]}]}]});
    if let Some(fields) = request.as_object_mut().filter(|_| read.is_end()) {
        fields.insert("resourceSpans".to_owned(), resource_spans(origin, &[read.to_span()]));
    }
    Ok(request)
}

/// One `ExportTraceServiceRequest` with the spans of the calls that these receipts end; others are left out. Long arguments are, too: they are in the
/// receipt.
pub fn spans(entries: &[Entry], origin: &str) -> Result<Value, LedgerError> {
    let mut spans = Vec::new();
    for entry in entries {
        let mut read = Read::of(entry)?;
        if read.is_end() {
            read.attributes.retain(|attribute| {
                attribute.get("key").and_then(Value::as_str) != Some(ARGUMENTS) || attribute.to_string().len() <= MOST_ARGUMENTS
            });
            spans.push(read.to_span());
        }
    }
    Ok(json!({"resourceSpans": resource_spans(origin, &spans)}))
}

/// A receipt as both forms need it.
struct Read {
    receipt: Value,
    facts: Facts,
    attributes: Vec<Value>,
    trace: String,
    span: String,
}

impl Read {
    fn of(entry: &Entry) -> Result<Self, LedgerError> {
        let receipt: Value = serde_json::from_slice(&entry.body).map_err(|_| malformed(entry))?;
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
            (ARGUMENTS, argv),
            ("process.working_directory", text("/cwd")),
            ("process.exit.code", whole("/result/exit_code")),
            ("stockade.duration_ms", whole("/result/duration_ms")),
        ]
        .into_iter()
        .filter_map(|(key, value)| value.map(|value| json!({"key": key, "value": value})))
        .collect();
        let id: Option<ReceiptId> = receipt.get("receipt_id").and_then(Value::as_str).and_then(|text| text.parse().ok());
        let named = receipt.pointer("/trace/trace_id").and_then(Value::as_str).map(str::to_owned);
        let trace = named.or_else(|| id.as_ref().map(trace_of)).unwrap_or_default();
        let span = id.as_ref().map(span_of).unwrap_or_default();
        Ok(Self { facts: Facts::of(&entry.body), receipt, attributes, trace, span })
    }

    fn is_denied(&self) -> bool {
        self.facts.verdict.as_deref() == Some("deny") || self.facts.kind == "denied"
    }

    fn is_end(&self) -> bool {
        matches!(self.facts.kind.as_str(), "outcome" | "denied")
    }

    fn nanoseconds(&self) -> i128 {
        i128::from(self.facts.time) * 1000
    }

    fn to_span(&self) -> Value {
        let at = |path: &str| self.receipt.pointer(path);
        let milliseconds = at("/result/duration_ms").and_then(Value::as_i64).unwrap_or_default();
        let is_bad = self.is_denied() || at("/result/failure").is_some() || at("/result/interrupted").is_some();
        json!({
            "traceId": self.trace,
            "spanId": self.span,
            "parentSpanId": at("/trace/parent_id").and_then(Value::as_str).unwrap_or_default(),
            "name": name(&self.receipt),
            "kind": SERVER,
            "startTimeUnixNano": (self.nanoseconds() - i128::from(milliseconds) * 1_000_000).to_string(),
            "endTimeUnixNano": self.nanoseconds().to_string(),
            "attributes": self.attributes,
            "status": {"code": if is_bad { FAILED } else { UNSET }},
        })
    }
}

fn resource(origin: &str) -> Value {
    json!({"attributes": [
        {"key": "service.name", "value": {"stringValue": "stockade"}},
        {"key": "stockade.ledger.origin", "value": {"stringValue": origin}},
    ]})
}

fn scope() -> Value {
    json!({"name": "stockade-ledger", "version": env!("CARGO_PKG_VERSION")})
}

fn resource_spans(origin: &str, spans: &[Value]) -> Value {
    json!([{"resource": resource(origin), "scopeSpans": [{"scope": scope(), "spans": spans}]}])
}

/// What a call is called: its capability, or its program without arguments.
fn name(receipt: &Value) -> &str {
    let text = |path: &str| receipt.pointer(path).and_then(Value::as_str);
    text("/capability").or_else(|| text("/argv/0")).unwrap_or("call")
}
