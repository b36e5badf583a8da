//! `receipts report`: a stretch of the ledger as a timeline for people, in Markdown or as a page.
//!
//! One row per call: its records are put together. What receipts say came from agents, so every character that means something to a
//! renderer is escaped.

mod html;
mod markdown;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;
use stockade_ledger::query::{MOST_ON_A_PAGE, Page};

use super::{existing, filter, line, out, value};
use crate::Context;
use crate::cli::{ReportArgs, ReportForm};
use crate::failure::Failure;
use crate::receipts::book;

/// Changed files and hosts that a row lists.
const MOST_LISTED: usize = 20;

/// What is told.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Report {
    origin: String,
    calls: Vec<Call>,
    /// More records match than one report takes; these are the newest.
    cut: bool,
}

/// One call, its records put together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct Call {
    id: String,
    time: String,
    who: String,
    what: String,
    verdict: String,
    reason: String,
    result: String,
    changes: Vec<String>,
    network: Vec<String>,
    violations: Vec<String>,
}

/// Sums over all calls.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    calls: usize,
    denied: usize,
    failed: usize,
    interrupted: usize,
    changes: usize,
    hosts: BTreeSet<String>,
    violations: usize,
}

pub(super) fn report(args: &ReportArgs, context: &Context) -> Result<(), Failure> {
    let filter = filter::of(&args.filter)?;
    let reader = existing(context)?;
    let entries = reader.list(&filter, Page { before: None, most: MOST_ON_A_PAGE }).map_err(|error| book::failure(&error))?;
    let receipts: Vec<Value> = entries.iter().rev().map(value).collect();
    let report = Report { origin: reader.origin().to_owned(), calls: calls(&receipts), cut: entries.len() == MOST_ON_A_PAGE };
    let text = match args.format {
        // For programs, whatever form is for people.
        _ if context.printer.is_json() => {
            let mut text = serde_json::to_string_pretty(&report).map_err(|error| Failure::new("output", error.to_string()))?;
            text.push('\n');
            text
        }
        ReportForm::Markdown => markdown::render(&report),
        ReportForm::Html => html::render(&report),
    };
    out::to(args.output.as_deref(), context, |to| {
        to.write_all(text.as_bytes()).map_err(|error| Failure::new("output", error.to_string()))
    })?;
    if report.cut {
        context
            .printer
            .warning(format!("only the newest {MOST_ON_A_PAGE} records are told; choose a shorter stretch with --since and --until"));
    }
    Ok(())
}

impl Report {
    fn sums(&self) -> Sums {
        let mut sums = Sums { calls: self.calls.len(), ..Sums::default() };
        for call in &self.calls {
            sums.denied += usize::from(call.verdict == "deny" || call.result == "denied");
            sums.interrupted += usize::from(call.result == "interrupted");
            sums.failed += usize::from(!matches!(call.result.as_str(), "" | "code 0" | "denied" | "interrupted"));
            sums.changes += call.changes.len();
            sums.hosts.extend(call.network.iter().filter_map(|row| row.split(' ').nth(1)).map(str::to_owned));
            sums.violations += call.violations.len();
        }
        sums
    }
}

