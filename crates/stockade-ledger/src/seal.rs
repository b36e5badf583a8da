//! From a draft to the bytes of a receipt: redacted, canonical, linked to the one before, signed.

use serde_json::{Map, Value};
use stockade_verify::canonical::{NotCanonical, write_string, write_value};
use stockade_verify::merkle::Hash;
use stockade_verify::record::{MAX_RECEIPT, signed_beginning};
use stockade_verify::text::{to_base64, to_hex};

use crate::error::LedgerError;
use crate::receipt::{Draft, Kind};
use crate::redact::{self, Counts, Redact};
use crate::signing::LedgerKey;

/// What the ledger adds to a draft, in the order of canonical JSON.
const OWN: [&str; 5] = ["key_id", "prev", "seq", "signature", "time"];
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
    /// Canonical JSON of its members, before, between and after those of [`OWN`].
    stretches: [String; OWN.len() + 1],
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
    pub(crate) fn new(draft: &Draft, redactor: &dyn Redact) -> Result<Self, LedgerError> {
        let value = serde_json::to_value(draft).map_err(|error| LedgerError::Content(error.to_string()))?;
        let Value::Object(mut object) = value else { return Err(LedgerError::Content("it is not an object".to_owned())) };
        let mut counts = Counts::default();
        // Ids and kinds are ours; a secret that looked like one would only break the receipt.
        redact::members(redactor, &mut object, &["receipt_id", "kind"], &mut counts)?;
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
            let stretches = stretches(&object).map_err(|error| LedgerError::Content(error.to_string()))?;
            size = OWN_FIELDS + stretches.iter().map(String::len).sum::<usize>();
            if size <= MAX_RECEIPT {
                return Ok(Self { receipt_id, kind, stretches });
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
        let [before_key, before_prev, before_seq, before_signature, before_time, after] = &self.stretches;
        let [first, last] = signed_beginning();
        let length = self.stretches.iter().map(String::len).sum::<usize>() + OWN_FIELDS;
        let mut signed = String::with_capacity(length + place.origin.len());
        signed.extend([first, place.origin, last]);
        let beginning = signed.len();
        // Members that the ledger adds are plain ASCII, so nothing in them is escaped.
        signed.extend([
            "{",
            before_key,
            "\"key_id\":\"",
            key.public().id(),
            "\",",
            before_prev,
            "\"prev\":\"",
            &to_hex(place.prev),
            "\",",
            before_seq,
        ]);
        signed.extend(["\"seq\":", &place.seq.to_string(), ",", before_signature]);
        let middle = signed.len();
        signed.extend([before_time, "\"time\":\"", place.time, "\"", after, "}"]);
        let signature = to_base64(&key.sign(signed.as_bytes()));
        let mut out = Vec::with_capacity(length);
        out.extend_from_slice(signed.as_bytes().get(beginning..middle).unwrap_or_default());
        for part in ["\"signature\":\"", &signature, "\","] {
            out.extend_from_slice(part.as_bytes());
        }
        out.extend_from_slice(signed.as_bytes().get(middle..).unwrap_or_default());
        out
    }
}

/// Canonical JSON of the members, cut where the ledger's own come to stand. Each is followed by a comma, but those behind the last one of the ledger's
/// own, which follow one. Names are ASCII, so their order is that of canonical JSON.
fn stretches(object: &Map<String, Value>) -> Result<[String; OWN.len() + 1], NotCanonical> {
    let mut stretches = <[String; OWN.len() + 1]>::default();
    let mut members: Vec<(&String, &Value)> = object.iter().filter(|(name, _)| !OWN.contains(&name.as_str())).collect();
    members.sort_unstable_by_key(|(name, _)| *name);
    for (name, value) in members {
        let place = OWN.iter().filter(|own| **own < name.as_str()).count();
        let Some(stretch) = stretches.get_mut(place) else { continue };
        if place == OWN.len() {
            stretch.push(',');
        }
        write_string(stretch, name);
        stretch.push(':');
        write_value(stretch, value)?;
        if place < OWN.len() {
            stretch.push(',');
        }
    }
    Ok(stretches)
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
    use serde_json::json;
    use stockade_verify::canonical::{canonical, canonical_without};
    use stockade_verify::record::signed_bytes;
    use stockade_verify::text::from_base64;

    use super::*;
    use crate::receipt::ReceiptId;
    use crate::redact::Redactor;

    #[test]
    fn what_has_not_run_is_refused_and_what_ran_is_cut() {
        let mut draft = Draft::new(ReceiptId::new(), Kind::Intent);
        draft.argv = Some(vec!["x".repeat(MAX_RECEIPT)]);
        assert!(matches!(Pending::new(&draft, &Redactor::none()), Err(LedgerError::TooLarge(_))));
        let mut draft = Draft::new(ReceiptId::new(), Kind::Outcome);
        draft.violations = (0..200_000).map(|number| format!("violation {number}")).collect();
        let pending = Pending::new(&draft, &Redactor::none()).unwrap();
        assert!(sealed(&pending)["violations"][0].as_str().unwrap().contains("receipt-truncated: "), "the cut is said");
    }

    #[test]
    fn redaction_is_recorded() {
        let mut draft = Draft::new(ReceiptId::new(), Kind::Intent);
        draft.argv = Some(vec!["curl".into(), "-HAuthorization: 0123456789abcdef".into()]);
        let redactor = Redactor::new([("TOKEN", b"0123456789abcdef".as_slice())]).unwrap();
        let pending = Pending::new(&draft, &redactor).unwrap();
        let receipt = sealed(&pending);
        assert_eq!(receipt["argv"].to_string(), r#"["curl","-HAuthorization: [redacted:TOKEN]"]"#);
        assert_eq!(receipt["redactions"].to_string(), r#"[{"count":1,"secret":"TOKEN"}]"#);
    }

    #[test]
    fn what_is_signed_and_stored_is_canonical_whatever_members_there_are() {
        let all = json!({
            "argv": ["a"], "kind": "denied", "principal": {"agent": "\u{1f600}\"\n"}, "receipt_id": "x", "sandbox": {"backend": "jail"},
            "stdin_sha256": "00", "tenant": "t", "violations": ["v"], "seq": "not the draft's to say",
        });
        let names = all.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        for choice in 0..1_u32 << names.len() {
            let mut object = all.as_object().unwrap().clone();
            object.retain(|name, _| choice >> names.iter().position(|one| one == name).unwrap() & 1 == 1);
            let receipt = sealed(&Pending::from_object(&object, "x".to_owned(), Kind::Denied).unwrap());
            object.remove("seq");
            assert_eq!(receipt.as_object().unwrap().len(), object.len() + OWN.len(), "{receipt}");
            assert!(object.iter().all(|(name, value)| receipt[name] == *value), "{receipt}");
        }
    }

    /// The receipt, which must be spelled and signed as a check wants it.
    fn sealed(pending: &Pending) -> Value {
        static KEY: std::sync::LazyLock<LedgerKey> =
            std::sync::LazyLock::new(|| LedgerKey::create(&tempfile::tempdir().unwrap().path().join("key.pem")).unwrap());
        let key = &*KEY;
        let place = Place { seq: 7, time: "2026-01-01T00:00:00.000000Z", prev: &[7; 32], origin: "here" };
        let body = pending.seal(&place, key);
        let value: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(canonical(&value).unwrap().as_bytes(), body);
        let signed = signed_bytes("here", &canonical_without(value.as_object().unwrap(), "signature").unwrap());
        assert!(key.public().verifies(&signed, &from_base64(value["signature"].as_str().unwrap()).unwrap()));
        value
    }
}
