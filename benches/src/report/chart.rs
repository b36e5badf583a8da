//! field.svg: the field as bars on a logarithmic scale. The figures stand in the page's first table, which is the chart's text alternative.

use std::fmt::Write;

use crate::measures::FIELD;
use crate::results::{Results, Table};
use crate::statistics::Summary;

const WIDTH: f64 = 860.0;
/// Where the bars begin: right of the names.
const LEFT: f64 = 220.0;
/// Room for the figures right of the longest bar.
const RIGHT: f64 = 150.0;
const ROW: f64 = 26.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 34.0;

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#1f2328}.small{font-size:11px;fill:#59636e}.grid{stroke:#d1d9e0}\
.bar{fill:#8c959f}.ours{fill:#1a7f64}.plain{fill:#bf8700}.tail{stroke:#59636e;stroke-width:2}\
@media (prefers-color-scheme:dark){text{fill:#f0f6fc}.small{fill:#9198a1}.grid{stroke:#3d444d}.bar{fill:#656c76}.ours{fill:#3fb68b}\
.plain{fill:#d29922}.tail{stroke:#9198a1}}";

/// Draws the first table of the field; nothing where it was not measured.
pub(crate) fn draw(results: &Results) -> Option<String> {
    let table = results.sections.iter().find(|s| s.name == FIELD)?.tables.first()?;
    let bars: Vec<(&str, &Summary)> = table.rows.iter().filter_map(|r| Some((r.name.as_str(), r.summary.as_ref()?))).collect();
    let scale = Scale::of(&bars)?;
    let height = TOP + ROW * bars.len() as f64 + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"title desc\">\n\
         <title id=\"title\">Time to run /bin/true, {}</title>\n<desc id=\"desc\">{}</desc>\n<style>{STYLE}</style>\n",
        escaped(&table.title),
        escaped(&described(table))
    );
    let _ = writeln!(svg, "<text x=\"16\" y=\"24\">Time to run /bin/true, whole process, {}</text>", escaped(&table.title));
    let _ = writeln!(
        svg,
        "<text class=\"small\" x=\"16\" y=\"42\">bar: median, line: to the 95th percentile; milliseconds, logarithmic</text>"
    );
    for tick in scale.ticks() {
        let (x, end) = (scale.place(tick), height - BOTTOM + 4.0);
        let _ = writeln!(svg, "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{end:.1}\"/>");
        let _ = writeln!(svg, "<text class=\"small\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>", end + 14.0);
    }
    for (index, (name, summary)) in bars.iter().enumerate() {
        svg.push_str(&bar(name, summary, &scale, TOP + ROW * index as f64));
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

fn bar(name: &str, summary: &Summary, scale: &Scale, top: f64) -> String {
    let class = match name {
        name if name.starts_with("stockade") => "ours",
        name if name.starts_with("/bin/true") => "plain",
        _ => "bar",
    };
    let (end, tail) = (scale.place(summary.p50), scale.place(summary.p95));
    let (middle, text) = (top + ROW / 2.0, top + ROW / 2.0 + 4.0);
    format!(
        "<text x=\"{:.1}\" y=\"{text:.1}\" text-anchor=\"end\">{}</text>\
         <rect class=\"{class}\" x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\"/>\
         <line class=\"tail\" x1=\"{end:.1}\" y1=\"{middle:.1}\" x2=\"{tail:.1}\" y2=\"{middle:.1}\"/>\
         <text class=\"small\" x=\"{:.1}\" y=\"{text:.1}\">{:.2} ms</text>\n",
        LEFT - 10.0,
        escaped(name),
        top + 4.0,
        (end - LEFT).max(1.0),
        ROW - 8.0,
        tail.max(end) + 8.0,
        summary.p50
    )
}

/// Milliseconds to places.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// From the power of ten below the fastest to the slowest.
    fn of(bars: &[(&str, &Summary)]) -> Option<Self> {
        let least = bars.iter().map(|(_, s)| s.p50).reduce(f64::min)?;
        let most = bars.iter().map(|(_, s)| s.p95).reduce(f64::max)?;
        (least > 0.0).then(|| Self { low: least.log10().floor(), high: most.log10().max(least.log10() + 0.5) })
    }

    fn place(&self, value: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (value.log10() - self.low) / (self.high - self.low).max(0.1)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        (self.low as i32..=self.high.floor() as i32).map(|power| 10f64.powi(power))
    }
}

fn described(table: &Table) -> String {
    let text: Vec<String> = table.rows.iter().filter_map(|r| r.summary.as_ref().map(|s| format!("{} {:.2} ms", r.name, s.p50))).collect();
    text.join(", ")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
