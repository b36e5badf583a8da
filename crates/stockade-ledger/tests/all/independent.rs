//! The export checked by an implementation that shares nothing with ours: a Python script written from `docs/reference/receipts.md` alone.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{exported, open, write_calls};

/// Where `cargo xtask test` put the Python packages; unset, the machine's own are used.
const PACKAGES: &str = "STOCKADE_TEST_PYTHON_PACKAGES";

fn run(file: &Path, key: &Path) -> Output {
    let script = Path::new("tests/verify_export.py");
    let mut command = Command::new("python3");
    command.arg("-B").arg(script).arg(key).arg(file);
    if let Some(packages) = packages() {
        command.env("PYTHONPATH", packages);
    }
    command.output().unwrap()
}

pub(crate) fn packages() -> Option<PathBuf> {
    std::env::var_os(PACKAGES).map(PathBuf::from)
}

#[test]
fn a_script_written_from_the_page_alone_agrees() {
    let root = tempfile::tempdir().unwrap();
    let ledger = open(root.path());
    write_calls(&ledger, 20);
    let old = root.path().join("first.pub.pem");
    std::fs::write(&old, ledger.public_key().to_pem()).unwrap();
    ledger.rotate_key().unwrap();
    write_calls(&ledger, 20);
    let new = root.path().join("key.pub.pem");
    let file = root.path().join("export.jsonl");
    let bytes = exported(&ledger);
    std::fs::write(&file, &bytes).unwrap();
    for key in [&old, &new] {
        let output = run(&file, key);
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.contains("ok: 81 receipts"),
            "{said}\nhint: cargo xtask test installs what the script needs"
        );
    }
    let text = String::from_utf8(bytes).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let cases = [
        ("line 30", text.replacen("argument 14 ", "argument 15 ", 1)),
        ("line 11", lines.iter().enumerate().filter(|(number, _)| *number != 10).map(|(_, line)| *line).collect()),
        ("closing", lines[..lines.len() - 1].concat()),
        ("line 1", text.replacen("stockade.receipts/", "stockade.receipts/0", 1)),
    ];
    for (expected, changed) in cases {
        std::fs::write(&file, changed).unwrap();
        let output = run(&file, &new);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(expected), "{expected}: {said}");
    }
}
