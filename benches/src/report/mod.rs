//! Writing down what was found: a page for people, the same as JSON, and a chart.

mod chart;
mod page;

use std::path::Path;

use crate::failure::Failure;
use crate::results::Results;

/// Writes all three into a directory.
pub(crate) fn write(results: &Results, directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).map_err(Failure::io("make", directory))?;
    let mut json = serde_json::to_string_pretty(&rounded(serde_json::to_value(results)?))?;
    json.push('\n');
    let chart = chart::draw(results);
    let page = page::render(results, if chart.is_some() { page::Chart::Drawn } else { page::Chart::Absent });
    for (name, text) in [("RESULTS.md", Some(page)), ("results.json", Some(json)), ("field.svg", chart)] {
        let file = directory.join(name);
        if let Some(text) = text {
            std::fs::write(&file, text).map_err(Failure::io("write", &file))?;
        }
    }
    Ok(())
}

/// The promises and whether they hold, for the terminal.
pub(crate) fn summary(results: &Results) -> String {
    page::verdicts(results).replace("**", "")
}

/// Figures with four decimals: more is noise, and makes the file large.
fn rounded(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Number(number) if number.is_f64() => {
            let figure = number.as_f64().map(|f| (f * 1e4).round() / 1e4);
            figure.and_then(serde_json::Number::from_f64).map_or(Value::Number(number), Value::Number)
        }
        Value::Array(items) => Value::Array(items.into_iter().map(rounded).collect()),
        Value::Object(map) => Value::Object(map.into_iter().map(|(name, value)| (name, rounded(value))).collect()),
        other => other,
    }
}
