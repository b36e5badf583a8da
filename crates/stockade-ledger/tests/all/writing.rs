//! Appending: order, outcomes, many writers, durability, keys, interrupted calls.

use std::num::NonZeroU64;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use stockade_ledger::receipt::{Kind, ReceiptId};
use stockade_ledger::redact::Redactor;
use stockade_ledger::{Clock, Durability, Ledger, LedgerError, Options, Order, Reader, Weight};
use stockade_verify::export;

use crate::support::{exported, intent, open, outcome, verified, write_calls};

const NONE: fn() -> Redactor = Redactor::none;

#[test]
fn receipts_are_numbered_linked_and_readable() {
    let root = tempfile::tempdir().unwrap();
    let ledger = open(root.path());
    write_calls(&ledger, 3);
    let entries = ledger.reader().unwrap().from(0, 100).unwrap();
    let receipts: Vec<_> = entries.iter().map(|entry| entry.receipt().unwrap()).collect();
    assert_eq!(receipts.iter().map(|receipt| receipt.seq).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(receipts[0].content.receipt_id, receipts[1].content.receipt_id, "the records of a call share its id");
    assert_eq!((receipts[0].content.kind, receipts[1].content.kind), (Kind::Intent, Kind::Outcome));
    ledger.close().unwrap();
    assert_eq!(verified(root.path()), 6);
}

#[test]
fn an_outcome_needs_an_open_intent() {
    let root = tempfile::tempdir().unwrap();
    let ledger = open(root.path());
    let begun = intent(1);
    assert!(matches!(ledger.append(&outcome(&begun, 1), Weight::Read, &NONE()), Err(LedgerError::NoIntent(_))));
    ledger.append(&begun, Weight::Read, &NONE()).unwrap();
    assert!(ledger.append(&begun, Weight::Read, &NONE()).is_err(), "the same intent twice");
    ledger.append(&outcome(&begun, 1), Weight::Read, &NONE()).unwrap();
    assert!(matches!(ledger.append(&outcome(&begun, 1), Weight::Read, &NONE()), Err(LedgerError::NoIntent(_))));
    assert_eq!(verified(root.path()), 2);
}

#[test]
fn a_hundred_writers_lose_nothing() {
    let root = tempfile::tempdir().unwrap();
    // Each has a connection of its own, as processes have; they begin the ledger together.
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| write_calls(&open(root.path()), 3));
        }
    });
    assert_eq!(verified(root.path()), 600);
    // And once more through one handle, where they are written together.
    let ledger = Ledger::open(root.path(), Options { durability: Durability::Always, ..Options::default() }).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| write_calls(&ledger, 1));
        }
    });
    assert_eq!(verified(root.path()), 800);
}

#[test]
fn a_ledger_is_begun_by_many_at_once() {
    const MANY: usize = 8;
    for _ in 0..100 {
        let root = tempfile::tempdir().unwrap();
        let start = std::sync::Barrier::new(MANY);
        std::thread::scope(|scope| {
            for _ in 0..MANY {
                scope.spawn(|| {
                    start.wait();
                    write_calls(&open(root.path()), 1);
                });
            }
        });
        assert_eq!(verified(root.path()), 2 * MANY as u64);
    }
}

#[test]
fn an_intent_whose_owner_is_gone_is_closed_as_interrupted() {
    let root = tempfile::tempdir().unwrap();
    let first = open(root.path());
    let (lost, kept) = (intent(1), intent(2));
    first.append(&lost, Weight::Effect, &NONE()).unwrap();
    let second = open(root.path());
    second.append(&kept, Weight::Effect, &NONE()).unwrap();
    assert_eq!(second.reader().unwrap().size().unwrap(), 2, "a living owner's intent stays open");
    drop(first);
    drop(open(root.path()));
    let records = second.reader().unwrap().show(&lost.receipt_id).unwrap();
    let closing = records[1].receipt().unwrap().content;
    assert!(closing.result.unwrap().interrupted && closing.kind == Kind::Outcome && closing.argv == lost.argv);
    second.append(&outcome(&kept, 2), Weight::Effect, &NONE()).unwrap();
    assert_eq!(verified(root.path()), 4);
}

