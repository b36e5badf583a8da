//! RESULTS.md: machine, promises, chart, tables, who took part, how to repeat it.

use std::fmt::Write;

use crate::results::{Extent, Results, Row, Section, Table, Unit};
use crate::statistics::Summary;

/// Whether there is a chart to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chart {
    /// `field.svg` lies beside the page.
    Drawn,
    /// The field was not measured.
    Absent,
}

/// The page.
pub(crate) fn render(results: &Results, chart: Chart) -> String {
    let mut page = String::from("# What it costs\n\nWritten by `cargo xtask bench`; do not edit. ");
    page.push_str(
        "All figures are of one run on one machine; ratios within it are what counts. [README.md](README.md) says how they are taken.\n",
    );
    if results.extent == Extent::Quick {
        page.push_str("\n**A quick run: few samples, good for nothing but to see that the harness works.**\n");
    }
    if !results.machine.is_quiet {
        page.push_str("\n**The machine was not quiet when this began (see the load average below): the figures are worth little.**\n");
    }
    let _ = write!(page, "\n{}\n## Promises\n\n{}", machine(results), verdicts(results));
    if chart == Chart::Drawn {
        page.push_str("\n![Median time of each contestant on a logarithmic scale; the figures are in the first table below](field.svg)\n");
    }
    for section in &results.sections {
        page.push_str(&render_section(section));
    }
    page.push_str(&field(results));
    page.push_str("\n## How to repeat it\n\n```sh\ncargo xtask bench            # everything, on a quiet machine, as root\n");
    page.push_str(
        "cargo xtask bench --quick    # under a minute; writes to target/bench\ncargo xtask bench cold exec  # some of it\n```\n",
    );
    page
}

/// The promises and whether they hold.
pub(crate) fn verdicts(results: &Results) -> String {
    let rows = results.verdicts.iter().map(|v| vec![v.measure.clone(), v.target.clone(), v.measured.clone(), v.met.to_string()]);
    grid(&["promise", "target", "measured", ""], rows)
}

fn machine(results: &Results) -> String {
    let m = &results.machine;
    let rows = [
        ("processor", &m.processor),
        ("memory", &m.memory),
        ("kernel", &m.kernel),
        ("system", &m.system),
        ("file system", &m.filesystem),
        ("commit", &m.commit),
        ("date", &m.date),
        ("load before", &m.load),
    ];
    let rows = rows.iter().map(|(name, value)| vec![(*name).to_owned(), (*value).clone()]);
    let took = vec!["the run took".to_owned(), format!("{} s", results.seconds)];
    grid(&["", ""], rows.chain([took]))
}

fn render_section(section: &Section) -> String {
    let mut text = format!("\n## {}\n\n{}\n", section.title, section.about);
    for table in &section.tables {
        let _ = write!(text, "\n### {}\n\n{}", capitalised(&table.title), render_table(table));
    }
    for note in &section.notes {
        let _ = write!(text, "\n{note}\n");
    }
    text
}

fn render_table(table: &Table) -> String {
    let unit = table.unit.short();
    let mut head = vec![format!("in {unit}"), "runs".into(), "min".into(), "p50".into(), "p95".into(), "p99".into()];
    if let Some(reference) = &table.reference {
        head.extend([format!("p50 × {reference}"), format!("p95 × {reference}")]);
    }
    if table.unit == Unit::MillisecondsPerGibibyte {
        head.push("GiB/s at p50".into());
    }
    let width = head.len();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    grid(&head, table.rows.iter().map(|row| render_row(table, row, width)))
}

fn render_row(table: &Table, row: &Row, width: usize) -> Vec<String> {
    let name = if row.name.starts_with("stockade") { format!("**{}**", row.name) } else { row.name.clone() };
    let Some(s) = &row.summary else {
        let message = row.refused.as_deref().unwrap_or("nothing");
        let mut cells = vec![name, format!("no figure: {}", cell(message))];
        cells.resize(width, String::new());
        return cells;
    };
    let mut cells = vec![name, s.runs.to_string(), figure(s.min), figure(s.p50), figure(s.p95), figure(s.p99)];
    if table.reference.is_some() {
        let ratio = |rank: fn(&Summary) -> f64| table.ratio(&row.name, rank).map_or_else(String::new, |r| format!("{r:.2}"));
        cells.extend([ratio(|s| s.p50), ratio(|s| s.p95)]);
    }
    if table.unit == Unit::MillisecondsPerGibibyte {
        cells.push(format!("{:.2}", 1000.0 / s.p50));
    }
    cells
}

/// Who took part, with which command, and what each leaves out.
fn field(results: &Results) -> String {
    if results.peers.is_empty() {
        return String::new();
    }
    let rows = results.peers.iter().map(|p| vec![p.name.clone(), p.version.clone(), format!("`{}`", cell(&p.command)), p.lacks.clone()]);
    let about = "What each does not do is next to `stockade run`, which has namespaces, a root of declared paths only, Landlock, a system \
                 call filter, limits, a clean environment, and keeps writes apart, all on.";
    format!("\n## The field\n\n{about}\n\n{}", grid(&["peer", "version", "started as", "does not do here"], rows))
}

fn figure(value: f64) -> String {
    match value {
        v if v >= 1000.0 => format!("{v:.0}"),
        v if v >= 100.0 => format!("{v:.1}"),
        v if v >= 10.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

fn grid(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// Text that cannot break out of its cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
