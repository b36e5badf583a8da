//! The harness measures something and writes it down. Nothing is asserted about how long anything takes.
#![expect(clippy::disallowed_methods, reason = "starts the harness")]

use std::process::Command;

#[test]
fn a_quick_run_of_one_measure_writes_all_it_found() {
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    let repository = std::fs::canonicalize("..").unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_stockade-bench"))
        // This measure goes through the library, so the binary's place may hold anything.
        .args(["--stockade", "/bin/true", "--repository"])
        .arg(&repository)
        .arg("--scratch")
        .arg(scratch.path())
        .args(["--quick", "--runs", "3", "fresh"])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let read = |name: &str| std::fs::read_to_string(scratch.path().join(name)).unwrap();
    let results: serde_json::Value = serde_json::from_str(&read("results.json")).unwrap();
    // Each is followed by one of runs in a row.
    for (table, condition) in [(0, "idle"), (2, "every core busy")] {
        let found = &results["sections"][0]["tables"][table];
        assert_eq!(found["title"], condition);
        for row in found["rows"].as_array().unwrap() {
            // Those that take long, as on a busy machine, run less often.
            assert!(row["summary"]["runs"].as_u64().is_some_and(|runs| (2..=3).contains(&runs)), "{row}");
        }
    }
    assert_eq!(results["verdicts"].as_array().unwrap().len(), 2);
    assert!(read("RESULTS.md").contains("a fresh jail through the library, against plain spawn, p50 | ≤ 2 × |"));
}

#[test]
fn what_is_no_measure_is_refused() {
    let run = Command::new(env!("CARGO_BIN_EXE_stockade-bench"))
        .args(["--stockade", "/bin/true", "--repository", "/", "--scratch", "/", "--quick", "warmth"])
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&run.stderr).contains("unknown measure or flag `warmth`"));
}