#[test]
fn secrets_are_taken_out_before_anything_is_stored() {
    let root = tempfile::tempdir().unwrap();
    let ledger = open(root.path());
    let redactor = Redactor::new([("TOKEN", b"tok-0123456789abcdef".as_slice())]).unwrap();
    let mut begun = intent(1);
    begun.argv = Some(vec!["curl".into(), "-H".into(), "Authorization: tok-0123456789abcdef".into()]);
    ledger.append(&begun, Weight::Effect, &redactor).unwrap();
    ledger.close().unwrap();
    for entry in std::fs::read_dir(root.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            assert!(!bytes.windows(20).any(|window| window == b"tok-0123456789abcdef"), "{}", path.display());
        }
    }
    let receipt = Reader::open(root.path()).unwrap().from(0, 1).unwrap()[0].receipt().unwrap();
    assert_eq!(receipt.content.argv.unwrap()[2], "Authorization: [redacted:TOKEN]");
    assert_eq!((receipt.content.redactions[0].secret.as_str(), receipt.content.redactions[0].count), ("TOKEN", 1));
}

#[test]
fn a_clock_that_goes_backwards_breaks_nothing() {
    let root = tempfile::tempdir().unwrap();
    let seconds = Arc::new(AtomicI64::new(2_000_000_000));
    let clock = Clock(Arc::new({
        let seconds = Arc::clone(&seconds);
        move || jiff::Timestamp::from_second(seconds.fetch_sub(60, Ordering::Relaxed)).unwrap()
    }));
    let ledger = Ledger::open(root.path(), Options { clock, ..Options::default() }).unwrap();
    write_calls(&ledger, 400);
    assert_eq!(verified(root.path()), 800);
    let until = jiff::Timestamp::from_second(2_000_000_000 - 60 * 700).unwrap();
    let filter = stockade_ledger::query::Filter { until: Some(until), ..Default::default() };
    let found = ledger.reader().unwrap().list(&filter, stockade_ledger::query::Page { before: None, most: 1000 }).unwrap();
    assert_eq!(found.len(), 99, "the last 99 were written at the earliest times");
}

#[test]
fn keys_change_and_either_key_vouches_for_the_other() {
    let root = tempfile::tempdir().unwrap();
    let ledger = open(root.path());
    let other_process = open(root.path());
    let first = ledger.public_key();
    write_calls(&ledger, 2);
    let second = ledger.rotate_key().unwrap();
    write_calls(&other_process, 2);
    let third = other_process.rotate_key().unwrap();
    write_calls(&ledger, 2);
    assert_eq!(ledger.public_key(), third);
    let bytes = exported(&ledger);
    for key in [&first, &second, &third] {
        let summary = export::check(bytes.as_slice(), std::slice::from_ref(key)).unwrap();
        assert_eq!((summary.count, summary.key_id.as_str()), (14, third.id()));
    }
    drop((ledger, other_process));
    let private = std::fs::read_dir(root.path()).unwrap().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name().into_string().unwrap();
        name.starts_with("key") && name != "key.pub.pem"
    });
    assert_eq!(private.count(), 1, "old private keys are gone");
    assert_eq!(verified(root.path()), 14);
}

