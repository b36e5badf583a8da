//! What a server writes down on stderr, a line for each request and for each call: a JSON object, or words.
//!
//! No bodies, no arguments, no token: what was done is in the receipt that a line names. What a client says of itself is escaped.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use stockade_http::{Answered, Verdict};
use stockade_ledger::receipt::{ReceiptId, Trace, span_of, trace_of};

use crate::cli::LogForm;
use crate::printer::Printer;

/// Writes lines.
#[derive(Debug)]
pub(crate) struct Journal {
    form: LogForm,
    printer: Printer,
}

/// A call that ended.
pub(crate) struct Called<'a> {
    /// How it came.
    pub(crate) surface: &'static str,
    /// Who asked.
    pub(crate) agent: String,
    /// What came of it.
    pub(crate) verdict: Verdict,
    /// Its receipt, where it has one.
    pub(crate) receipt_id: Option<&'a str>,
    /// What the caller was doing.
    pub(crate) trace: Option<&'a Trace>,
    /// From its arrival to its end.
    pub(crate) time: Duration,
}

impl Journal {
    /// One that writes so.
    pub(crate) fn new(form: LogForm, printer: Printer) -> Self {
        Self { form, printer }
    }

    /// A call ended.
    pub(crate) fn called(&self, called: &Called<'_>) {
        let id: Option<ReceiptId> = called.receipt_id.and_then(|id| id.parse().ok());
        let trace_id = called.trace.map(|trace| trace.trace_id.clone()).or_else(|| id.as_ref().map(trace_of));
        self.write(
            "call",
            &json!({
                "surface": called.surface,
                "agent": called.agent,
                "verdict": called.verdict.name(),
                "receipt_id": called.receipt_id,
                "trace_id": trace_id,
                "span_id": id.as_ref().map(span_of),
                "duration_ms": millis(called.time),
            }),
        );
    }

    fn write(&self, event: &str, fields: &Value) {
        let time = format!("{:.3}", Timestamp::now());
        let fields = fields.as_object().cloned().unwrap_or_default();
        self.printer.record(&line(self.form, &time, event, fields));
    }
}

impl stockade_http::Journal for Journal {
    fn answered(&self, answered: &Answered) {
        let Answered { method, route, status, time } = *answered;
        self.write("request", &json!({ "method": method, "route": route, "status": status.as_u16(), "duration_ms": millis(time) }));
    }
}

fn line(form: LogForm, time: &str, event: &str, fields: Map<String, Value>) -> String {
    match form {
        LogForm::Json => {
            let head = [("time".to_owned(), Value::from(time)), ("event".to_owned(), Value::from(event))];
            Value::Object(head.into_iter().chain(fields).collect()).to_string()
        }
        LogForm::Text => {
            let said = fields.into_iter().filter(|(_, value)| !value.is_null());
            let words = said.map(|(name, value)| format!("{name}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
            format!("{time} {event} {}", words.collect::<Vec<_>>().join(" "))
        }
    }
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_object_or_one_line_of_words() {
        let fields = || json!({"route": "/v1/run", "status": 200, "receipt_id": null}).as_object().cloned().unwrap();
        let json = line(LogForm::Json, "T", "request", fields());
        assert_eq!(json, "{\"time\":\"T\",\"event\":\"request\",\"route\":\"/v1/run\",\"status\":200,\"receipt_id\":null}");
        assert_eq!(line(LogForm::Text, "T", "request", fields()), "T request route=/v1/run status=200");
    }
}
