//! Help, versions and command lines that make no sense.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};

use crate::{Outcome, run};

fn check_failure(words: &[&str], stderr: &str) {
    assert_eq!(run(words), Outcome { code: Some(125), stdout: String::new(), stderr: stderr.to_owned() }, "{words:?}");
}

fn check_json_failure(words: &[&str], message: &str, hint: &str) {
    let outcome = run(words);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(125), ""), "{words:?}");
    let value: Value = serde_json::from_str(&outcome.stdout).expect("one JSON value");
    assert_eq!(value, json!({"error": {"step": "arguments", "message": message, "hint": hint}}), "{words:?}");
}

#[test]
fn help_goes_to_stdout() {
    for words in [
        &["--help"][..],
        &["-h"],
        &["help"],
        &["run", "--help"],
        &["sandbox", "--help"],
        &["sandbox", "apply", "--help"],
        &["config", "-h"],
    ] {
        let outcome = run(words);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{words:?}");
        assert!(outcome.stdout.contains("Usage:"), "{words:?}: {}", outcome.stdout);
        assert!(!outcome.stdout.contains('\u{1b}'), "no colour into a pipe: {words:?}");
    }
}

#[test]
fn help_shows_examples_and_hides_what_is_not_for_people() {
    let help = run(["--help"]).stdout;
    assert!(help.contains("stockade run -- npm test"), "{help}");
    assert!(!help.contains("hold") && !help.contains("broker") && !help.contains("docs-reference"), "{help}");
    assert!(run(["run", "--help"]).stdout.contains("stockade run --timeout 30s"));
    assert!(run(["sandbox", "--help"]).stdout.contains("stockade sandbox create --name box"));
}

#[test]
fn versions() {
    let expected = format!("stockade {}\n", env!("CARGO_PKG_VERSION"));
    for words in [["--version"], ["-V"], ["version"]] {
        assert_eq!(run(words), Outcome { code: Some(0), stdout: expected.clone(), stderr: String::new() });
    }
    let value: Value = serde_json::from_str(&run(["version", "--json"]).stdout).expect("JSON");
    assert_eq!(value, json!({"name": "stockade", "version": env!("CARGO_PKG_VERSION")}));
}

#[test]
fn nothing_to_do_is_help_on_stderr() {
    for words in [&[][..], &["config"]] {
        let outcome = run(words);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(125), ""), "{words:?}");
        assert!(outcome.stderr.contains("Usage:"), "{}", outcome.stderr);
    }
}

#[test]
fn bad_command_lines_exit_with_125() {
    check_failure(
        &["run", "--frob", "--", "true"],
        "stockade: arguments: unexpected argument '--frob' found\n  hint: see `stockade run --help`\n",
    );
    check_failure(
        &["run", "--memory", "-1", "--", "true"],
        "stockade: arguments: invalid value '-1' for '--memory <SIZE>': `-1` is not a size: write a number with K, M, G or T, such as 512M\n  \
         hint: see `stockade run --help`\n",
    );
    let words: [&[&str]; 19] = [
        &["frob"],
        &["run"],
        &["run", "--"],
        &["run", "true"],
        &["run", "--shell", "x", "--", "true"],
        &["run", "--memory", "0", "--", "true"],
        &["run", "--memory", "99999999999999999999G", "--", "true"],
        &["run", "--timeout", "soon", "--", "true"],
        &["run", "--pids", "0", "--", "true"],
        &["run", "--pids", "4294967296", "--", "true"],
        &["run", "--cpus", "-1", "--", "true"],
        &["run", "--backend", "chroot", "--", "true"],
        &["run", "--mount", "/a", "--", "true"],
        &["run", "--env", "1=2", "--", "true"],
        &["run", "--secret", "TOKEN", "--", "true"],
        &["run", "--allow-degraded", "files,all", "--", "true"],
        &["run", "--require", "luck", "--", "true"],
        &["sandbox", "read", "box", "../etc/passwd"],
        &["sandbox", "destroy", "../x"],
    ];
    for words in words {
        let outcome = run(words);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(125), ""), "{words:?}");
        assert!(outcome.stderr.starts_with("stockade: arguments: "), "{words:?}: {}", outcome.stderr);
        assert!(outcome.stderr.lines().last().is_some_and(|line| line.starts_with("  hint: ")), "{words:?}: {}", outcome.stderr);
    }
}

#[test]
fn bad_command_lines_with_json() {
    check_json_failure(&["doctor", "--json", "--frob"], "unexpected argument '--frob' found", "see `stockade doctor --help`");
    check_json_failure(&["--json"], "a command is missing", "see `stockade --help`");
    check_json_failure(&["--json", "config", "--json"], "a command is missing", "see `stockade config --help`");
}

#[test]
fn json_after_the_dashes_belongs_to_the_program() {
    let outcome = run(["run", "--frob", "--", "x", "--json"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(125), ""));
}

#[test]
fn hostile_arguments_cannot_repaint_the_terminal() {
    let outcome = run(["\u{1b}[2Jx\u{202e}\n\nUsage: rm -rf"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(125), ""));
    assert!(!outcome.stderr.contains(['\u{1b}', '\u{202e}']), "{:?}", outcome.stderr);
    let outcome = run([OsStr::from_bytes(b"\xff\x1b[2J")]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(125), ""));
    assert!(!outcome.stderr.contains('\u{1b}'), "{:?}", outcome.stderr);
}
