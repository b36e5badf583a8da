//! Whose turn it is to write, among processes.
//!
//! ```text
//!  next ─▶ hold ─▶ (next is given up) ─▶ writes ─▶ (hold is given up)
//! ```
//!
//! The database's own lock goes to whoever asks at the right moment. A process with many receipts gives it up for microseconds only, so one
//! that looks now and then never finds it free. Here whoever comes next has its place while another still writes, and nobody overtakes it: the one who
//! just wrote has to get in line again. Locks go with their process, however that ends; one that hangs is given up on as the database's lock is.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::error::{LedgerError, Problem};

/// The files, beside the database.
const NEXT: &str = "turn-next";
const HOLD: &str = "turn";
/// How long one who writes may take, and how long those in line together.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often one looks whether the line has moved; many do so at once.
const IN_LINE: Duration = Duration::from_millis(1);
/// How often whoever is next does; that is one alone.
const NEXT_ONE: Duration = Duration::from_micros(150);

/// The line of one ledger.
#[derive(Debug)]
pub(crate) struct Line {
    next: File,
    hold: File,
    path: PathBuf,
}

/// A turn; over with the value.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a File);

impl Line {
    /// The line of the ledger in this directory.
    pub(crate) fn open(directory: &Path) -> Result<Self, LedgerError> {
        let open = |name: &str| {
            let path = directory.join(name);
            // To read is enough, and possible where nothing can be made.
            let file = File::open(&path).or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => File::options().write(true).create(true).truncate(false).mode(0o600).open(&path),
                _ => Err(error),
            });
            file.map_err(LedgerError::file("open", &path))
        };
        Ok(Self { next: open(NEXT)?, hold: open(HOLD)?, path: directory.join(HOLD) })
    }

    /// Waits for a turn, though not for ever.
    pub(crate) fn turn(&self) -> Result<Turn<'_>, LedgerError> {
        self.take(&self.next, IN_LINE)?;
        let held = self.take(&self.hold, NEXT_ONE);
        give_up(&self.next);
        held.map(|()| Turn(&self.hold))
    }

    fn take(&self, file: &File, pause: Duration) -> Result<(), LedgerError> {
        let mut end = None;
        loop {
            match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(()),
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(errno) => return Err(LedgerError::file("lock", &self.path)(errno.into())),
            }
            if Instant::now() > *end.get_or_insert_with(|| Instant::now() + PATIENCE) {
                return Err(LedgerError::Database { step: "write", path: self.path.clone(), problem: Problem::Held });
            }
            std::thread::sleep(pause);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        give_up(self.0);
    }
}

fn give_up(file: &File) {
    // It goes with the descriptor at the latest.
    let _ = rustix::fs::flock(file, FlockOperation::Unlock);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    /// Somebody who writes without a pause, and somebody who comes now and then: each has a turn.
    #[test]
    fn one_who_never_pauses_does_not_keep_others_out() {
        let directory = tempfile::tempdir().unwrap();
        let (over, turns) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let line = Line::open(directory.path()).unwrap();
                while !over.load(Ordering::Relaxed) {
                    let turn = line.turn().unwrap();
                    turns.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(3));
                    drop(turn);
                }
            });
            let line = Line::open(directory.path()).unwrap();
            for _ in 0..50 {
                // It has begun the next one.
                let before = turns.load(Ordering::Relaxed);
                while turns.load(Ordering::Relaxed) == before {
                    std::thread::yield_now();
                }
                // An error where it never has one.
                drop(line.turn().unwrap());
            }
            over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn one_at_a_time_has_it_and_the_end_of_a_turn_frees_it() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (Line::open(directory.path()).unwrap(), Line::open(directory.path()).unwrap());
        let turn = one.turn().unwrap();
        let is_held = || rustix::fs::flock(&other.hold, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK);
        assert!(is_held());
        assert_eq!(rustix::fs::flock(&other.next, FlockOperation::NonBlockingLockExclusive), Ok(()), "the next may get in line");
        drop(turn);
        assert!(!is_held());
    }
}