/// Puts records of one call together, in the order in which calls began.
fn calls(receipts: &[Value]) -> Vec<Call> {
    let mut order: Vec<String> = Vec::new();
    let mut known: BTreeMap<String, Call> = BTreeMap::new();
    for receipt in receipts {
        let text = |path: &str| receipt.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let id = text("/receipt_id");
        let call = known.entry(id.clone()).or_insert_with(|| {
            order.push(id.clone());
            Call { id, time: text("/time"), ..Call::default() }
        });
        let take = |place: &mut String, found: String| {
            if !found.is_empty() {
                *place = found;
            }
        };
        take(&mut call.who, line::who(receipt));
        take(&mut call.what, line::what(receipt));
        take(&mut call.verdict, text("/policy/verdict"));
        take(&mut call.reason, text("/policy/reasons/0"));
        let is_denied = text("/kind") == "denied";
        take(&mut call.result, if is_denied { "denied".to_owned() } else { line::result(receipt) });
        call.changes.extend(rows(receipt, "changes", |row| Some(format!("{} {}", word(row, "kind")?, word(row, "path")?))));
        let place = |row: &Value| Some(format!("{} {}:{}", word(row, "verdict")?, word(row, "host")?, row.get("port")?));
        call.network.extend(rows(receipt, "network", |row| {
            let more: Vec<&str> = ["method", "path", "secret"].into_iter().filter_map(|name| word(row, name)).collect();
            Some([place(row)?, more.join(" ")].join(" ").trim_end().to_owned())
        }));
        let violations = receipt.get("violations").and_then(Value::as_array).into_iter().flatten();
        call.violations.extend(violations.filter_map(Value::as_str).take(MOST_LISTED).map(str::to_owned));
    }
    order.into_iter().filter_map(|id| known.remove(&id)).collect()
}

fn rows(receipt: &Value, name: &str, shown: impl Fn(&Value) -> Option<String>) -> Vec<String> {
    let all: Vec<&Value> = receipt.get(name).and_then(Value::as_array).into_iter().flatten().collect();
    let mut listed: Vec<String> = all.iter().take(MOST_LISTED).filter_map(|row| shown(row)).collect();
    if all.len() > MOST_LISTED {
        listed.push(format!("and {} more", all.len() - MOST_LISTED));
    }
    listed
}

fn word<'a>(row: &'a Value, name: &str) -> Option<&'a str> {
    row.get(name).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample() -> Report {
        let hostile = "<b>|`x`\u{1b}[2J\n# no";
        let receipts = [
            json!({"receipt_id": "1", "kind": "intent", "time": "2026-11-16T07:00:00.000001Z", "argv": ["echo", hostile],
                   "principal": {"agent": "claude/main"}, "policy": {"verdict": "allow", "rule": "r"}}),
            json!({"receipt_id": "2", "kind": "denied", "time": "2026-11-16T07:00:01.000000Z", "argv": ["rm"],
                   "policy": {"verdict": "deny", "rule": "r", "reasons": ["no"]}}),
            json!({"receipt_id": "1", "kind": "outcome", "time": "2026-11-16T07:00:02.000000Z", "argv": ["echo", hostile],
                   "result": {"exit_code": 0}, "changes": [{"path": "a|b", "kind": "added"}],
                   "network": [{"host": "a.example", "port": 443, "verdict": "allow", "rule": "x", "method": "GET", "path": "/"}]}),
        ];
        Report { origin: "o".into(), calls: calls(&receipts), cut: false }
    }

    #[test]
    fn records_of_a_call_are_put_together() {
        let report = sample();
        assert_eq!(report.calls.iter().map(|call| call.result.as_str()).collect::<Vec<_>>(), ["code 0", "denied"]);
        assert_eq!(report.calls.first().map(|call| call.network.clone()), Some(vec!["allow a.example:443 GET /".to_owned()]));
        let sums = report.sums();
        assert_eq!((sums.calls, sums.denied, sums.changes, sums.failed), (2, 1, 1, 0));
        assert_eq!(sums.hosts.into_iter().collect::<Vec<_>>(), ["a.example:443"]);
    }

    #[test]
    fn what_came_from_an_agent_formats_nothing() {
        let page = html::render(&sample());
        assert!(!page.contains("<b>") && page.contains("&lt;b&gt;") && !page.contains('\u{1b}'), "{page}");
        let text = markdown::render(&sample());
        assert!(!text.contains('\u{1b}') && !text.contains("\n# no") && text.contains("a\\|b"), "{text}");
        assert!(text.lines().filter(|line| line.starts_with('|')).all(|line| line.replace("\\|", "").matches('|').count() == 7), "{text}");
    }
}
