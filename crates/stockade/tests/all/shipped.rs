//! What a package ships next to the program: completions, manual pages, the reference.

use crate::{Outcome, outcome, run, stockade};

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let outcome = run(["completions", shell]);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{shell}");
        assert!(outcome.stdout.contains("workspace-mode"), "{shell}");
    }
    assert_eq!(run(["completions", "tcsh"]).code, Some(125));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "bash -n only parses the file")]
fn bash_accepts_its_completions() {
    let script = run(["completions", "bash"]).stdout;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("stockade.bash");
    std::fs::write(&path, script).expect("written");
    let checked = outcome(std::process::Command::new("bash").arg("-n").arg(&path));
    assert_eq!(checked, Outcome { code: Some(0), stdout: String::new(), stderr: String::new() });
}

#[test]
fn the_main_manual_page_goes_to_stdout() {
    let outcome = run(["man"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    assert!(outcome.stdout.contains(".TH stockade 1"), "{}", outcome.stdout);
}

#[test]
fn manual_pages_into_a_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let target = directory.path().join("new/man1");
    let written = outcome(stockade().arg("man").arg(&target));
    assert_eq!(written, Outcome { code: Some(0), stdout: String::new(), stderr: String::new() });
    for page in ["stockade.1", "stockade-run.1", "stockade-sandbox.1", "stockade-sandbox-apply.1", "stockade-config-set.1"] {
        assert!(target.join(page).is_file(), "{page}");
    }
    assert!(!target.join("stockade-hold.1").exists());
}

#[test]
fn manual_pages_into_a_file_fail_with_the_reason() {
    let outcome = run(["man", "/dev/null/x"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(125), ""));
    assert!(outcome.stderr.starts_with("stockade: man: cannot write manual pages into `/dev/null/x`: "), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("\n  hint: "), "{}", outcome.stderr);
}

#[test]
fn the_reference_is_markdown() {
    let outcome = run(["docs-reference"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    assert!(outcome.stdout.starts_with("# Command reference\n"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("### `stockade run`"));
}
