//! Takes values out of what comes back, wherever the pieces are cut.
//!
//! Bytes wait only while they could be the beginning of a value: never more than the longest form less one. So a live stream of events
//! stays live. What a server has transformed in a way that is not among the forms cannot be found; docs say so.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::needles::Needles;

/// A scrubber for one body.
#[derive(Debug)]
pub struct Scrubber {
    needles: Arc<Needles>,
    held: BytesMut,
    found: usize,
}

impl Scrubber {
    pub(crate) fn new(needles: Arc<Needles>) -> Self {
        Self { needles, held: BytesMut::new(), found: 0 }
    }

    /// For tests and fuzzing: one value with its placeholder.
    pub fn for_value(value: &[u8], placeholder: &[u8]) -> Option<Self> {
        Needles::new([(value, placeholder)]).map(|needles| Self::new(Arc::new(needles)))
    }

    /// Takes a piece and gives what is certain by now.
    pub fn push(&mut self, piece: Bytes) -> Bytes {
        // The usual case: nothing waits, nothing is found, nothing might begin. Then the piece goes on without a copy.
        if self.held.is_empty() && !self.needles.is_in(&piece) {
            let open = self.needles.open_end(&piece);
            let mut piece = piece;
            let tail = piece.split_off(piece.len() - open);
            self.held.extend_from_slice(&tail);
            return piece;
        }
        self.held.extend_from_slice(&piece);
        self.found += self.needles.replace(&mut self.held);
        let open = self.needles.open_end(&self.held);
        self.held.split_to(self.held.len() - open).freeze()
    }

    /// What still waits, at the end.
    pub fn finish(&mut self) -> Bytes {
        self.found += self.needles.replace(&mut self.held);
        self.held.split().freeze()
    }

    /// How many values were taken out.
    pub fn found(&self) -> usize {
        self.found
    }

    /// How many bytes wait; less than the longest form.
    pub fn waiting(&self) -> usize {
        self.held.len()
    }

    /// The longest form that is looked for.
    pub fn longest(&self) -> usize {
        self.needles.longest()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scrub(value: &[u8], placeholder: &[u8], pieces: &[Vec<u8>]) -> Vec<u8> {
        let mut scrubber = Scrubber::for_value(value, placeholder).unwrap();
        let mut out = Vec::new();
        for piece in pieces {
            out.extend_from_slice(&scrubber.push(Bytes::copy_from_slice(piece)));
            assert!(scrubber.waiting() < scrubber.longest());
        }
        out.extend_from_slice(&scrubber.finish());
        out
    }

    fn cut(bytes: &[u8], sizes: &[usize]) -> Vec<Vec<u8>> {
        let (mut rest, mut pieces) = (bytes, Vec::new());
        let mut sizes = sizes.iter().cycle();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(sizes.next().copied().unwrap_or(1).clamp(1, rest.len()));
            pieces.push(piece.to_vec());
            rest = after;
        }
        pieces
    }

    fn contains(haystack: &[u8], needle: &[u8]) -> bool {
        memchr::memmem::find(haystack, needle).is_some()
    }

    proptest! {
        #[test]
        fn no_cut_lets_a_value_through(
            value in "[A-Za-z0-9_/+=-]{16,48}",
            placeholder in "[a-z0-9]{16,48}",
            parts in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(2), Just(3), 4_u8..], 0..12),
            noise in prop::collection::vec(any::<u8>(), 0..40),
            sizes in prop::collection::vec(1_usize..30, 1..8),
        ) {
            use base64::Engine as _;
            let mut text = Vec::new();
            for part in parts {
                match part {
                    0 => text.extend_from_slice(value.as_bytes()),
                    1 => text.extend_from_slice(base64::engine::general_purpose::STANDARD.encode(format!("u:{value}")).as_bytes()),
                    // A beginning of the value right before the value.
                    2 => { text.extend_from_slice(&value.as_bytes()[..9]); text.extend_from_slice(value.as_bytes()); }
                    3 => text.extend_from_slice(&noise),
                    other => text.push(other),
                }
            }
            prop_assume!(!contains(placeholder.as_bytes(), value.as_bytes()));
            let whole = scrub(value.as_bytes(), placeholder.as_bytes(), std::slice::from_ref(&text));
            let pieces = scrub(value.as_bytes(), placeholder.as_bytes(), &cut(&text, &sizes));
            prop_assert_eq!(whole.len(), text.len());
            prop_assert_eq!(pieces.len(), text.len());
            prop_assert!(!contains(&pieces, value.as_bytes()));
            prop_assert!(!contains(&whole, value.as_bytes()));
        }

        #[test]
        fn what_holds_no_value_is_unchanged(text in prop::collection::vec(any::<u8>(), 0..400), sizes in prop::collection::vec(1_usize..50, 1..5)) {
            let value = b"\x01\x02never-in-the-text-0123456789";
            prop_assume!(!contains(&text, value));
            prop_assert_eq!(scrub(value, b"placeholder-0123456789", &cut(&text, &sizes)), text);
        }
    }

    #[test]
    fn a_live_stream_is_not_held_back() {
        let mut scrubber = Scrubber::for_value(b"ghp_REALrealREALreal", b"ghp_fakefakefakefake").unwrap();
        assert_eq!(scrubber.push(Bytes::from_static(b"data: one\n\n")), "data: one\n\n");
        assert_eq!(scrubber.push(Bytes::from_static(b"data: ghp_REAL")), "data: ");
        assert_eq!(scrubber.push(Bytes::from_static(b"realREALreal\n\n")), "ghp_fakefakefakefake\n\n");
        assert_eq!(scrubber.push(Bytes::from_static(b"data: ghp_RE")), "data: ");
        assert_eq!(scrubber.push(Bytes::from_static(b"ADME\n\n")), "ghp_README\n\n");
        assert_eq!(scrubber.found(), 1);
    }
}
