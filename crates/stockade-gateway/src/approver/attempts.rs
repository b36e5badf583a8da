//! How often a passphrase was guessed wrong, and how long the next guess has to wait.
//!
//! Counted apart for each way in: the token of a server is the agent's, and whoever guesses with it must not keep the person from their own terminal.

use rusqlite::{OptionalExtension as _, params};

use crate::approvals::{ApprovalError, Store};

/// Wrong guesses that cost nothing: people mistype.
const FREE: i64 = 3;
/// The longest wait, in seconds.
const MOST_WAIT: i64 = 900;

/// Where a passphrase was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// At a terminal, or on a descriptor that a person's command names.
    Terminal,
    /// Over HTTP, by whoever has the token.
    Http,
}

impl Way {
    /// The word in the file.
    fn name(self) -> &'static str {
        match self {
            Self::Terminal => "terminal",
            Self::Http => "http",
        }
    }
}

impl Store {
    /// Counts a guess, or says how long to wait. A clock that goes back does not shorten the wait.
    pub(crate) fn begin_attempt(&mut self, way: Way, now: i64) -> Result<(), ApprovalError> {
        let wait = self.within("count guesses in", |transaction| {
            let known = transaction
                .query_row("SELECT failed, last FROM attempts WHERE way = ?1", [way.name()], |row| Ok((row.get(0)?, row.get(1)?)));
            let (failed, last): (i64, i64) = known.optional()?.unwrap_or((0, now));
            if last > now {
                transaction.execute("UPDATE attempts SET last = ?2 WHERE way = ?1", params![way.name(), now])?;
            }
            let until = last.min(now) + pause(failed);
            if now < until {
                return Ok(until - now);
            }
            transaction.execute("INSERT OR REPLACE INTO attempts VALUES (?1, ?2, ?3)", params![way.name(), failed + 1, now])?;
            Ok(0)
        })?;
        if wait > 0 { Err(ApprovalError::Slow(wait)) } else { Ok(()) }
    }

    /// The right one was given. What was guessed elsewhere still counts there.
    pub(crate) fn forget_attempts(&mut self, way: Way) -> Result<(), ApprovalError> {
        self.within("count guesses in", |transaction| transaction.execute("DELETE FROM attempts WHERE way = ?1", [way.name()]).map(drop))
    }
}

/// Seconds after so many wrong guesses.
fn pause(failed: i64) -> i64 {
    match u32::try_from(failed - FREE) {
        Ok(more) => 8_i64.checked_shl(more).filter(|wait| (1..MOST_WAIT).contains(wait)).unwrap_or(MOST_WAIT),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_end() {
        assert_eq!([0, 2, 3, 4, 5, 9, 10, 63, 70, 1000].map(pause), [0, 0, 8, 16, 32, 512, 900, 900, 900, 900]);
    }
}
