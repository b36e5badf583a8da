//! How much of a secret one sandbox may use: times, bytes, and until when. Counted here, where a sandbox and its egress cannot reset it.

use std::time::SystemTime;

/// What a sandbox may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// How often the value may be given out.
    pub uses: Option<u64>,
    /// How many bytes of requests that carry it may be sent.
    pub bytes: Option<u64>,
    /// Until when.
    pub ends: Option<SystemTime>,
}

/// Whether bytes that are sent with a secret must be told to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bytes {
    /// They have a limit.
    Counted,
    /// They have none.
    Free,
}

/// Which part of a budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UsedUp {
    /// The times.
    #[error("it was used {0} times, as often as it may be")]
    Uses(u64),
    /// The bytes.
    #[error("{0} bytes were sent with it, as many as may be")]
    Bytes(u64),
    /// The time.
    #[error("its time is over")]
    Time,
}

/// A budget and what was spent of it.
#[derive(Debug, Default)]
pub(crate) struct Account {
    budget: Budget,
    uses: u64,
    bytes: u64,
}

impl Account {
    pub(crate) fn new(budget: Budget) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Whether every single use must be asked for.
    pub(crate) fn counts_uses(&self) -> bool {
        self.budget.uses.is_some()
    }

    /// Whether bytes that are sent with it must be told.
    pub(crate) fn bytes(&self) -> Bytes {
        if self.budget.bytes.is_some() { Bytes::Counted } else { Bytes::Free }
    }

    /// Until when it may be used.
    pub(crate) fn ends(&self) -> Option<SystemTime> {
        self.budget.ends
    }

    /// Whether anything is left.
    pub(crate) fn check(&self, now: SystemTime) -> Result<(), UsedUp> {
        match self.budget {
            Budget { ends: Some(ends), .. } if now >= ends => Err(UsedUp::Time),
            Budget { uses: Some(most), .. } if self.uses >= most => Err(UsedUp::Uses(most)),
            Budget { bytes: Some(most), .. } if self.bytes >= most => Err(UsedUp::Bytes(most)),
            _ => Ok(()),
        }
    }

    /// Counts one use.
    pub(crate) fn spend_use(&mut self) {
        self.uses = self.uses.saturating_add(1);
    }

    /// Counts bytes that were sent.
    pub(crate) fn spend_bytes(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn each_part_ends_it() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let mut account = Account::new(Budget { uses: Some(2), bytes: Some(100), ends: Some(at(50)) });
        assert_eq!((account.check(at(49)), account.check(at(50))), (Ok(()), Err(UsedUp::Time)));
        account.spend_use();
        assert_eq!(account.check(at(0)), Ok(()));
        account.spend_use();
        assert_eq!(account.check(at(0)), Err(UsedUp::Uses(2)));
        let mut account = Account::new(Budget { bytes: Some(100), ..Budget::default() });
        account.spend_bytes(99);
        assert_eq!(account.check(at(0)), Ok(()));
        account.spend_bytes(u64::MAX);
        assert_eq!(account.check(at(0)), Err(UsedUp::Bytes(100)));
    }
}
