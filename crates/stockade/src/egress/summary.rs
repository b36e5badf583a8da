//! What a person is told of a sandbox's traffic: the list of `run --json`, each refused host once with the flag that would allow it, and
//! what was learnt.

use std::collections::BTreeSet;

use stockade_core::result::Reached;

use super::outlet::Closed;
use super::record::Row;
use crate::Context;

/// The most that one result lists.
const MAX_LISTED: usize = 1000;
/// The most refusals that are told, each one line.
const MAX_TOLD: usize = 20;

/// The list of `run --json`.
pub(crate) fn listed(rows: &[Row]) -> Vec<Reached> {
    rows.iter().take(MAX_LISTED).map(reached).collect()
}

fn reached(row: &Row) -> Reached {
    Reached {
        host: row.host.clone(),
        port: row.port,
        method: row.method.clone(),
        path: row.path.clone(),
        verdict: row.verdict.clone(),
        rule: row.rule.clone(),
        secret: row.secret.clone(),
    }
}

/// Tells of refusals and of what was learnt.
pub(crate) fn tell(closed: &Closed, context: &Context) {
    let refusals = refusals(&closed.rows);
    for (what, change) in refusals.iter().take(MAX_TOLD) {
        context.printer.warning(match change {
            Some(change) => format!("refused: {what}; to allow it: {change}"),
            None => format!("refused: {what}"),
        });
    }
    if refusals.len() > MAX_TOLD {
        context.printer.warning(format!("{} more were refused", refusals.len() - MAX_TOLD));
    }
    if closed.rows.len() > MAX_LISTED && context.printer.is_json() {
        context.printer.note(format!("of {} requests the first {MAX_LISTED} are listed", closed.rows.len()));
    }
    if !closed.missing.is_empty() {
        let flags: Vec<String> = closed.missing.iter().map(|pattern| format!("--allow-host {pattern}")).collect();
        context.printer.note(format!("without --learn this needs: {}", flags.join(" ")));
    }
}

/// Each refusal once: what was refused, and the flag that would allow it.
fn refusals(rows: &[Row]) -> Vec<(String, Option<String>)> {
    let mut known = BTreeSet::new();
    let denied = rows.iter().filter(|row| row.verdict == "deny");
    let told = denied.map(|row| {
        let what = row.reason.clone().unwrap_or_else(|| format!("{}:{}", row.host, row.port));
        (what, row.change.clone())
    });
    // A name that was looked up and then connected to is one refusal; so are many requests to one host.
    told.filter(|(what, change)| known.insert(change.clone().unwrap_or_else(|| what.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(verdict: &str, reason: Option<&str>, change: Option<&str>) -> Row {
        Row {
            time: String::new(),
            subject: "request".into(),
            host: "a.example".into(),
            port: 443,
            method: None,
            path: None,
            verdict: verdict.into(),
            rule: "allow-host".into(),
            secret: None,
            status: None,
            sent: 0,
            received: 0,
            duration_ms: 0,
            reason: reason.map(str::to_owned),
            change: change.map(str::to_owned),
            usage: None,
        }
    }

    #[test]
    fn each_refusal_is_told_once() {
        let rows = [
            row("deny", Some("`a.example:443` is not an allowed host"), Some("--allow-host a.example")),
            row("deny", Some("`a.example:80` is not an allowed host"), Some("--allow-host a.example")),
            row("allow", None, None),
            row("deny", Some("the request is malformed"), None),
            row("deny", Some("the request is malformed"), None),
        ];
        assert_eq!(
            refusals(&rows),
            [
                ("`a.example:443` is not an allowed host".to_owned(), Some("--allow-host a.example".to_owned())),
                ("the request is malformed".to_owned(), None),
            ]
        );
    }
}
