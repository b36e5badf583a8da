//! A table for people with spreadsheets: one row per receipt, the same columns always.

use serde_json::Value;

use crate::query::Entry;

/// The first row.
pub(super) const HEADER: &str = "seq,time,kind,receipt_id,agent,human,session,verdict,rule,capability,argv,program,sandbox,backend,exit_code,signal,duration_ms,hosts,secrets,violations\r\n";

/// One row, as RFC 4180 has it.
pub(super) fn row(entry: &Entry) -> String {
    let value: Value = serde_json::from_slice(&entry.body).unwrap_or(Value::Null);
    let at = |path: &str| value.pointer(path).map(shown).unwrap_or_default();
    let facts = crate::facts::Facts::of(&entry.body);
    let cells = [
        entry.seq.to_string(),
        at("/time"),
        at("/kind"),
        at("/receipt_id"),
        at("/principal/agent"),
        at("/principal/human"),
        at("/principal/session"),
        at("/policy/verdict"),
        at("/policy/rule"),
        at("/capability"),
        at("/argv"),
        at("/program/path"),
        at("/sandbox/id"),
        at("/sandbox/backend"),
        at("/result/exit_code"),
        at("/result/signal"),
        at("/result/duration_ms"),
        facts.hosts.join(" "),
        facts.secrets.join(" "),
        at("/violations"),
    ];
    let mut row = cells.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(",");
    row.push_str("\r\n");
    row
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A cell. What a spreadsheet would take for a formula is made text: arguments come from agents.
fn quoted(cell: &str) -> String {
    let is_formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let cell = if is_formula { format!("'{cell}") } else { cell.to_owned() };
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_are_no_formulas() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
        assert_eq!(quoted("=cmd|' /C calc'!A0"), "'=cmd|' /C calc'!A0");
        let body = br#"{"argv":["sh","-c","x, y"],"kind":"intent","policy":{"verdict":"allow"}}"#.to_vec();
        let row = row(&Entry { seq: 3, body });
        assert_eq!(row, "3,,intent,,,,,allow,,,\"[\"\"sh\"\",\"\"-c\"\",\"\"x, y\"\"]\",,,,,,,,,\r\n");
        assert_eq!(HEADER.split(',').count(), 20);
    }
}
