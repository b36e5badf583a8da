//! What the loops found: a tally per loop, and the table at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::bounded::Outcome;
use crate::census::{Kind, Left};

/// So many texts of a kind are told, and so much of each.
const MOST_TEXTS: usize = 3;
const MOST_CHARACTERS: usize = 1500;
/// So many words tell a kind, where nobody named it.
const MOST_WORDS: usize = 8;

/// Something that is not as it must be, and how to see it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Of which kind: findings of one kind are told together.
    pub kind: String,
    /// In which round.
    pub round: u64,
    /// As whom, doing what.
    pub scene: String,
    /// What is wrong.
    pub what: String,
}

/// What one loop came to.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// How often Stockade was started under a fault.
    pub runs: u64,
    /// How often something was killed, or refused, by where it was.
    pub phases: BTreeMap<String, u64>,
    /// How those runs ended.
    pub ends: BTreeMap<String, u64>,
    /// What was left, by kind.
    pub left: BTreeMap<Kind, u64>,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// What was proved, and by how much: sentences that stand beside the findings.
    pub proofs: Vec<String>,
    /// How long it took.
    pub time: Duration,
}

impl Tally {
    /// Counts one in a phase.
    pub fn phase(&mut self, name: impl Into<String>) {
        *self.phases.entry(name.into()).or_default() += 1;
    }

    /// Counts one end.
    pub fn end(&mut self, name: impl Into<String>) {
        *self.ends.entry(name.into()).or_default() += 1;
    }

    /// Counts a run's end and what is wrong with it.
    pub fn judged(&mut self, round: u64, scene: &str, outcome: &Outcome, wrong: Vec<String>) {
        self.end(outcome.name());
        self.wrong(round, scene, wrong);
    }

    /// Takes note of what is wrong.
    pub fn wrong(&mut self, round: u64, scene: &str, what: impl IntoIterator<Item = String>) {
        for what in what {
            self.wrong_as(round, scene, kind_of(&what), what);
        }
    }

    /// Takes note of something whose kind is known.
    pub fn wrong_as(&mut self, round: u64, scene: &str, kind: String, what: String) {
        self.findings.push(Finding { kind, round, scene: scene.to_owned(), what });
    }

    /// Takes note of what is left.
    pub fn left(&mut self, round: u64, scene: &str, left: &[Left]) {
        for one in left {
            *self.left.entry(one.kind).or_default() += 1;
        }
        self.wrong(round, scene, left.iter().map(|one| format!("left: {one}")));
    }
}

/// Findings by kind, the most frequent first: how many, and the first texts of each.
pub fn findings(tally: &Tally, again: impl Fn(&Finding) -> String) -> String {
    let mut kinds: BTreeMap<&str, Vec<&Finding>> = BTreeMap::new();
    for finding in &tally.findings {
        kinds.entry(&finding.kind).or_default().push(finding);
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, findings)| std::cmp::Reverse(findings.len()));
    let mut lines = Vec::new();
    for (kind, findings) in kinds {
        lines.push(format!("{:>6} × {kind}", findings.len()));
        for finding in findings.iter().take(MOST_TEXTS) {
            let text: String = finding.what.chars().take(MOST_CHARACTERS).collect();
            lines.push(format!("         {}: {text}", finding.scene));
            lines.push(format!("         again: {}", again(finding)));
        }
    }
    lines.join("\n")
}

/// What kind of finding a text tells of: its beginning, without what differs each time.
fn kind_of(text: &str) -> String {
    let word =
        |word: &str| if word.chars().any(|letter| letter.is_ascii_digit() || letter == '/') { "…".to_owned() } else { word.to_owned() };
    text.split_whitespace().take(MOST_WORDS).map(word).collect::<Vec<_>>().join(" ")
}

/// Rows as columns.
pub fn table(tallies: &[(&str, Tally)]) -> String {
    let mut header: Vec<String> = ["loop", "runs", "findings"].map(str::to_owned).to_vec();
    header.extend(Kind::ALL.iter().map(|kind| kind.name().to_owned()));
    header.extend(["seconds", "ends", "phases"].map(str::to_owned));
    let row = |(name, tally): &(&str, Tally)| {
        let mut row = vec![(*name).to_owned(), tally.runs.to_string(), tally.findings.len().to_string()];
        row.extend(Kind::ALL.iter().map(|kind| tally.left.get(kind).unwrap_or(&0).to_string()));
        row.extend([format!("{:.1}", tally.time.as_secs_f64()), counts(&tally.ends), counts(&tally.phases)]);
        row
    };
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(tallies.iter().map(row)).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn counts(of: &BTreeMap<String, u64>) -> String {
    of.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_told_by_kind_the_most_frequent_first() {
        let mut tally = Tally::default();
        tally.wrong(1, "alone", ["it took 7 s".to_owned()]);
        tally.wrong(2, "many", (0..5).map(|number| format!("the intent {number}a has no outcome")));
        let told = findings(&tally, |finding| format!("--round {}", finding.round));
        let lines: Vec<&str> = told.lines().map(str::trim).collect();
        assert_eq!(lines.first(), Some(&"5 × the intent … has no outcome"));
        assert_eq!(lines.iter().filter(|line| line.starts_with("many: ")).count(), MOST_TEXTS);
        assert!(lines.contains(&"1 × it took … s") && lines.contains(&"again: --round 1"), "{told}");
    }

    #[test]
    fn what_is_left_is_counted_and_is_a_finding() {
        let mut tally = Tally::default();
        tally.left(3, "as root", &[Left { kind: Kind::Mount, name: "7 /x tmpfs".into() }]);
        assert_eq!((tally.left.get(&Kind::Mount), tally.findings.len()), (Some(&1), 1));
        assert!(findings(&tally, |_| String::new()).starts_with("     1 × left: mount"), "{}", findings(&tally, |_| String::new()));
        assert!(table(&[("kill-run", tally)]).contains("kill-run  0     1         0          1"));
    }
}
