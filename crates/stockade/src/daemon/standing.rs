//! What a server keeps between calls: the launcher and what was wanted of it, rules and packs while they stay the same, open ledgers.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use stockade_ledger::{Durability, Ledger};
use stockade_sandbox::launch::Want;
use stockade_sandbox::launch::remote::{Ahead, Launcher};
use stockade_store::packs::Remembered;
use stockade_store::policy::Compiled;

use super::Steward;
use crate::failure::Failure;
use crate::outbound::Queue;
use crate::receipts;

/// The most ledgers that are kept open: one for each durability.
const MOST_LEDGERS: usize = 3;
/// So many kinds of jails are remembered.
const MOST_KINDS: usize = 64;

/// Everything that is known of a call before it is looked at, in few bytes.
pub(crate) type Question = [u8; 32];

/// What stays.
#[derive(Debug)]
pub(crate) struct Standing {
    /// Makes jails.
    pub(crate) launcher: Arc<Launcher>,
    /// Starts other processes, where calls need any.
    pub(crate) steward: Option<Steward>,
    /// Holds the secrets of its calls, where it has a steward.
    pub(crate) broker: crate::egress::standing::Broker,
    /// Kinds of jails that were wanted, the last one first.
    wanted: Mutex<VecDeque<[u8; 32]>>,
    /// Which kind of jail a question came to when it was asked last, the last one first.
    expected: Mutex<VecDeque<(Question, [u8; 32])>>,
    /// The rules that were asked last.
    pub(crate) rules: Compiled,
    /// Packs as they were last.
    pub(crate) packs: Remembered,
    ledgers: Mutex<Vec<Open>>,
    /// Where the numbers of receipts that end a call are put, where anybody outside is told.
    pub(crate) ended: Option<Arc<Queue<u64>>>,
}

#[derive(Debug)]
struct Open {
    directory: PathBuf,
    durability: Durability,
    /// Its file, as it was when it was opened: another may be put in its place.
    file: Option<(u64, u64)>,
    ledger: Arc<Ledger>,
}

impl Standing {
    /// Nothing but a launcher yet, and a steward.
    pub(crate) fn new(launcher: Launcher, steward: Option<Steward>) -> Self {
        Self {
            launcher: Arc::new(launcher),
            steward,
            broker: crate::egress::standing::Broker::default(),
            wanted: Mutex::default(),
            expected: Mutex::default(),
            rules: Compiled::default(),
            packs: Remembered::default(),
            ledgers: Mutex::default(),
            ended: None,
        }
    }

    /// The same, which says what ended.
    pub(crate) fn telling(self, ended: Option<Arc<Queue<u64>>>) -> Self {
        Self { ended, ..self }
    }

    /// Whether the very same jail was wanted lately; from now on it was.
    pub(crate) fn is_usual(&self, want: &Want) -> bool {
        let kind = want.digest();
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let before = wanted.iter().position(|known| *known == kind);
        let known = before.and_then(|at| wanted.remove(at)).is_some();
        wanted.truncate(MOST_KINDS - 1);
        wanted.push_front(kind);
        known
    }

    /// The jail that this question will probably come to, asked for while that is found out; none where nobody asked it before. It is not
    /// expected again before it came true, so that none is asked for in vain twice.
    pub(crate) fn ask_ahead(&self, question: &Question) -> Option<Ahead> {
        let mut expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        let at = expected.iter().position(|(known, _)| known == question)?;
        let (_, kind) = expected.remove(at)?;
        drop(expected);
        self.launcher.ask_ahead(kind).ok()
    }

    /// What a question came to.
    pub(crate) fn expect(&self, question: Question, kind: [u8; 32]) {
        let mut expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        expected.retain(|(known, _)| *known != question);
        expected.truncate(MOST_KINDS - 1);
        expected.push_front((question, kind));
    }

    /// The ledger in this directory, opened once. One whose file is not there any more is opened anew.
    pub(crate) fn ledger(&self, directory: &Path, durability: Durability) -> Result<Arc<Ledger>, Failure> {
        let mut ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        let file = file_of(directory);
        ledgers.retain(|open| open.directory != directory || open.file == file);
        if let Some(open) = ledgers.iter().find(|open| open.directory == directory && open.durability == durability) {
            return Ok(Arc::clone(&open.ledger));
        }
        let ledger = Arc::new(receipts::open(directory, durability)?);
        if ledgers.len() < MOST_LEDGERS {
            ledgers.push(Open { directory: directory.to_owned(), durability, file: file_of(directory), ledger: Arc::clone(&ledger) });
        }
        Ok(ledger)
    }

    /// The next call opens it anew.
    pub(crate) fn forget_ledger(&self, directory: &Path) {
        self.ledgers.lock().unwrap_or_else(PoisonError::into_inner).retain(|open| open.directory != directory);
    }
}

fn file_of(directory: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(directory.join(stockade_ledger::FILE)).ok().map(|found| (found.dev(), found.ino()))
}
