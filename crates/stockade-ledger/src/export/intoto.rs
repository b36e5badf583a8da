//! in-toto statements in DSSE envelopes: the files that a call produced, or the program it ran, or the receipt itself as the subject; the receipt as
//! the predicate. Signed with the ledger's key, so tools that check build provenance can check these.

use serde_json::{Value, json};
use stockade_verify::record::digest;
use stockade_verify::text::{to_base64, to_hex};

use super::malformed;
use crate::error::LedgerError;
use crate::ledger::Ledger;
use crate::query::Entry;

const STATEMENT: &str = "https://in-toto.io/Statement/v1";
const PREDICATE: &str = "https://stockade.dev/receipt/v1";
const PAYLOAD: &str = "application/vnd.in-toto+json";

/// A signed envelope with one statement.
pub(super) fn envelope(entry: &Entry, ledger: &Ledger) -> Result<Value, LedgerError> {
    let receipt: Value = serde_json::from_slice(&entry.body).map_err(|_| malformed(entry))?;
    let statement = json!({
        "_type": STATEMENT,
        "subject": subjects(&receipt, entry),
        "predicateType": PREDICATE,
        "predicate": receipt,
    });
    let payload = statement.to_string();
    let signed = pre_authentication(PAYLOAD, payload.as_bytes());
    let (key_id, signature) = ledger.with_writer(|writer| (writer.key.public().id().to_owned(), writer.key.sign(&signed)));
    Ok(json!({
        "payloadType": PAYLOAD,
        "payload": to_base64(payload.as_bytes()),
        "signatures": [{"keyid": key_id, "sig": to_base64(&signature)}],
    }))
}

/// What DSSE signs: type and payload, each with its length.
fn pre_authentication(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

/// What the statement is about: the files a call left, and always the receipt, since a statement without subject says nothing.
fn subjects(receipt: &Value, entry: &Entry) -> Vec<Value> {
    let files = receipt.get("changes").and_then(Value::as_array).into_iter().flatten();
    let files = files.filter_map(|file| Some(json!({"name": file.get("path")?, "digest": {"sha256": file.get("sha256")?.as_str()?}})));
    let id = receipt.get("receipt_id").and_then(Value::as_str).unwrap_or_default();
    let own = json!({"name": format!("receipt:{id}#{}", entry.seq), "digest": {"sha256": to_hex(&digest(&entry.body))}});
    files.chain([own]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signed_bytes_are_those_of_dsse() {
        // The example of the DSSE specification.
        assert_eq!(
            pre_authentication("http://example.com/HelloWorld", b"hello world"),
            b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
        );
    }
}
