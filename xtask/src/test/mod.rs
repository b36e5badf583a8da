//! `test`: everything that must hold, suite by suite, with a table at the end.
//!
//! A suite that fails does not stop the others, so that one run tells all. Nothing is ever skipped silently: what `--fast`
//! leaves out is not in the table.

mod clients;
mod counts;
mod packages;
mod python;
mod suites;

use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::terminal;
use crate::workspace::Workspace;
use counts::Counts;

/// How much to run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All suites.
    Full,
    /// Without the reference pages and the supply chain.
    Fast,
}

/// One thing that is checked.
struct Suite {
    name: &'static str,
    extent: Extent,
    check: fn(&Workspace) -> Result<Passed, Failure>,
}

/// What a suite that passed has to say.
struct Passed {
    note: String,
    counts: Counts,
}

impl From<String> for Passed {
    fn from(note: String) -> Self {
        Self { note, counts: Counts::default() }
    }
}

/// How one suite ended.
struct Outcome {
    name: &'static str,
    time: Duration,
    result: Result<String, String>,
    counts: Counts,
}

/// Runs the suites; fails if any failed.
pub(crate) fn run(workspace: &Workspace, extent: Extent) -> Result<(), Failure> {
    let start = Instant::now();
    let wanted = suites::ALL.iter().filter(|suite| extent == Extent::Full || suite.extent == Extent::Fast);
    let outcomes: Vec<Outcome> = wanted.map(|suite| run_suite(workspace, suite)).collect();
    println!("\n{}", report(&outcomes));
    println!("{}", closing(&outcomes, start.elapsed()));
    let failed: Vec<&str> = outcomes.iter().filter(|outcome| outcome.result.is_err()).map(|outcome| outcome.name).collect();
    if failed.is_empty() { Ok(()) } else { Err(Failure::new(format!("failed: {}", failed.join(", ")))) }
}

fn run_suite(workspace: &Workspace, suite: &Suite) -> Outcome {
    println!("\n{}", terminal::bold(&format!("── {}", suite.name)));
    let start = Instant::now();
    let checked = (suite.check)(workspace);
    let time = start.elapsed();
    let (result, counts) = match checked {
        Ok(passed) => {
            println!("{} {} in {:.1} s {}", terminal::green("ok"), suite.name, time.as_secs_f64(), passed.note);
            (Ok(passed.note), passed.counts)
        }
        Err(failure) => {
            let text = failure.to_string();
            println!("{} {} in {:.1} s\n{text}", terminal::red("FAILED"), suite.name, time.as_secs_f64());
            let counts = Counts::in_text(&text);
            (Err(text), counts)
        }
    };
    Outcome { name: suite.name, time, result, counts }
}

/// The table: suite, verdict, seconds, what it said.
fn report(outcomes: &[Outcome]) -> String {
    let header = ["suite", "result", "seconds", ""].map(str::to_owned).to_vec();
    let row = |outcome: &Outcome| {
        let (verdict, note) = match &outcome.result {
            Ok(note) => ("ok", note.as_str()),
            Err(text) => ("FAILED", text.as_str()),
        };
        let note = note.lines().next().unwrap_or_default().to_owned();
        vec![outcome.name.to_owned(), verdict.to_owned(), format!("{:7.1}", outcome.time.as_secs_f64()), note]
    };
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(outcomes.iter().map(row)).collect();
    terminal::table(&rows)
}

/// The last line: tests as their runner counted them, and suites.
fn closing(outcomes: &[Outcome], time: Duration) -> String {
    let failed = outcomes.iter().filter(|outcome| outcome.result.is_err()).count();
    let mut tests = Counts::default();
    for outcome in outcomes {
        tests.add(outcome.counts);
    }
    let text = format!("tests: {tests}; suites: {} passed, {failed} failed; {:.1} s", outcomes.len() - failed, time.as_secs_f64());
    if failed == 0 { terminal::green(&text) } else { terminal::red(&text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &'static str, result: Result<&str, &str>, passed: usize, failed: usize) -> Outcome {
        let result = result.map(str::to_owned).map_err(str::to_owned);
        Outcome { name, time: Duration::from_millis(1500), result, counts: Counts { passed, failed } }
    }

    #[test]
    fn the_closing_line_counts_tests_and_suites() {
        let outcomes = [outcome("format", Ok(""), 0, 0), outcome("tests", Err("1 failed"), 41, 1)];
        let line = closing(&outcomes, Duration::from_secs(3));
        assert!(line.contains("tests: 41 passed, 1 failed; suites: 1 passed, 1 failed; 3.0 s"), "{line}");
    }

    #[test]
    fn the_table_has_a_row_per_suite_with_the_first_line_of_its_note() {
        let text = report(&[outcome("format", Ok("fine"), 0, 0), outcome("lints", Err("first\nsecond"), 0, 0)]);
        assert_eq!(text, "suite   result  seconds\nformat  ok          1.5  fine\nlints   FAILED      1.5  first");
    }
}
