//! Receipts as people and scripts meet them: what every command leaves, what cannot be left undone, and what somebody who changes them gets.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::string_slice, reason = "tests")]

mod checking;
mod independent;
mod kills;
mod looking;
mod many;
mod packs;
mod refused;
mod secrets;
mod witness;
mod writing;

use serde_json::Value;

use crate::Outcome;
use crate::wall::Ground;
use crate::wall::ground::finish;

/// Runs `stockade receipts WORDS`.
fn receipts(ground: &Ground, words: &[&str]) -> Outcome {
    finish(&mut ground.stockade(["receipts"].iter().chain(words)))
}

/// The same with `--json`.
fn receipts_json(ground: &Ground, words: &[&str]) -> Value {
    let outcome = receipts(ground, &[words, &["--json"]].concat());
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
}

/// Every receipt, oldest first.
fn all(ground: &Ground) -> Vec<Value> {
    let value = receipts_json(ground, &["list", "-n", "10000"]);
    let mut found = value["receipts"].as_array().unwrap_or_else(|| panic!("{value}")).clone();
    found.reverse();
    found
}

/// The kinds of all receipts, oldest first.
fn kinds(ground: &Ground) -> Vec<String> {
    all(ground).iter().map(|receipt| receipt["kind"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The ledger must hold, and has so many receipts.
fn holds(ground: &Ground) -> u64 {
    let value = receipts_json(ground, &["verify"]);
    assert_eq!(value["holds"], true, "{value}");
    value["receipts"].as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// Does something to the ledger's database behind its back.
fn tamper(ground: &Ground, statement: &str) {
    let database = ground.state.join("stockade/receipts/ledger.db");
    let program = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()";
    let outcome = finish(ground.outside("python3").args(["-c", program]).arg(&database).arg(statement));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}
