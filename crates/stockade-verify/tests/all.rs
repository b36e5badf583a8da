//! The program, as strangers use it, on exports that were written once and must be readable for ever.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests, which start the program under test")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Beneath this package, in which tests run. Where it was compiled may be another clone that shares the target directory.
fn data(name: &str) -> PathBuf {
    Path::new("tests/data").join(name)
}

/// Exit code and what was said.
fn run(words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_stockade-verify")).args(words).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap())
}

fn check(words: &[&str], code: i32, said: &str) {
    let (found, text) = run(words);
    assert!(found == Some(code) && text.contains(said), "{words:?}: {found:?} {text}");
}

#[test]
fn what_was_written_once_still_holds() {
    let [all, some, first, newest] =
        ["all.jsonl", "some.jsonl", "first.pub.pem", "newest.pub.pem"].map(data).map(|path| path.to_str().unwrap().to_owned());
    for key in [&first, &newest] {
        check(&["--key", key, &all], 0, "ok: all 7 receipts");
        check(&["--key", key, &some], 0, "ok: 3 receipts out of 7");
    }
}

#[test]
fn a_witness_that_is_asked_for_must_have_signed() {
    let [all, key, witness] = ["all.jsonl", "newest.pub.pem", "witness.pub.pem"].map(data).map(|path| path.to_str().unwrap().to_owned());
    let text = std::fs::read_to_string(data("all.jsonl")).unwrap();
    let (_, rest) = text.split_once("stockade.witness/").unwrap();
    let name = format!("stockade.witness/{}", rest.split(' ').next().unwrap());
    check(&["--key", &key, "--witness", &format!("{name}={witness}"), &all], 0, "witnessed by stockade.witness/");
    check(&["--key", &key, "--witness", &format!("{name}={key}"), &all], 1, "BROKEN: line 1 (header): witness");
}

#[test]
fn what_broke_is_named_and_misuse_is_another_thing() {
    let [all, key, witness] = ["all.jsonl", "newest.pub.pem", "witness.pub.pem"].map(data).map(|path| path.to_str().unwrap().to_owned());
    let directory = std::env::temp_dir().join(format!("stockade-verify-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let changed = directory.join("changed.jsonl");
    let text = std::fs::read_to_string(&all).unwrap();
    std::fs::write(&changed, text.replacen("\"exit_code\":1", "\"exit_code\":0", 1)).unwrap();
    let path = changed.to_str().unwrap();
    check(&["--key", &key, path], 1, "BROKEN: line 5 (receipt 3): the signature does not hold");
    // A witness's line that nobody has a key for is the one thing in the header that only the closing line covers.
    let (before, after) = text.split_once("stockade.witness/").unwrap();
    std::fs::write(&changed, format!("{before}stockade.witnesS/{after}")).unwrap();
    check(&["--key", &key, path], 1, "BROKEN: the closing line: the digest over the lines before does not hold");
    std::fs::remove_dir_all(&directory).unwrap();
    check(&["--key", &witness, &all], 1, "none of the given keys is the ledger's");
    check(&[&all], 125, "a key is never taken from the file");
    check(&["--key", &all, &all], 125, "neither a `PUBLIC KEY`");
    check(&["--key", &key, "/nonexistent"], 125, "cannot open");
    check(&["--bogus"], 125, "unknown option");
}
