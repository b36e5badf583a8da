//! Rules as people and scripts meet them: what runs, what does not, and what is said about it.

#![allow(clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod exam;
mod verbs;

use serde_json::Value;

use crate::Outcome;
use crate::wall::Ground;
use crate::wall::ground::finish;

/// Puts a file into the person's own rules.
fn rules(ground: &Ground, text: &str) {
    ground.plant(&ground.home.join(".config/stockade/policy/rules.cedar"), text, 0o600);
}

/// Runs a script under the rules.
fn script(ground: &Ground, flags: &[&str], script: &str) -> Outcome {
    finish(&mut ground.stockade(["run"].iter().chain(flags).chain(&["--shell", script])))
}

/// The same with `--json`.
fn script_json(ground: &Ground, script: &str) -> (Option<i32>, Value) {
    let outcome = finish(&mut ground.stockade(["run", "--json", "--shell", script]));
    let value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
    (outcome.code, value)
}
