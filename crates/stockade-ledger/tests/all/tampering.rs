//! Whatever is done to an export, or to a ledger where it lies, is noticed, and the right record is named.

use std::path::Path;

use stockade_ledger::witness::{FileWitness, Witness};
use stockade_ledger::{LedgerError, Options, Reader, verify};
use stockade_verify::export::{Checker, check, in_parallel};
use stockade_verify::flaw::{Broken, Flaw, Place};
use stockade_verify::key::PublicKey;

use crate::support::{exported, open, verified, write_calls};

/// An export of 200 receipts, and its key.
fn sample() -> (tempfile::TempDir, Vec<u8>, PublicKey) {
    let root = tempfile::tempdir().unwrap();
    let ledger = open(root.path());
    write_calls(&ledger, 100);
    let (bytes, key) = (exported(&ledger), ledger.public_key());
    assert_eq!(check(bytes.as_slice(), std::slice::from_ref(&key)).unwrap().count, 200);
    (root, bytes, key)
}

fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

fn broken(lines: &[Vec<u8>], key: &PublicKey) -> Broken {
    match check(lines.concat().as_slice(), std::slice::from_ref(key)) {
        Err(stockade_verify::export::CheckError::Broken(broken)) => broken,
        other => panic!("not noticed: {other:?}"),
    }
}

/// The receipt that a line of a full export has; the header and the closing line have none.
fn is_at(place: &Place, line: usize, many: usize) -> bool {
    match place {
        Place::Header => line == 0,
        Place::Closing => line == many - 1,
        Place::Record { seq, .. } => line > 0 && line < many - 1 && *seq == Some(line as u64 - 1),
    }
}

#[test]
fn a_flipped_bit_at_any_place_is_noticed_and_its_record_named() {
    let (_root, bytes, key) = sample();
    let lines = lines(&bytes);
    let mut checker = Checker::new(std::slice::from_ref(&key));
    let mut before = Vec::new();
    for line in &lines {
        before.push(checker.clone());
        checker.line(line).unwrap();
    }
    checker.finish().unwrap();
    let numbers: Vec<usize> = (0..lines.len()).collect();
    // A change of one line shows at that line, so what comes before it need not be read again for each of its bytes.
    let tried = in_parallel(&numbers, |number| {
        for position in 0..lines[*number].len() {
            let mut text = lines[*number].clone();
            text[position] ^= 1 << (position % 8);
            text.extend(lines.get(number + 1).into_iter().flatten());
            let changed = text.split_inclusive(|byte| *byte == b'\n').next().unwrap();
            match before[*number].clone().line(changed) {
                Err(broken) => assert!(is_at(&broken.place, *number, lines.len()), "line {number}, byte {position}: {broken}"),
                Ok(()) => panic!("line {number}, byte {position} can be changed"),
            }
        }
        lines[*number].len()
    });
    assert_eq!(tried.iter().sum::<usize>(), bytes.len(), "every byte of the export was tried");
}

#[test]
fn dropped_repeated_and_exchanged_receipts_are_noticed() {
    let (_root, bytes, key) = sample();
    let whole = lines(&bytes);
    for at in [1, 2, 77, 199, 200] {
        let mut dropped = whole.clone();
        dropped.remove(at);
        let seq = at as u64 - 1;
        let found = broken(&dropped, &key);
        // After the last receipt comes the closing line, which misses one.
        let expected = if at == 200 { Flaw::Count { found: 199, signed: 200 } } else { Flaw::Sequence { expected: seq, found: seq + 1 } };
        assert_eq!(found.flaw, expected, "{at}");

        let mut repeated = whole.clone();
        repeated.insert(at, whole[at].clone());
        assert_eq!(broken(&repeated, &key).flaw, Flaw::Sequence { expected: seq + 1, found: seq }, "{at}");

        if at < 200 {
            let mut exchanged = whole.clone();
            exchanged.swap(at, at + 1);
            assert_eq!(broken(&exchanged, &key).flaw, Flaw::Sequence { expected: seq, found: seq + 1 }, "{at}");
        }
    }
    let mut without_header = whole.clone();
    without_header.remove(0);
    assert_eq!(broken(&without_header, &key).place, Place::Header);
    let mut doubled = whole.clone();
    doubled.push(whole.last().unwrap().clone());
    assert_eq!(broken(&doubled, &key), Broken { place: Place::Closing, flaw: Flaw::Trailing });
}

#[test]
fn an_export_cut_anywhere_is_noticed() {
    let (_root, bytes, key) = sample();
    let mut checker = Checker::new(std::slice::from_ref(&key));
    for line in lines(&bytes) {
        assert!(checker.clone().finish().is_err(), "cut between lines");
        for end in 1..line.len() {
            let mut cut = checker.clone();
            assert!(cut.line(&line[..end]).is_err(), "cut within a line");
        }
        checker.line(&line).unwrap();
    }
}

