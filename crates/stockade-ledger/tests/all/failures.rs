//! Disks that are full, directories that cannot be written, files that are damaged: an error with a hint each time, and nothing half-written.

use std::process::Command;

use stockade_ledger::redact::Redactor;
use stockade_ledger::{Durability, Ledger, LedgerError, Options, Problem, Weight};

use crate::killing::{given_directory, inner_half};
use crate::support::{intent, open, verified, write_calls};

/// A small disk of its own, in a mount name space of its own: full first, then read-only.
#[test]
fn a_full_or_read_only_disk_refuses_and_recovers() {
    let root = tempfile::tempdir().unwrap();
    let inner = |name: &str| {
        let command = inner_half(["--ignored", "--exact", name], &root.path().join("ledger"));
        let words: Vec<String> = command.get_args().map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        format!("'{}' {}", command.get_program().to_str().unwrap(), words.join(" "))
    };
    let directory = root.path().to_str().unwrap();
    let script = format!(
        "set -e; mount -t tmpfs -o size=1500k none '{directory}'; {}; mount -o remount,ro '{directory}'; {}",
        inner("failures::fills_the_disk"),
        inner("failures::finds_a_read_only_disk"),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).env("STOCKADE_LEDGER_TEST_DIRECTORY", root.path().join("ledger"));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.matches("1 passed").count() == 2, "{said}");
}

#[test]
#[ignore = "started by another test, on a small disk"]
fn fills_the_disk() {
    let directory = given_directory();
    let filler = directory.parent().unwrap().join("filler");
    let ledger = Ledger::open(&directory, Options { durability: Durability::Always, ..Options::default() }).unwrap();
    std::fs::write(&filler, vec![7; 400 << 10]).unwrap();
    let mut draft = intent(1);
    draft.argv = Some(vec!["x".repeat(2000)]);
    let mut written = 0;
    let error = loop {
        draft.receipt_id = stockade_ledger::receipt::ReceiptId::new();
        match ledger.append(&draft, Weight::Effect, &Redactor::none()) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 10_000, "the disk never filled");
    };
    assert!(matches!(&error, LedgerError::Database { problem: Problem::Full | Problem::Disk(_), .. }), "{error:?}");
    assert!(
        error.hint().unwrap().contains("room") || matches!(error, LedgerError::Database { problem: Problem::Disk(_), .. }),
        "{error:?}"
    );
    assert_eq!(ledger.reader().unwrap().size().unwrap(), written, "what was answered is there, what was refused is not");
    std::fs::remove_file(&filler).unwrap();
    draft.receipt_id = stockade_ledger::receipt::ReceiptId::new();
    ledger.append(&draft, Weight::Effect, &Redactor::none()).unwrap();
    assert_eq!(verified(&directory), written + 1);
}

#[test]
#[ignore = "started by another test, on a read-only disk"]
fn finds_a_read_only_disk() {
    let error =
        Ledger::open(&given_directory(), Options::default()).and_then(|ledger| ledger.append(&intent(1), Weight::Read, &Redactor::none()));
    let error = error.unwrap_err();
    assert!(error.hint().is_some_and(|hint| hint.contains("writable")), "{error:?}");
}

#[test]
fn damaged_and_foreign_files_are_refused_with_a_hint() {
    let root = tempfile::tempdir().unwrap();
    drop(open(root.path()));
    let file = root.path().join("ledger.db");
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(root.path().join(format!("ledger.db{suffix}")));
    }
    std::fs::write(&file, b"this is not a ledger but it is long enough to be looked at as one, more or less, if one tries".repeat(60))
        .unwrap();
    let error = Ledger::open(root.path(), Options::default()).unwrap_err();
    assert!(
        matches!(error, LedgerError::Database { problem: Problem::NotALedger, .. }) && error.hint().unwrap().contains("begin a new ledger")
    );

    let root = tempfile::tempdir().unwrap();
    drop(open(root.path()));
    rusqlite::Connection::open(root.path().join("ledger.db")).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(Ledger::open(root.path(), Options::default()), Err(LedgerError::Newer { version: 99, .. })));

    let root = tempfile::tempdir().unwrap();
    drop(open(root.path()));
    std::fs::remove_file(root.path().join("key.pem")).unwrap();
    assert!(matches!(Ledger::open(root.path(), Options::default()), Err(LedgerError::NoKey(_))), "a ledger never gets a new key by itself");
    let other = tempfile::tempdir().unwrap();
    drop(open(other.path()));
    std::fs::copy(other.path().join("key.pem"), root.path().join("key.pem")).unwrap();
    assert!(matches!(Ledger::open(root.path(), Options::default()), Err(LedgerError::OtherKey(_))));
}

#[test]
fn a_ledger_that_is_held_is_waited_for() {
    let root = tempfile::tempdir().unwrap();
    let ledger = open(root.path());
    let connection = rusqlite::Connection::open(root.path().join("ledger.db")).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_calls(&ledger, 1));
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!writer.is_finished(), "nothing is answered while another holds the ledger");
        connection.execute_batch("ROLLBACK").unwrap();
        writer.join().unwrap();
    });
    assert_eq!(verified(root.path()), 2);
}
