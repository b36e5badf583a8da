//! What a run of the harness found, as one value: written as JSON, shown as a page, drawn as a chart.

use serde::Serialize;

use crate::machine::Machine;
use crate::statistics::Summary;

/// Version of `results.json`.
const VERSION: u32 = 1;

/// Everything.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    /// Version of this format.
    pub(crate) version: u32,
    /// Where it was measured.
    pub(crate) machine: Machine,
    /// Whether all runs were made.
    pub(crate) extent: Extent,
    /// What was measured.
    pub(crate) sections: Vec<Section>,
    /// Promises and whether they hold.
    pub(crate) verdicts: Vec<Verdict>,
    /// Who took part.
    pub(crate) peers: Vec<PeerNote>,
    /// How long it all took, in seconds.
    pub(crate) seconds: u64,
}

impl Results {
    /// Nothing measured yet.
    pub(crate) fn new(machine: Machine, extent: Extent) -> Self {
        Self { version: VERSION, machine, extent, sections: Vec::new(), verdicts: Vec::new(), peers: Vec::new(), seconds: 0 }
    }
}

/// How many runs were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Extent {
    /// As many as the figures need.
    Full,
    /// A few, to see whether the harness works.
    Quick,
}

/// One measure.
#[derive(Debug, Serialize)]
pub(crate) struct Section {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// Its heading.
    pub(crate) title: &'static str,
    /// What exactly is measured.
    pub(crate) about: String,
    /// The figures.
    pub(crate) tables: Vec<Table>,
    /// What a reader should know about them.
    pub(crate) notes: Vec<String>,
}

/// Figures that were taken in one go.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    /// Under which circumstances.
    pub(crate) title: String,
    /// What the figures are.
    pub(crate) unit: Unit,
    /// The row that the others are compared with, where there is one.
    pub(crate) reference: Option<String>,
    /// One row each.
    pub(crate) rows: Vec<Row>,
}

impl Table {
    /// The summary of a row.
    pub(crate) fn summary(&self, name: &str) -> Option<&Summary> {
        self.rows.iter().find(|r| r.name == name)?.summary.as_ref()
    }

    /// How many times the reference a row is, at a rank.
    pub(crate) fn ratio(&self, name: &str, rank: fn(&Summary) -> f64) -> Option<f64> {
        let (ours, theirs) = (rank(self.summary(name)?), rank(self.summary(self.reference.as_deref()?)?));
        (theirs > 0.0).then_some(ours / theirs)
    }
}

/// What a figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unit {
    /// Milliseconds.
    Milliseconds,
    /// Milliseconds for a gibibyte.
    MillisecondsPerGibibyte,
    /// Microseconds.
    Microseconds,
    /// Microseconds for a request, many being under way.
    MicrosecondsPerRequest,
    /// Microseconds for a receipt, many being written.
    MicrosecondsPerReceipt,
    /// Thousands of bytes.
    Kilobytes,
}

impl Unit {
    /// As tables head their columns.
    pub(crate) fn short(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::MillisecondsPerGibibyte => "ms/GiB",
            Self::Microseconds => "µs",
            Self::MicrosecondsPerRequest => "µs/request",
            Self::MicrosecondsPerReceipt => "µs/receipt",
            Self::Kilobytes => "kB",
        }
    }
}

/// One contestant's figures, or why there are none.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// Who.
    pub(crate) name: String,
    /// The figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<Summary>,
    /// What it said instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
}

impl Row {
    /// A row from what came of a contestant.
    pub(crate) fn new(name: impl Into<String>, result: Result<Summary, String>) -> Self {
        let name = name.into();
        match result {
            Ok(summary) => Self { name, summary: Some(summary), refused: None },
            Err(message) => Self { name, summary: None, refused: Some(message) },
        }
    }
}

/// A promise, and what was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    /// What is promised.
    pub(crate) measure: String,
    /// The bound, in words.
    pub(crate) target: String,
    /// What was measured, in words.
    pub(crate) measured: String,
    /// Whether it holds.
    pub(crate) met: Met,
}

/// Whether a promise holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Met {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// Nobody knows: something could not be measured.
    Unknown,
}

impl std::fmt::Display for Met {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Yes => "met",
            Self::No => "**missed**",
            Self::Unknown => "not measured",
        })
    }
}

impl Verdict {
    /// A ratio that must not be larger than a bound.
    pub(crate) fn at_most(measure: impl Into<String>, bound: f64, ratio: Option<f64>) -> Self {
        Self::judge(measure, format!("≤ {bound} ×"), ratio, |r| r <= bound)
    }

    /// A ratio that must not be smaller than a bound.
    pub(crate) fn at_least(measure: impl Into<String>, bound: f64, ratio: Option<f64>) -> Self {
        Self::judge(measure, format!("≥ {bound} ×"), ratio, |r| r >= bound)
    }

    /// A figure of some unit that must not be larger than a bound.
    pub(crate) fn figure_at_most(measure: impl Into<String>, bound: f64, unit: &str, figure: Option<f64>) -> Self {
        let (measured, met) = match figure {
            Some(figure) => (format!("{figure:.2} {unit}"), if figure <= bound { Met::Yes } else { Met::No }),
            None => ("nothing".to_owned(), Met::Unknown),
        };
        Self { measure: measure.into(), target: format!("≤ {bound} {unit}"), measured, met }
    }

    fn judge(measure: impl Into<String>, target: String, ratio: Option<f64>, holds: impl Fn(f64) -> bool) -> Self {
        let (measured, met) = match ratio {
            Some(ratio) => (format!("{ratio:.3} ×"), if holds(ratio) { Met::Yes } else { Met::No }),
            None => ("nothing".to_owned(), Met::Unknown),
        };
        Self { measure: measure.into(), target, measured, met }
    }
}

/// A peer as the page describes it.
#[derive(Debug, Serialize)]
pub(crate) struct PeerNote {
    /// Its name in the tables.
    pub(crate) name: String,
    /// Its version, as it or its package says.
    pub(crate) version: String,
    /// How it was started.
    pub(crate) command: String,
    /// What it does not do in this profile.
    pub(crate) lacks: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_is_a_miss_and_nothing_is_not_a_pass() {
        assert_eq!(Verdict::at_most("a", 0.75, Some(0.751)).met, Met::No);
        assert_eq!(Verdict::at_most("a", 0.75, Some(0.75)).met, Met::Yes);
        assert_eq!(Verdict::at_least("a", 0.95, Some(0.94)).met, Met::No);
        assert_eq!(Verdict::at_least("a", 0.95, None).met, Met::Unknown);
    }
}
