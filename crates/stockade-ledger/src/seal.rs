//! From a draft to the bytes of a receipt: redacted, canonical, linked to the one before, signed.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use stockade_verify::canonical::{canonical, write_string};
use stockade_verify::merkle::Hash;
use stockade_verify::record::{MAX_RECEIPT, signed_bytes};
use stockade_verify::text::{to_base64, to_hex};

use crate::error::LedgerError;
use crate::receipt::{Draft, Kind};
use crate::redact::{Counts, Redactor};
use crate::signing::LedgerKey;

/// Room for what the ledger adds to a draft.
const OWN_FIELDS: usize = 1024;
/// How often lists are halved before a receipt is given up.
const MOST_CUTS: usize = 64;
/// Lists that may be cut where a receipt would be too large, and what is said of it. Longest first does most.
const LISTS: [&str; 3] = ["changes", "network", "violations"];

/// A draft with everything done that can be done before its place in the ledger is known.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub(crate) receipt_id: String,
    pub(crate) kind: Kind,
    /// Canonical JSON of each member. Names are ASCII, so their order is that of canonical JSON.
    members: BTreeMap<String, String>,
}

/// Where a receipt comes to stand.
pub(crate) struct Place<'a> {
    pub(crate) seq: u64,
    pub(crate) time: &'a str,
    pub(crate) prev: &'a Hash,
    pub(crate) origin: &'a str,
}

impl Pending {
    /// Takes a draft, less its secrets. An outcome that is too large loses entries of its lists, and says so: it must be written.
    pub(crate) fn new(draft: &Draft, redactor: &Redactor) -> Result<Self, LedgerError> {
        let value = serde_json::to_value(draft).map_err(|error| LedgerError::Content(error.to_string()))?;
        let Value::Object(mut object) = value else { return Err(LedgerError::Content("it is not an object".to_owned())) };
        let mut counts = Counts::default();
        for (name, member) in &mut object {
            // Ids and kinds are ours; a secret that looked like one would only break the receipt.
            if name != "receipt_id" && name != "kind" {
                redactor.value(member, &mut counts);
            }
        }
        counts.add(&draft.redactions);
        let redactions = counts.to_redactions();
        if !redactions.is_empty() {
            let redactions = serde_json::to_value(redactions).map_err(|error| LedgerError::Content(error.to_string()))?;
            object.insert("redactions".to_owned(), redactions);
        }
        Self::from_object(&object, draft.receipt_id.to_string(), draft.kind)
    }

    /// Takes members as they are, which are free of secrets.
    pub(crate) fn from_object(object: &Map<String, Value>, receipt_id: String, kind: Kind) -> Result<Self, LedgerError> {
        let mut object = std::borrow::Cow::Borrowed(object);
        let mut size = 0;
        for _ in 0..MOST_CUTS {
            let render = |(name, value): (&String, &Value)| canonical(value).map(|text| (name.clone(), text));
            let members: BTreeMap<String, String> =
                object.iter().map(render).collect::<Result<_, _>>().map_err(|error| LedgerError::Content(error.to_string()))?;
            size = OWN_FIELDS + members.iter().map(|(name, value)| name.len() + value.len() + 4).sum::<usize>();
            if size <= MAX_RECEIPT {
                return Ok(Self { receipt_id, kind, members });
            }
            // What was not yet run is refused; what ran must leave a receipt.
            if !matches!(kind, Kind::Outcome | Kind::Network) || !cut_longest(object.to_mut()) {
                break;
            }
        }
        Err(LedgerError::TooLarge(size))
    }

    /// The bytes of the receipt.
    pub(crate) fn seal(&self, place: &Place<'_>, key: &LedgerKey) -> Vec<u8> {
        let text = |text: &str| {
            let mut out = String::with_capacity(text.len() + 2);
            write_string(&mut out, text);
            out
        };
        let mut members: BTreeMap<&str, std::borrow::Cow<'_, str>> =
            self.members.iter().map(|(name, value)| (name.as_str(), value.as_str().into())).collect();
        members.insert("seq", place.seq.to_string().into());
        members.insert("time", text(place.time).into());
        members.insert("prev", text(&to_hex(place.prev)).into());
        members.insert("key_id", text(key.public().id()).into());
        let signature = key.sign(&signed_bytes(place.origin, &render(&members)));
        members.insert("signature", text(&to_base64(&signature)).into());
        render(&members).into_bytes()
    }
}

fn render(members: &BTreeMap<&str, std::borrow::Cow<'_, str>>) -> String {
    let mut out = String::with_capacity(members.iter().map(|(name, value)| name.len() + value.len() + 4).sum::<usize>() + 2);
    let mut separator = '{';
    for (name, value) in members {
        out.push(separator);
        write_string(&mut out, name);
        out.push(':');
        out.push_str(value);
        separator = ',';
    }
    out.push('}');
    out
}

/// Halves the list with the most entries and says how many are gone; false where no list has any.
fn cut_longest(object: &mut Map<String, Value>) -> bool {
    let length = |object: &Map<String, Value>, name: &str| object.get(name).and_then(Value::as_array).map_or(0, Vec::len);
    let Some(name) = LISTS.into_iter().max_by_key(|name| length(object, name)).filter(|name| length(object, name) > 1) else {
        return false;
    };
    let Some(items) = object.get_mut(name).and_then(Value::as_array_mut) else { return false };
    let before = items.len();
    items.truncate(before / 2);
    let note = Value::String(format!("receipt-truncated: {} entries of `{name}` are left out", before - before / 2));
    match object.entry("violations").or_insert_with(|| Value::Array(Vec::new())) {
        Value::Array(violations) => violations.insert(0, note),
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receipt::ReceiptId;

    #[test]
    fn what_has_not_run_is_refused_and_what_ran_is_cut() {
        let mut draft = Draft::new(ReceiptId::new(), Kind::Intent);
        draft.argv = Some(vec!["x".repeat(MAX_RECEIPT)]);
        assert!(matches!(Pending::new(&draft, &Redactor::none()), Err(LedgerError::TooLarge(_))));
        let mut draft = Draft::new(ReceiptId::new(), Kind::Outcome);
        draft.violations = (0..200_000).map(|number| format!("violation {number}")).collect();
        let pending = Pending::new(&draft, &Redactor::none()).unwrap();
        assert!(pending.members["violations"].contains("receipt-truncated: "), "the cut is said");
    }

    #[test]
    fn redaction_is_recorded() {
        let mut draft = Draft::new(ReceiptId::new(), Kind::Intent);
        draft.argv = Some(vec!["curl".into(), "-HAuthorization: 0123456789abcdef".into()]);
        let redactor = Redactor::new([("TOKEN", b"0123456789abcdef".as_slice())]).unwrap();
        let pending = Pending::new(&draft, &redactor).unwrap();
        assert_eq!(pending.members["argv"], r#"["curl","-HAuthorization: [redacted:TOKEN]"]"#);
        assert_eq!(pending.members["redactions"], r#"[{"count":1,"secret":"TOKEN"}]"#);
    }
}
