//! The timeline as Markdown.

use std::fmt::Write as _;

use stockade_core::escape::escape;

use super::{Call, Report, Sums};

/// Characters that mean something in a table cell.
const SPECIAL: &str = "\\`*_{}[]<>#|~&";

pub(super) fn render(report: &Report) -> String {
    let Sums { calls, denied, failed, interrupted, changes, hosts, violations } = report.sums();
    let mut text = format!("# Receipts\n\nLedger {}\n\n", cell(&report.origin));
    let sums = format!(
        "{calls} calls: {denied} denied, {failed} failed, {interrupted} interrupted. {changes} changed files, {} places reached or tried, {violations} violations.\n\n",
        hosts.len()
    );
    text.push_str(&sums);
    if report.cut {
        text.push_str("Older records match too and are left out.\n\n");
    }
    text.push_str("| time | who | what | verdict | result | receipt |\n|---|---|---|---|---|---|\n");
    for call in &report.calls {
        let Call { id, time, who, what, verdict, result, .. } = call;
        let cells = [time, who, what, verdict, result, id].map(|part| cell(part));
        // Writing to a string does not fail.
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    for call in report
        .calls
        .iter()
        .filter(|call| !call.changes.is_empty() || !call.network.is_empty() || !call.violations.is_empty() || !call.reason.is_empty())
    {
        let _ = writeln!(text, "\n## {}\n\n{}\n", cell(&call.id), cell(&call.what));
        if !call.reason.is_empty() {
            let _ = writeln!(text, "- policy: {}", cell(&call.reason));
        }
        for (what, rows) in [("changed", &call.changes), ("network", &call.network), ("violation", &call.violations)] {
            for row in rows {
                let _ = writeln!(text, "- {what}: {}", cell(row));
            }
        }
    }
    text
}

/// Text that formats nothing.
fn cell(text: &str) -> String {
    let mut out = String::new();
    for c in escape(text).chars() {
        if SPECIAL.contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
