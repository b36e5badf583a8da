//! Credit: how many bytes of a stream may be under way.
//!
//! Owns the counting in both directions and the buffer for bytes that a slow reader has not taken yet.
//! It moves no bytes between descriptors. Neither side ever holds more than [`WINDOW`] bytes of a stream.

use stockade_wire::frame::WINDOW;

/// A grant is worth its frame only from this size on.
const GRANT: u32 = WINDOW / 4;
/// An emptied buffer larger than this is given back to the allocator.
const KEEP: usize = 16 << 10;

/// What we may still send on one stream.
#[derive(Debug)]
pub(crate) struct SendCredit(u64);

impl SendCredit {
    /// A stream starts with a full window.
    pub(crate) fn new() -> Self {
        Self(u64::from(WINDOW))
    }

    /// The peer grants more.
    pub(crate) fn grant(&mut self, bytes: u32) {
        self.0 = self.0.saturating_add(u64::from(bytes));
    }

    /// How much of `want` may be sent now.
    pub(crate) fn allowed(&self, want: usize) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX).min(want)
    }

    /// Counts bytes that were sent.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes as u64);
    }
}

/// The peer sent more than it was granted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

/// What the peer may still send on one stream.
#[derive(Debug)]
pub(crate) struct ReceiveWindow {
    left: u32,
    consumed: u32,
}

impl ReceiveWindow {
    /// A stream starts with a full window.
    pub(crate) fn new() -> Self {
        Self { left: WINDOW, consumed: 0 }
    }

    /// Counts bytes that arrived.
    pub(crate) fn receive(&mut self, bytes: usize) -> Result<(), Overrun> {
        let bytes = u32::try_from(bytes).map_err(|_| Overrun)?;
        self.left = self.left.checked_sub(bytes).ok_or(Overrun)?;
        Ok(())
    }

    /// Counts bytes that were passed on; returns how much to grant when a grant is due.
    ///
    /// Small amounts are held back. That cannot stall the peer: what is held back is less than a quarter of
    /// the window, so either it has credit left or there are buffered bytes whose passing on makes the grant due.
    pub(crate) fn consume(&mut self, bytes: usize) -> Option<u32> {
        self.consumed = self.consumed.saturating_add(bytes as u32);
        if self.consumed < GRANT {
            return None;
        }
        let grant = std::mem::take(&mut self.consumed);
        self.left = self.left.saturating_add(grant);
        Some(grant)
    }
}

/// Bytes that arrived and could not be passed on yet.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    bytes: Vec<u8>,
    start: usize,
}

impl Backlog {
    /// What waits, in order.
    pub(crate) fn waiting(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.start >= self.bytes.len()
    }

    /// How many bytes wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting().len()
    }

    /// Adds bytes at the end.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.start > KEEP && self.start >= self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Drops bytes from the front that were passed on.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.start = self.start.saturating_add(bytes);
        if self.is_empty() {
            self.start = 0;
            if self.bytes.capacity() > KEEP {
                self.bytes = Vec::new();
            } else {
                self.bytes.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_within_its_credit_never_stalls() {
        let mut window = ReceiveWindow::new();
        let mut peer = u64::from(WINDOW);
        let mut total = 0u64;
        while total < 20 * u64::from(WINDOW) {
            assert!(peer > 0, "stalled after {total}");
            let sent = peer.min(7777);
            window.receive(sent as usize).unwrap();
            peer -= sent;
            total += sent;
            peer += window.consume(sent as usize).map_or(0, u64::from);
        }
    }

    #[test]
    fn one_byte_too_many_is_an_overrun() {
        let mut window = ReceiveWindow::new();
        assert_eq!(window.receive(WINDOW as usize), Ok(()));
        assert_eq!(window.receive(1), Err(Overrun));
    }

    #[test]
    fn the_backlog_keeps_order_and_gives_memory_back() {
        let mut backlog = Backlog::default();
        let mut expected = Vec::new();
        let mut seen = Vec::new();
        for round in 0..200u32 {
            let chunk = vec![round as u8; 1000];
            expected.extend_from_slice(&chunk);
            backlog.push(&chunk);
            let part = backlog.waiting().get(..900).unwrap().to_vec();
            seen.extend_from_slice(&part);
            backlog.advance(part.len());
        }
        seen.extend_from_slice(backlog.waiting());
        backlog.advance(backlog.len());
        assert_eq!(seen, expected);
        assert!(backlog.is_empty() && backlog.bytes.capacity() <= KEEP);
    }
}
