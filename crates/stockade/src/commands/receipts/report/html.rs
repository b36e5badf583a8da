//! The timeline as one page: no script, nothing fetched.

use std::fmt::Write as _;

use stockade_core::escape::escape;

use super::{Call, Report, Sums};

const HEAD: &str = "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<title>Receipts</title>\n<style>\
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#222;background:#fff}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.3rem .6rem;border-bottom:1px solid #ddd}\
code{font-family:ui-monospace,monospace;word-break:break-word}ul{margin:.2rem 0;padding-left:1.2rem}\
.deny{color:#a00;font-weight:600}@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}td,th{border-color:#444}.deny{color:#f77}}\
</style>\n";

pub(super) fn render(report: &Report) -> String {
    let Sums { calls, denied, failed, interrupted, changes, hosts, violations } = report.sums();
    let mut page = HEAD.to_owned();
    // Writing to a string does not fail.
    let _ = write!(page, "<h1>Receipts</h1>\n<p>Ledger <code>{}</code></p>\n", safe(&report.origin));
    let _ = writeln!(
        page,
        "<p>{calls} calls: {denied} denied, {failed} failed, {interrupted} interrupted. {changes} changed files, {} places reached or tried, {violations} violations.</p>",
        hosts.len()
    );
    if report.cut {
        page.push_str("<p>Older records match too and are left out.</p>\n");
    }
    page.push_str("<table>\n<tr><th>time<th>who<th>what<th>verdict<th>result\n");
    for call in &report.calls {
        let Call { id, time, who, what, verdict, reason, result, .. } = call;
        let class = if verdict == "deny" { " class=\"deny\"" } else { "" };
        let (time, who, what, verdict) = (safe(time), safe(who), safe(what), safe(verdict));
        let _ = write!(page, "<tr title=\"{}\"><td>{time}<td>{who}<td><code>{what}</code>{}", safe(id), details(call));
        let reason = if reason.is_empty() { String::new() } else { format!("<br>{}", safe(reason)) };
        let _ = writeln!(page, "<td{class}>{verdict}{reason}<td>{}", safe(result));
    }
    page.push_str("</table>\n</html>\n");
    page
}

fn details(call: &Call) -> String {
    let rows = [("changed", &call.changes), ("network", &call.network), ("violation", &call.violations)];
    let items: String =
        rows.into_iter().flat_map(|(what, rows)| rows.iter().map(move |row| format!("<li>{what}: <code>{}</code>", safe(row)))).collect();
    if items.is_empty() { items } else { format!("<ul>{items}</ul>") }
}

/// Text that is nothing but text.
fn safe(text: &str) -> String {
    let mut out = String::new();
    for c in escape(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
