//! One receipt in one line. Whatever is shown is escaped by the printer.

use serde_json::Value;

/// The most of a command that one line has.
const MOST: usize = 120;

/// The parts of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) seq: String,
    pub(super) time: String,
    pub(super) kind: String,
    pub(super) verdict: String,
    pub(super) who: String,
    pub(super) what: String,
    pub(super) result: String,
    pub(super) id: String,
}

impl Line {
    /// Of a receipt.
    pub(super) fn of(receipt: &Value) -> Self {
        let text = |path: &str| receipt.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let time = text("/time");
        // Whole seconds are enough to read; `show` has the rest.
        let time = time.split_once('.').map_or_else(|| time.clone(), |(seconds, _)| format!("{seconds}Z"));
        Self {
            seq: receipt.get("seq").map(ToString::to_string).unwrap_or_default(),
            time,
            kind: text("/kind"),
            verdict: text("/policy/verdict"),
            who: who(receipt),
            what: what(receipt),
            result: result(receipt),
            id: text("/receipt_id"),
        }
    }

    /// As one line of text.
    pub(super) fn text(&self) -> String {
        let Self { seq, time, kind, verdict, who, what, result, id } = self;
        let words = [seq, time, kind, verdict, who, what, result, id];
        words.into_iter().filter(|word| !word.is_empty()).map(String::as_str).collect::<Vec<_>>().join("  ")
    }
}

/// Who asked: the agent, else the person.
pub(super) fn who(receipt: &Value) -> String {
    let of = |name: &str| receipt.pointer(&format!("/principal/{name}")).and_then(Value::as_str);
    of("agent").or_else(|| of("human")).unwrap_or_default().to_owned()
}

/// What was asked for: the words as a person would type them.
pub(super) fn what(receipt: &Value) -> String {
    let words = receipt.get("argv").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let typed = words.map(quoted).collect::<Vec<_>>().join(" ");
    let capability = || receipt.get("capability").and_then(Value::as_str).unwrap_or_default().to_owned();
    let event = || receipt.pointer("/ledger/event").and_then(Value::as_str).map(|event| format!("ledger {event}")).unwrap_or_default();
    let all = [typed, capability(), event()].into_iter().find(|text| !text.is_empty()).unwrap_or_default();
    if all.chars().count() <= MOST { all } else { all.chars().take(MOST - 1).chain(['…']).collect() }
}

fn quoted(word: &str) -> String {
    let plain = !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_./:=+@%,~^".contains(c));
    if plain { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// How it ended, in a word or two.
pub(super) fn result(receipt: &Value) -> String {
    let Some(result) = receipt.get("result") else { return String::new() };
    let text = |name: &str| result.get(name).and_then(Value::as_str);
    let number = |name: &str| result.get(name).and_then(Value::as_i64);
    if result.get("interrupted") == Some(&Value::Bool(true)) {
        return "interrupted".to_owned();
    }
    if let Some(limit) = text("limit") {
        return format!("limit {limit}");
    }
    match (number("exit_code"), number("signal"), text("failure")) {
        (Some(code), _, _) => format!("code {code}"),
        (None, Some(signal), _) => format!("signal {signal}"),
        (None, None, Some(_)) => "failed".to_owned(),
        (None, None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_says_who_what_and_how_it_ended() {
        let receipt = json!({
            "seq": 7, "time": "2026-11-16T07:00:00.123456Z", "kind": "outcome", "receipt_id": "x", "principal": {"human": "me"},
            "policy": {"verdict": "allow"}, "argv": ["git", "commit", "-m", "it's done"], "result": {"exit_code": 1},
        });
        assert_eq!(Line::of(&receipt).text(), "7  2026-11-16T07:00:00Z  outcome  allow  me  git commit -m 'it'\\''s done'  code 1  x");
        let long = json!({"argv": ["x".repeat(500)]});
        assert_eq!(what(&long).chars().count(), MOST);
        for (value, expected) in [
            (json!({"result": {"interrupted": true}}), "interrupted"),
            (json!({"result": {"limit": "memory", "signal": 9}}), "limit memory"),
            (json!({"result": {"signal": 15}}), "signal 15"),
            (json!({"result": {"failure": "no"}}), "failed"),
            (json!({}), ""),
        ] {
            assert_eq!(result(&value), expected);
        }
        assert_eq!(what(&json!({"capability": "git.log"})), "git.log");
    }
}
