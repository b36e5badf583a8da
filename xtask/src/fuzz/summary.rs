//! What libFuzzer says at its end, read from its lines.

use crate::terminal;

/// One target's run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Summary {
    target: String,
    executions: u64,
    edges: u64,
    seconds: u64,
    /// Inputs that broke something.
    pub(crate) findings: usize,
}

impl Summary {
    /// Nothing yet.
    pub(crate) fn new(target: &str) -> Self {
        Self { target: target.to_owned(), executions: 0, edges: 0, seconds: 0, findings: 0 }
    }

    /// Takes what a line tells: `#2048 NEW cov: 311 ft: …`, `Done 90210 runs in 600 second(s)`, `stat::number_of_executed_units: 90210`.
    pub(crate) fn read(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: Option<&&str>| word.and_then(|word| word.parse::<u64>().ok());
        if let Some(at) = words.iter().position(|word| *word == "cov:")
            && line.starts_with('#')
        {
            self.edges = number(words.get(at + 1)).unwrap_or(self.edges);
        }
        match words.as_slice() {
            ["stat::number_of_executed_units:", count] => self.executions = number(Some(count)).unwrap_or(0),
            ["Done", _, "runs", "in", seconds, ..] => self.seconds = number(Some(seconds)).unwrap_or(0),
            _ => {}
        }
    }
}

/// A row per target.
pub(crate) fn table(summaries: &[Summary]) -> String {
    let header = ["target", "seconds", "executions", "edges", "findings"].map(str::to_owned).to_vec();
    let row = |one: &Summary| {
        vec![one.target.clone(), one.seconds.to_string(), one.executions.to_string(), one.edges.to_string(), one.findings.to_string()]
    };
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(summaries.iter().map(row)).collect();
    terminal::table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_numbers_count() {
        let mut summary = Summary::new("wire");
        for line in [
            "INFO: Running with entropic power schedule (0xFF, 100).",
            "#2\tINITED cov: 101 ft: 102 corp: 1/1b exec/s: 0 rss: 40Mb",
            "#4096\tNEW    cov: 311 ft: 500 corp: 9/1b lim: 4 exec/s: 0 rss: 40Mb L: 1/1 MS: 1 ChangeByte-",
            "Done 90210 runs in 601 second(s)",
            "stat::number_of_executed_units: 90210",
            "a line about cov: 9",
        ] {
            summary.read(line);
        }
        assert_eq!(summary, Summary { target: "wire".into(), executions: 90_210, edges: 311, seconds: 601, findings: 0 });
        assert_eq!(table(&[summary]).lines().count(), 2);
    }
}
