//! Exports of receipts: any bytes are refused, but for those that the holder of the key wrote.
//!
//! The key is a real one, its private half is nowhere here; so nothing but the two exports that were written once may hold. Notes, keys and
//! canonical JSON are read from the same bytes.

use stockade_verify::canonical::canonical;
use stockade_verify::export::{CheckError, check};
use stockade_verify::key::PublicKey;
use stockade_verify::note::{Checkpoint, Note};

use crate::shown::assert_honest;

const ALL: &[u8] = include_bytes!("../../../../crates/stockade-verify/tests/data/all.jsonl");
const SOME: &[u8] = include_bytes!("../../../../crates/stockade-verify/tests/data/some.jsonl");
const KEYS: [&str; 2] = [
    include_str!("../../../../crates/stockade-verify/tests/data/first.pub.pem"),
    include_str!("../../../../crates/stockade-verify/tests/data/newest.pub.pem"),
];

/// The input is an export, a note, a key and a JSON text.
pub fn body(data: &[u8]) {
    for key in KEYS {
        let key = PublicKey::parse(key).expect("a key");
        match check(data, &[key]) {
            Ok(summary) => assert!(data == ALL || data == SOME, "nobody signed this: {summary:?}"),
            Err(CheckError::Broken(broken)) => assert_honest(&broken.to_string(), &[]),
            Err(CheckError::Read(error)) => panic!("memory can be read: {error}"),
        }
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(note) = Note::parse(text) {
        assert!(text.starts_with(note.text));
        if let Ok(checkpoint) = Checkpoint::parse(note.text) {
            assert_eq!(checkpoint.to_text(), note.text, "a checkpoint has one spelling");
        }
    }
    if let Ok(key) = PublicKey::parse(text) {
        assert_eq!(PublicKey::parse(&key.to_pem()), Ok(key));
    }
    if let Ok(value) = serde_json::from_slice::<serde_json::Value>(data)
        && let Ok(first) = canonical(&value)
    {
        let again: serde_json::Value = serde_json::from_str(&first).expect("canonical JSON is JSON");
        assert_eq!(canonical(&again).as_ref(), Ok(&first), "canonical JSON stays what it is");
    }
}

/// Real exports, their parts, and keys.
pub fn seeds() -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(ALL);
    let lines = text.split_inclusive('\n').map(|line| line.as_bytes().to_vec());
    let notes = text.lines().filter_map(|line| {
        let value: serde_json::Value = serde_json::from_str(line).ok()?;
        value.get("checkpoint")?.as_str().map(|note| note.as_bytes().to_vec())
    });
    let keys = KEYS.iter().map(|key| key.as_bytes().to_vec());
    [ALL.to_vec(), SOME.to_vec()].into_iter().chain(lines).chain(notes).chain(keys).collect()
}
