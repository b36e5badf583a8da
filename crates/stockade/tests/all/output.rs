//! stdout that goes away or fills up, and colour.

use std::io::Read;
use std::process::Stdio;

use crate::{Outcome, outcome, run, stockade};

/// Runs with a stdout whose reader is already gone.
fn without_reader(words: &[&str]) -> Outcome {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut child = stockade().args(words).stdout(writer).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut stderr = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("read");
    Outcome { code: child.wait().expect("ended").code(), stdout: String::new(), stderr }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    for words in [&["--help"][..], &["--version"], &["version", "--json"], &["completions", "bash"], &["man"], &["docs-reference"]] {
        assert_eq!(without_reader(words), Outcome { code: Some(0), stdout: String::new(), stderr: String::new() }, "{words:?}");
    }
}

#[test]
fn a_failure_keeps_its_code_when_the_reader_is_gone() {
    assert_eq!(without_reader(&["doctor", "--frob", "--json"]).code, Some(125));
}

#[test]
fn a_full_disk_is_a_failure() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let mut child = stockade().args(["completions", "bash"]).stdout(full).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut stderr = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("read");
    assert_eq!(child.wait().expect("ended").code(), Some(125));
    assert_eq!(stderr, "stockade: output: cannot write to stdout: No space left on device (os error 28)\n");
}

#[test]
fn colour_is_a_wish_or_a_terminal() {
    assert!(!run(["--help"]).stdout.contains('\u{1b}'));
    assert!(!run(["--help", "--color", "never"]).stdout.contains('\u{1b}'));
    assert!(run(["--color=always", "--help"]).stdout.contains("\u{1b}["));
    let failed = run(["--color", "always", "man", "/dev/null/x"]);
    assert_eq!(failed.code, Some(125));
    assert!(failed.stderr.contains("\u{1b}[31mman\u{1b}["), "{:?}", failed.stderr);
    let plain = run(["man", "/dev/null/x"]);
    assert!(!plain.stderr.contains('\u{1b}'), "{:?}", plain.stderr);
}

#[test]
fn completions_need_no_home_directory() {
    assert_eq!(outcome(stockade().env_remove("HOME").args(["completions", "fish"])).code, Some(0));
}
