//! Taking the values of a sandbox's secrets out of what others want to write down. The values stay here.

use stockade_core::redact::{Counts, RedactError, Redactor};

use crate::sources::Lease;
use crate::talk::message::Extent;
use crate::{SecretName, SecretValue};

/// How many values of one secret are remembered, so that an earlier one is still found after it was renewed.
const MOST_VALUES: usize = 16;

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Redacted {
    /// Each piece without its secrets; `None` for one that had none.
    pub(crate) pieces: Vec<Option<Vec<u8>>>,
    /// How much of the last piece was dealt with.
    pub(crate) taken: u32,
    /// What was taken out, and how often.
    pub(crate) counts: Vec<(SecretName, u64)>,
}

/// The values that a secret has had in a sandbox.
#[derive(Debug, Default)]
pub(crate) struct Values(Vec<SecretValue>);

impl Values {
    /// Remembers a value and its parts.
    pub(crate) fn remember_all(&mut self, lease: &Lease) {
        for value in std::iter::once(&lease.value).chain(&lease.parts) {
            self.remember(value);
        }
    }

    /// Remembers one more.
    fn remember(&mut self, value: &SecretValue) {
        if !self.0.contains(value) {
            self.0.push(value.duplicate());
        }
        if self.0.len() > MOST_VALUES {
            self.0.remove(0);
        }
    }
}

/// Takes values out of pieces.
pub(crate) fn redact<'a>(
    secrets: impl IntoIterator<Item = (&'a SecretName, &'a Values)>,
    pieces: &[Vec<u8>],
    extent: Extent,
) -> Result<Redacted, RedactError> {
    let values = secrets.into_iter().flat_map(|(name, values)| values.0.iter().map(move |value| (name.as_str(), value.expose())));
    let redactor = Redactor::new(values)?;
    let mut counts = Counts::default();
    let mut taken = pieces.last().map_or(0, Vec::len);
    let last = pieces.len().saturating_sub(1);
    let clean = pieces.iter().enumerate().map(|(at, piece)| {
        if at == last && extent == Extent::Beginning {
            let (clean, certain) = redactor.beginning(piece, &mut counts);
            taken = certain;
            return clean;
        }
        redactor.bytes(piece, &mut counts)
    });
    let pieces = clean.collect();
    let named = counts.to_redactions().into_iter().filter_map(|one| Some((one.secret.parse().ok()?, one.count)));
    Ok(Redacted { pieces, taken: u32::try_from(taken).unwrap_or(u32::MAX), counts: named.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> SecretValue {
        SecretValue::new(text.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn values_of_before_and_after_a_renewal_are_taken_out() {
        let name: SecretName = "TOKEN".parse().unwrap();
        let mut values = Values::default();
        for text in ["first-value-of-all", "second-value-of-all", "first-value-of-all"] {
            values.remember(&value(text));
        }
        let pieces = [b"a first-value-of-all b".to_vec(), b"nothing".to_vec(), b"second-value-of-all".to_vec()];
        let done = redact([(&name, &values)], &pieces, Extent::Whole).unwrap();
        assert_eq!(done.pieces, [Some(b"a [redacted:TOKEN] b".to_vec()), None, Some(b"[redacted:TOKEN]".to_vec())]);
        assert_eq!((done.taken, done.counts), (19, vec![(name.clone(), 2)]));
        // The end of a beginning may be the beginning of a value.
        let piece = [vec![b'x'; 300], b"second-value".to_vec()].concat();
        let done = redact([(&name, &values)], &[piece], Extent::Beginning).unwrap();
        assert!(done.taken < 300 && done.pieces == [None], "{done:?}");
    }
}
