//! `stockade mcp` as clients meet it: JSON-RPC by hand over pipes for what must hold to the letter, and real clients.

#![allow(clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod approvals;
pub(crate) mod client;
mod confined;
mod elicit;
mod ends;
mod hostile;
mod inspector;
mod proxy;
mod real;
mod tools;

pub(crate) use approvals::ASKS;
pub(crate) use client::Client;
pub(crate) use elicit::OWN_WORD;
pub(crate) use real::python;

use crate::wall::Ground;
use crate::wall::ground::finish;

/// Agents may run anything but `git push`, and use files.
const DEVELOPER: &str = include_str!("../../../presets/developer.cedar");

/// Puts a file into the person's own rules.
pub(crate) fn rules(ground: &Ground, text: &str) {
    ground.plant(&ground.home.join(".config/stockade/policy/rules.cedar"), text, 0o600);
}

/// What the ledger has, oldest first.
pub(crate) fn receipts(ground: &Ground) -> Vec<serde_json::Value> {
    let listed = finish(&mut ground.stockade(["receipts", "list", "--json"]));
    let mut value: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap_or_else(|error| panic!("{error}: {listed:?}"));
    let mut all: Vec<serde_json::Value> = value["receipts"].as_array_mut().expect("receipts").drain(..).collect();
    all.sort_by_key(|receipt| receipt["seq"].as_u64());
    all
}

/// Every record, signature and checkpoint holds.
pub(crate) fn verified(ground: &Ground) {
    let outcome = finish(&mut ground.stockade(["receipts", "verify"]));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}
