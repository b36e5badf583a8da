//! Secrets are taken out of everything before it is stored or hashed: of every string of a receipt, and of payloads.
//!
//! Who knows the values is somebody else's affair: a [`Redactor`] that has them, or a process that keeps them to itself and is asked.

use serde_json::{Map, Value};
pub use stockade_core::redact::{Counts, MIN_SECRET, Redaction, Redactor};

use crate::error::LedgerError;

/// Takes secrets out of what is about to be stored. An error means that nothing is stored.
pub trait Redact {
    /// Whether there is nothing to look for.
    fn is_none(&self) -> bool;

    /// Each piece without its secrets; `None` for one that had none.
    fn pieces(&self, pieces: &[&[u8]], counts: &mut Counts) -> Result<Vec<Option<Vec<u8>>>, LedgerError>;
}

impl Redact for Redactor {
    fn is_none(&self) -> bool {
        Self::is_none(self)
    }

    fn pieces(&self, pieces: &[&[u8]], counts: &mut Counts) -> Result<Vec<Option<Vec<u8>>>, LedgerError> {
        Ok(pieces.iter().map(|piece| self.bytes(piece, counts)).collect())
    }
}

/// The bytes without their secrets; `None` where there were none.
pub(crate) fn bytes(redactor: &dyn Redact, bytes: &[u8], counts: &mut Counts) -> Result<Option<Vec<u8>>, LedgerError> {
    if redactor.is_none() {
        return Ok(None);
    }
    Ok(redactor.pieces(&[bytes], counts)?.pop().flatten())
}

/// Takes secrets out of every string and name in the members of a receipt, but for those of `own`, which are ours.
pub(crate) fn members(
    redactor: &dyn Redact,
    object: &mut Map<String, Value>,
    own: &[&str],
    counts: &mut Counts,
) -> Result<(), LedgerError> {
    if redactor.is_none() {
        return Ok(());
    }
    let mut found = Vec::new();
    for (_, member) in object.iter().filter(|(name, _)| !own.contains(&name.as_str())) {
        gather(member, &mut found);
    }
    let mut clean = redactor.pieces(&found, counts)?.into_iter();
    for (_, member) in object.iter_mut().filter(|(name, _)| !own.contains(&name.as_str())) {
        put_back(member, &mut clean);
    }
    Ok(())
}

/// Every string and name of a value, in the order in which [`put_back`] takes them.
fn gather<'a>(value: &'a Value, found: &mut Vec<&'a [u8]>) {
    match value {
        Value::String(text) => found.push(text.as_bytes()),
        Value::Array(items) => items.iter().for_each(|item| gather(item, found)),
        Value::Object(object) => {
            for (name, inner) in object {
                found.push(name.as_bytes());
                gather(inner, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn put_back(value: &mut Value, clean: &mut impl Iterator<Item = Option<Vec<u8>>>) {
    match value {
        Value::String(text) => {
            if let Some(bytes) = clean.next().flatten() {
                *text = to_text(bytes);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| put_back(item, clean)),
        Value::Object(object) => {
            for (name, mut inner) in std::mem::take(object) {
                let name = clean.next().flatten().map_or(name, to_text);
                put_back(&mut inner, clean);
                object.insert(name, inner);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Every form of a value is ASCII or the whole value, so what is left is still UTF-8 unless a value was not.
fn to_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_strings_of_a_value_are_cleaned_and_counted() {
        const VALUE: &str = "s3cr3t/value+with=signs&more";
        let redactor = Redactor::new([("TOKEN", VALUE.as_bytes())]).unwrap();
        let mut value = serde_json::json!({
            "argv": ["curl", format!("-H{VALUE}{VALUE}")],
            "more": {VALUE: {"n": 7, "deep": [VALUE]}},
            "receipt_id": VALUE,
        });
        let mut counts = Counts::default();
        members(&redactor, value.as_object_mut().unwrap(), &["receipt_id"], &mut counts).unwrap();
        let clean = serde_json::json!({
            "argv": ["curl", "-H[redacted:TOKEN][redacted:TOKEN]"],
            "more": {"[redacted:TOKEN]": {"n": 7, "deep": ["[redacted:TOKEN]"]}},
            "receipt_id": VALUE,
        });
        assert_eq!(value, clean);
        assert_eq!(counts.to_redactions(), [Redaction { secret: "TOKEN".into(), count: 4 }]);
    }
}
