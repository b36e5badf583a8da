//! One receipt: is it spelled, signed and formed as it must be? How it sits among the others is for whoever reads them in order.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::canonical::{canonical, canonical_without};
use crate::flaw::Flaw;
use crate::merkle::{self, Hash};
use crate::rotation::Keys;
use crate::text::{from_base64, from_hex};

/// The longest receipt, in bytes of canonical JSON.
pub const MAX_RECEIPT: usize = 1 << 20;
/// The kinds of receipts.
pub const KINDS: [&str; 8] = ["intent", "outcome", "denied", "approval", "credential", "network", "lifecycle", "checkpoint"];

/// Whose receipts are checked.
#[derive(Debug, Clone)]
pub struct Ledger {
    /// Its name, which is part of everything that is signed.
    pub origin: String,
    /// Its keys.
    pub keys: Keys,
}

/// A receipt that holds by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub seq: u64,
    /// Its id.
    pub receipt_id: String,
    /// The digest of the receipt before, as it claims.
    pub prev: Hash,
    /// Its own digest, which the next one must name.
    pub digest: Hash,
    /// Its leaf in the tree.
    pub leaf: Hash,
}

/// Checks the bytes of one receipt.
pub fn check(bytes: &[u8], ledger: &Ledger) -> Result<Record, Flaw> {
    let value: Value = serde_json::from_slice(bytes).map_err(|_| Flaw::NotJson)?;
    let text = canonical(&value).map_err(Flaw::NoCanonicalForm)?;
    if text.as_bytes() != bytes {
        return Err(Flaw::Spelling);
    }
    check_value(&value, &text, ledger)
}

/// Checks a receipt of which the canonical text is known.
pub fn check_value(value: &Value, text: &str, ledger: &Ledger) -> Result<Record, Flaw> {
    if text.len() > MAX_RECEIPT {
        return Err(Flaw::Long(MAX_RECEIPT));
    }
    let object = value.as_object().ok_or(Flaw::Member("receipt"))?;
    let seq = object.get("seq").and_then(Value::as_u64).ok_or(Flaw::Member("seq"))?;
    let receipt_id = member(object, "receipt_id")?;
    let prev = from_hex(member(object, "prev")?).ok_or(Flaw::Member("prev"))?;
    let kind = member(object, "kind")?;
    member(object, "time")?;
    if !KINDS.contains(&kind) {
        return Err(Flaw::Member("kind"));
    }
    let key_id = member(object, "key_id")?;
    // It is shown to people before any signature was looked at, so it must be what ids of keys are.
    from_hex::<8>(key_id).ok_or(Flaw::Member("key_id"))?;
    let key = ledger.keys.at(seq);
    if key.id() != key_id {
        return Err(Flaw::WrongKey(key_id.to_owned()));
    }
    let signature = from_base64(member(object, "signature")?).ok_or(Flaw::Member("signature"))?;
    let signed = canonical_without(object, "signature").map_err(Flaw::NoCanonicalForm)?;
    if !key.verifies(&signed_bytes(&ledger.origin, &signed), &signature) {
        return Err(Flaw::Signature);
    }
    let recorded = object.get("ledger").and_then(|about| about.get("rotation"));
    if recorded != ledger.keys.rotation_at(seq).map(crate::rotation::Rotation::to_value).as_ref() {
        return Err(Flaw::Rotation);
    }
    Ok(Record { seq, receipt_id: receipt_id.to_owned(), prev, digest: digest(text.as_bytes()), leaf: merkle::leaf(text.as_bytes()) })
}

/// What a receipt's signature is made over.
pub fn signed_bytes(origin: &str, without_signature: &str) -> Vec<u8> {
    let [first, last] = signed_beginning();
    [first, origin, last, without_signature].concat().into_bytes()
}

/// What stands before a receipt in the bytes that are signed, before and after the ledger's name.
pub fn signed_beginning() -> [&'static str; 2] {
    ["stockade-receipt-v1\n", "\n"]
}

/// The `prev` of the first receipt of a ledger.
pub fn first_prev(origin: &str) -> Hash {
    digest(format!("stockade-ledger-v1\n{origin}\n").as_bytes())
}

/// The digest that the next receipt has as its `prev`.
pub fn digest(receipt: &[u8]) -> Hash {
    Sha256::digest(receipt).into()
}

fn member<'a>(object: &'a Map<String, Value>, name: &'static str) -> Result<&'a str, Flaw> {
    object.get(name).and_then(Value::as_str).ok_or(Flaw::Member(name))
}
