//! Approvals as people, agents and attackers meet them.

#![allow(clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod calls;
mod credential;
mod hostile;
mod notify;
mod other;
mod prompt;

use serde_json::Value;

use crate::Outcome;
use crate::wall::Ground;
use crate::wall::ground::finish;

pub(crate) const PASSPHRASE: &str = "correct horse battery";

/// Puts a file into the person's own rules.
fn rules(ground: &Ground, text: &str) {
    ground.plant(&ground.home.join(".config/stockade/policy/rules.cedar"), text, 0o600);
}

/// Rules that permit any program but ask about this one.
pub(crate) fn ask_for(ground: &Ground, program: &str) {
    let asks =
        "@id(\"ask\") @approval(\"required\") @reason(\"look first\")\npermit (principal, action == Stockade::Action::\"exec\", resource)";
    rules(ground, &format!("{asks} when {{ resource == Stockade::Program::\"{program}\" }};\n"));
}

/// The request that a refusal names.
fn request_of(stderr: &str) -> String {
    let id = stderr.split("stockade approvals approve ").nth(1).and_then(|rest| rest.split_whitespace().next());
    id.unwrap_or_else(|| panic!("no request in {stderr:?}")).to_owned()
}

/// Runs `stockade` with these words.
fn tell(ground: &Ground, words: &[&str]) -> Outcome {
    finish(&mut ground.stockade(words))
}

/// The same, which must succeed; its JSON.
fn json(ground: &Ground, words: &[&str]) -> Value {
    let outcome = finish(&mut ground.stockade(words.iter().chain(&["--json"])));
    assert_eq!(outcome.code, Some(0), "{words:?}: {outcome:?}");
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
}

/// The same with a passphrase on descriptor 3, and nothing on standard input.
pub(crate) fn with_passphrase(ground: &Ground, passphrase: &str, words: &[&str]) -> Outcome {
    let script = "exec \"$0\" \"$@\" 3<<<\"$PASSPHRASE_OF_TEST\"";
    let mut command = ground.outside("bash");
    command.args(["-c", script]).arg(&ground.binary).args(words);
    finish(command.env("PASSPHRASE_OF_TEST", passphrase).env("STOCKADE_APPROVER_FD", "3"))
}

/// Sets the credential up.
pub(crate) fn set_credential(ground: &Ground) {
    let set =
        crate::wall::ground::finish_with(&mut ground.stockade(["approvals", "credential", "set"]), format!("{PASSPHRASE}\n").as_bytes());
    assert_eq!(set.code, Some(0), "{set:?}");
}

/// All receipts, oldest first.
fn receipts(ground: &Ground) -> Vec<Value> {
    let exported = tell(ground, &["receipts", "export"]);
    assert_eq!(exported.code, Some(0), "{exported:?}");
    let lines = exported.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.map(|line| line["receipt"].clone()).filter(Value::is_object).collect()
}
