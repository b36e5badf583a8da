//! Packs and capabilities as people and scripts meet them: written, signed, installed, run, and refused.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::string_slice, clippy::print_stdout, reason = "tests")]

mod calls;
mod lifecycle;
mod refused;
mod shipped;

use serde_json::Value;

use crate::Outcome;
use crate::wall::Ground;
use crate::wall::ground::{eventually, finish, finish_with};

const PASSPHRASE: &[u8] = b"correct horse battery\n";

/// A capability that says a word.
const ECHO: &str = r#"
name = "demo.echo"
description = "Say something."
effect = "read"
program = "echo"
args = ["{word}"]
input = { required = ["word"], properties = { word = { type = "string" } } }
[[examples]]
input = { word = "a b" }
argv = ["echo", "a b"]
[[examples]]
input = { word = "-n" }
verdict = "deny"
"#;

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

/// A pack of the publisher `acme` with one capability, in the workspace.
fn pack(ground: &Ground, directory: &str, version: &str, capability: &str) {
    let manifest = format!("name = \"demo\"\nversion = \"{version}\"\ndescription = \"A demonstration.\"\npublisher = \"acme\"\n");
    ground.file(&format!("{directory}/pack.toml"), &manifest);
    let name = capability.split('"').nth(1).expect("a name");
    ground.file(&format!("{directory}/capabilities/{name}.toml"), capability);
}

/// A key of this publisher in the workspace.
fn keygen(ground: &Ground, publisher: &str) {
    let made = finish_with(&mut ground.stockade(["pack", "keygen", publisher]), PASSPHRASE);
    assert_eq!(made.code, Some(0), "{made:?}");
}

fn sign(ground: &Ground, directory: &str, key: &str, more: &[&str]) -> Outcome {
    finish_with(&mut ground.stockade(["pack", "sign", directory, "--key", key].iter().chain(more)), PASSPHRASE)
}

/// A pack that nobody signed, installed because a person says so.
fn installed(ground: &Ground, capability: &str) {
    pack(ground, "demo", "1.0.0", capability);
    let outcome = tell(ground, &["pack", "install", "demo", "--unsigned", "--yes"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

/// No sandbox is running, kept or left; what a call that has ended is clearing away is waited for.
fn nothing_is_left(ground: &Ground) {
    eventually("what the call left is cleared away", || ground.sandboxes().is_empty());
}

/// Names of installed packs, drafts and all.
fn on_disk(ground: &Ground) -> Vec<String> {
    let entries = std::fs::read_dir(ground.state.join("stockade/packs"));
    let names = entries.map(|entries| entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>());
    names.unwrap_or_default().into_iter().filter(|name| name != ".lock").collect()
}