#[test]
fn receipts_of_another_ledger_or_another_key_are_noticed() {
    let (_root, bytes, key) = sample();
    let (_other_root, other_bytes, other_key) = sample();
    let (mine, theirs) = (lines(&bytes), lines(&other_bytes));
    let mut spliced = mine.clone();
    spliced[50] = theirs[50].clone();
    let found = broken(&spliced, &key);
    assert!(is_at(&found.place, 50, mine.len()) && matches!(found.flaw, Flaw::WrongKey(_)), "{found}");
    let mut tail = mine[..100].to_vec();
    tail.extend_from_slice(&theirs[100..]);
    assert!(is_at(&broken(&tail, &key).place, 100, mine.len()));
    // Signed anew as a whole: everything in it holds, but not with the key that is trusted.
    assert_eq!(broken(&theirs, &key), Broken { place: Place::Header, flaw: Flaw::UnknownKey });
    assert_eq!(check(other_bytes.as_slice(), &[key.clone(), other_key]).unwrap().count, 200, "one of several trusted keys is enough");
    let mut header = mine.clone();
    header[0] = theirs[0].clone();
    assert_eq!(broken(&header, &key), Broken { place: Place::Header, flaw: Flaw::UnknownKey });
}

/// Changes the database of a closed ledger behind its back.
fn change(directory: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(directory.join("ledger.db")).unwrap();
    connection.execute_batch(sql).unwrap();
}

fn verify_error(directory: &Path) -> LedgerError {
    let reader = Reader::open(directory).unwrap();
    let key = reader.local_key().unwrap();
    verify::verify(&reader, &[key], None).unwrap_err()
}

/// Whether an error, and the receipt it names, is the expected one.
type Check = fn(&LedgerError, Option<u64>) -> bool;

#[test]
fn a_database_changed_behind_its_back_is_noticed() {
    let named = |error: &LedgerError| match error {
        LedgerError::Broken(broken) => match &broken.place {
            Place::Record { seq, .. } => *seq,
            _ => None,
        },
        _ => None,
    };
    let cases: [(&str, Check); 9] = [
        ("UPDATE receipts SET body = CAST(replace(CAST(body AS TEXT), 'ada', 'bob') AS BLOB) WHERE seq = 300", |_, seq| seq == Some(300)),
        ("DELETE FROM receipts WHERE seq = 300", |_, seq| seq == Some(301)),
        ("DELETE FROM receipts WHERE seq >= 1300", |_, seq| seq == Some(1300)),
        ("UPDATE facts SET agent = 'nobody' WHERE seq = 10", |error, _| matches!(error, LedgerError::BadIndex(10))),
        ("DELETE FROM fact_hosts WHERE seq = 1", |error, _| matches!(error, LedgerError::BadIndex(1))),
        ("UPDATE blocks SET root = zeroblob(32) WHERE number = 2", |error, _| matches!(error, LedgerError::Damaged { .. })),
        ("UPDATE head SET digest = zeroblob(32)", |error, _| matches!(error, LedgerError::Damaged { .. })),
        ("UPDATE checkpoints SET note = replace(note, '1024', '1023')", |_, seq| seq == Some(1023)),
        ("UPDATE receipts SET seq = -1 WHERE seq = 0", |_, seq| seq == Some(1)),
    ];
    let root = tempfile::tempdir().unwrap();
    let ledger = open(root.path());
    write_calls(&ledger, 700);
    drop(ledger);
    assert_eq!(verified(root.path()), 1400);
    for (sql, is_expected) in cases {
        let copy = tempfile::tempdir().unwrap();
        copy_ledger(root.path(), copy.path());
        change(copy.path(), sql);
        let error = verify_error(copy.path());
        assert!(is_expected(&error, named(&error)), "{sql}: {error:?}");
    }
}

fn copy_ledger(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn only_the_witness_notices_a_ledger_that_was_rolled_back() {
    let (root, day_before, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let witness = Witness::File(FileWitness::new(elsewhere.path()));
    let options = || Options { witness: Some(witness.clone()), ..Options::default() };
    let ledger = stockade_ledger::Ledger::open(root.path(), options()).unwrap();
    write_calls(&ledger, 10);
    ledger.close().unwrap();
    copy_ledger(root.path(), day_before.path());
    let ledger = stockade_ledger::Ledger::open(root.path(), options()).unwrap();
    write_calls(&ledger, 300);
    ledger.checkpoint().unwrap();
    let (name, key) = FileWitness::new(elsewhere.path()).identity().unwrap();
    let summary = check(exported(&ledger).as_slice(), &[ledger.public_key()]).unwrap();
    assert!(stockade_verify::note::Note::parse(&summary.note).unwrap().cosigned_by(&name, &key).is_ok(), "an export shows the witness");
    let check_with = |directory: &Path| {
        let reader = Reader::open(directory).unwrap();
        let key = reader.local_key().unwrap();
        verify::verify(&reader, &[key], Some(&witness))
    };
    assert_eq!(check_with(root.path()).unwrap().witnessed, Some(620));
    drop(ledger);

    // Yesterday's directory holds by itself, and against the key; the witness has seen more.
    assert_eq!(verified(day_before.path()), 20);
    assert!(matches!(check_with(day_before.path()), Err(LedgerError::RolledBack { seen: 620, found: 20 })));
    // Written on, it is as long as before, but it is not the same.
    let ledger = stockade_ledger::Ledger::open(day_before.path(), options()).unwrap();
    write_calls(&ledger, 310);
    assert_eq!(verified(day_before.path()), 640);
    assert!(matches!(check_with(day_before.path()), Err(LedgerError::Rewritten(620))));
    assert!(matches!(ledger.checkpoint(), Err(LedgerError::Rewritten(620))), "and the witness does not sign it");
    assert!(matches!(ledger.witness_status(), Err(LedgerError::Rewritten(620))));
}