#[test]
fn a_change_of_keys_that_was_cut_short_is_finished() {
    let root = tempfile::tempdir().unwrap();
    let ledger = open(root.path());
    write_calls(&ledger, 1);
    let old = std::fs::read(root.path().join("key.pem")).unwrap();
    let new = ledger.rotate_key().unwrap();
    drop(ledger);
    // As if the process had died between the transaction and the rename.
    std::fs::rename(root.path().join("key.pem"), root.path().join("key.next.pem")).unwrap();
    std::fs::write(root.path().join("key.pem"), old).unwrap();
    std::fs::set_permissions(root.path().join("key.pem"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let ledger = open(root.path());
    assert_eq!(ledger.public_key(), new);
    write_calls(&ledger, 1);
    assert!(!root.path().join("key.next.pem").exists());
    assert_eq!(verified(root.path()), 5);
}

#[test]
fn checkpoints_are_signed_regularly_and_compared() {
    let root = tempfile::tempdir().unwrap();
    let options = Options { checkpoint_every: NonZeroU64::new(10).unwrap(), ..Options::default() };
    let ledger = Ledger::open(root.path(), options).unwrap();
    write_calls(&ledger, 24);
    ledger.close().unwrap();
    let reader = Reader::open(root.path()).unwrap();
    let verified = stockade_ledger::verify::verify(&reader, &[reader.local_key().unwrap()], None).unwrap();
    assert_eq!((verified.size, verified.checkpoints), (48, 5), "at 10, 20, 30, 40, and at the close");
}

#[test]
fn a_proof_of_one_call_holds_by_itself() {
    let root = tempfile::tempdir().unwrap();
    let ledger = open(root.path());
    write_calls(&ledger, 300);
    let begun = intent(7);
    ledger.append(&begun, Weight::Read, &NONE()).unwrap();
    write_calls(&ledger, 5);
    let mut bytes = Vec::new();
    assert_eq!(stockade_ledger::export::prove(&ledger, &begun.receipt_id, &mut bytes).unwrap(), 1);
    let summary = export::check(bytes.as_slice(), &[ledger.public_key()]).unwrap();
    assert_eq!((summary.count, summary.size, summary.extent), (1, 611, export::Extent::Some));
    assert!(matches!(stockade_ledger::export::prove(&ledger, &ReceiptId::new(), &mut Vec::new()), Err(LedgerError::NoReceipt(_))));
}

#[test]
fn what_is_put_off_is_done_by_whoever_tidies() {
    let root = tempfile::tempdir().unwrap();
    let log = root.path().join("ledger.db-wal");
    for _ in 0..2 {
        let ledger = Ledger::open(root.path(), Options { order: Order::Later, ..Options::default() }).unwrap();
        write_calls(&ledger, 150);
    }
    let indexed = || {
        let connection = rusqlite::Connection::open(root.path().join("ledger.db")).unwrap();
        // Whoever closes last empties the log otherwise, and it is the log that is looked at.
        connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
        connection.query_row("SELECT indexed FROM head", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(indexed(), 0, "nobody indexed");
    assert!(log.metadata().unwrap().len() > 1 << 20, "nobody emptied the log");
    std::fs::write(root.path().join("owners/0a1b"), "").unwrap();
    let old = std::time::SystemTime::now() - std::time::Duration::from_mins(10);
    std::fs::File::options().write(true).open(root.path().join("owners/0a1b")).unwrap().set_modified(old).unwrap();
    // One at a time.
    let other = std::fs::File::create(root.path().join("tidying")).unwrap();
    rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).unwrap();
    Ledger::tidy(root.path()).unwrap();
    assert_eq!(indexed(), 0, "another is at it");
    drop(other);
    Ledger::tidy(root.path()).unwrap();
    assert_eq!((indexed(), log.metadata().unwrap().len()), (600, 0));
    assert!(!root.path().join("owners/0a1b").exists(), "what a dead owner left is gone");
    assert_eq!(verified(root.path()), 600);
    // Nothing is due any more, and somebody who reads holds nobody up.
    Ledger::tidy(root.path()).unwrap();
    let ledger = Ledger::open(root.path(), Options { order: Order::Later, ..Options::default() }).unwrap();
    let reader = rusqlite::Connection::open(root.path().join("ledger.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM receipts").unwrap();
    write_calls(&ledger, 50);
    Ledger::tidy(root.path()).unwrap();
    assert!(log.metadata().unwrap().len() > 0, "it is left as it is");
    write_calls(&ledger, 1);
    drop(reader);
    assert_eq!(verified(root.path()), 702);
}
