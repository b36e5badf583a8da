//! A ledger that is open for writing. Many threads may use one; those that wait together are written together.
//!
//! There is no writer thread: a caller that finds nobody writing becomes the writer, and takes along everything that waits; another waits for the disk,
//! for all that is written. A process with one call to record thus starts no thread for it.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use stockade_verify::key::PublicKey;
use stockade_verify::merkle::Hash;
use stockade_verify::note::{Checkpoint, Note};

use crate::error::LedgerError;
use crate::log::Log;
use crate::query::Reader;
use crate::queue::{Answer, Queue, Step, Ticket, Turn, held};
use crate::receipt::{Draft, Kind};
use crate::redact::Redact;
use crate::seal::Pending;
use crate::witness::Witness;
use crate::writer::{Sync, Writer};

/// When a receipt counts as written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// On the disk before a call that writes or destroys; otherwise when it outlives this process.
    #[default]
    Effect,
    /// Always on the disk.
    Always,
    /// When it outlives this process. A power cut may take the last ones, never the chain.
    Process,
}

/// What the call that a receipt belongs to may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// It changes nothing outside its sandbox.
    Read,
    /// It writes or destroys.
    Effect,
}

/// Tells the time; another one in tests.
#[derive(Clone)]
pub struct Clock(pub Arc<dyn Fn() -> Timestamp + Send + std::marker::Sync>);

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self(Arc::new(Timestamp::now))
    }
}

/// How a ledger is kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// When a receipt counts as written.
    pub durability: Durability,
    /// A checkpoint is signed each time the ledger grows past a multiple of this.
    pub checkpoint_every: NonZeroU64,
    /// Who signs checkpoints too.
    pub witness: Option<Witness>,
    /// What time it is.
    pub clock: Clock,
    /// When the ledger is put in order.
    pub order: Order,
}

/// When a ledger is put in order: what waits is indexed, and the write-ahead log is emptied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// By whoever writes, now and then.
    #[default]
    AtOnce,
    /// By [`Ledger::tidy`], which somebody calls when nobody waits any more. Should nobody do so, writers do after all, but later.
    Later,
}

impl Default for Options {
    fn default() -> Self {
        let checkpoint_every = NonZeroU64::new(1024).unwrap_or(NonZeroU64::MIN);
        Self { durability: Durability::default(), checkpoint_every, witness: None, clock: Clock::default(), order: Order::default() }
    }
}

/// A receipt that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Its number.
    pub seq: u64,
    /// Its digest.
    pub digest: Hash,
}

/// A ledger that is open for writing.
#[derive(Debug)]
pub struct Ledger {
    queue: Queue,
    writer: Mutex<Writer>,
    log: Arc<Log>,
    witnessed: Mutex<Result<(), LedgerError>>,
    durability: Durability,
    witness: Option<Witness>,
}

impl Ledger {
    /// Opens the ledger in a directory, or begins one. Intents whose owners died are closed as interrupted.
    pub fn open(directory: &Path, options: Options) -> Result<Self, LedgerError> {
        let (durability, witness) = (options.durability, options.witness.clone());
        let writer = Writer::open(directory, options)?;
        let log = Arc::clone(&writer.log);
        Ok(Self { queue: Queue::default(), writer: Mutex::new(writer), log, witnessed: Mutex::new(Ok(())), durability, witness })
    }

    /// Puts a ledger in order, where that is due: indexes what waits, signs a checkpoint, and empties the write-ahead log, which the next one to open
    /// the ledger would have to read again. Nobody is held up: where somebody is reading, the log is left as it is, and one at a time does it, for all who
    /// would.
    pub fn tidy(directory: &Path) -> Result<(), LedgerError> {
        crate::reserve::make(directory);
        if !crate::database::is_log_long(directory) {
            return Ok(());
        }
        // A hundred that end together would each open it once more, and get in line for what the first of them does.
        let Some(_alone) = crate::database::lock_if_free(&directory.join("tidying"))? else { return Ok(()) };
        let ledger = Self::open(directory, Options::default())?;
        held(&ledger.writer).put_in_order()?;
        crate::payload::Payloads::new(directory, crate::payload::Payloads::MOST).prune_daily()
    }

    /// Adds a receipt, less the secrets that the redactor knows. Answers when it is as durable as was asked for.
    ///
    /// After an error nothing may run: the receipt is not there. Should the disk fail while it is waited for, the receipt may be there all the same;
    /// nothing may run then either, and this ledger takes no more that must be on the disk.
    pub fn append(&self, draft: &Draft, weight: Weight, redactor: &dyn Redact) -> Result<Appended, LedgerError> {
        let pending = Pending::new(draft, redactor)?;
        let ticket = self.queue.enter(pending, self.needed(draft.kind, weight));
        let (answer, note) = self.write_until_answered(&ticket);
        if let Some(note) = note {
            let outcome = self.bear_witness(&note);
            *held(&self.witnessed) = outcome;
        }
        answer
    }

    /// Signs a checkpoint over everything written so far, and has it witnessed. Returns the note.
    pub fn checkpoint(&self) -> Result<String, LedgerError> {
        let note = held(&self.writer).close_checkpoint()?;
        let outcome = self.bear_witness(&note);
        held(&self.witnessed).clone_from(&outcome);
        outcome.map(|()| note)
    }

    /// Ends with a checkpoint.
    pub fn close(self) -> Result<(), LedgerError> {
        self.checkpoint().map(drop)
    }

    /// What came of the last attempt to have a checkpoint witnessed. A receipt does not wait for a witness, so a refusal is told here.
    pub fn witness_status(&self) -> Result<(), LedgerError> {
        held(&self.witnessed).clone()
    }

    /// Changes the key: both keys sign the change, the ledger records it, and the old private key is gone afterwards.
    pub fn rotate_key(&self) -> Result<PublicKey, LedgerError> {
        crate::rotate::rotate(&mut held(&self.writer))
    }

    /// The key that signs now.
    pub fn public_key(&self) -> PublicKey {
        held(&self.writer).key.public().clone()
    }

    /// The ledger's name.
    pub fn origin(&self) -> String {
        held(&self.writer).origin.clone()
    }

    /// A reader of the same ledger, with a connection of its own.
    pub fn reader(&self) -> Result<Reader, LedgerError> {
        let directory = held(&self.writer).directory.clone();
        Reader::open(&directory)
    }

    /// Works with the writer; for exports, which are signed.
    pub(crate) fn with_writer<T>(&self, act: impl FnOnce(&mut Writer) -> T) -> T {
        act(&mut held(&self.writer))
    }

    /// Whether this receipt must be on the disk before the call goes on.
    fn needed(&self, kind: Kind, weight: Weight) -> Sync {
        let comes_after = matches!(kind, Kind::Outcome | Kind::Network);
        match (self.durability, weight) {
            (Durability::Always, _) => Sync::Disk,
            (Durability::Effect, Weight::Effect) if !comes_after => Sync::Disk,
            (Durability::Effect | Durability::Process, _) => Sync::Process,
        }
    }

    /// Writes, waits for the disk, or waits for others who do, until this ticket has its answer. Returns a checkpoint that was due, too.
    fn write_until_answered(&self, ticket: &Ticket) -> (Answer, Option<String>) {
        let mut due = None;
        loop {
            match self.queue.step(ticket) {
                Step::Write(turn) => due = self.write(turn).or(due),
                Step::Sync(watch) => watch.synced(&self.log.sync()),
                Step::Done(answer) => return (answer, due),
            }
        }
    }

    /// Writes a batch. Returns a checkpoint that was due.
    fn write(&self, mut turn: Turn<'_>) -> Option<String> {
        let mut writer = held(&self.writer);
        match writer.commit(&mut || turn.next()) {
            Ok(committed) => {
                turn.committed(committed.answers);
                if writer.is_lagging() {
                    turn.leave_disk_to_others();
                    writer.catch_up();
                }
                committed.note
            }
            Err(error) => {
                turn.refused(&error);
                None
            }
        }
    }

    /// Has a checkpoint witnessed, and keeps it with the witness's signature. Other receipts do not wait for it.
    fn bear_witness(&self, note: &str) -> Result<(), LedgerError> {
        let Some(witness) = &self.witness else { return Ok(()) };
        let parsed =
            Note::parse(note).and_then(|parsed| Checkpoint::parse(parsed.text)).map_err(|bad| LedgerError::Witness(bad.to_string()))?;
        let directory = held(&self.writer).directory.clone();
        let cosigned = witness.cosign(note, &parsed, &Reader::open(&directory)?)?;
        held(&self.writer).keep_note(parsed.size, &cosigned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Line;
    use crate::receipt::ReceiptId;
    use crate::redact::Redactor;

    /// A wait that ends without a turn is an answer, for all who waited: no second wait begins for any of them.
    #[test]
    fn one_who_never_has_a_turn_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(root.path(), Options::default()).unwrap();
        held(&ledger.writer).line.be_patient_for(std::time::Duration::from_millis(200));
        let append = || ledger.append(&Draft::new(ReceiptId::new(), Kind::Denied), Weight::Read, &Redactor::none());
        let mut other = Line::open(root.path()).unwrap();
        let turn = other.turn().unwrap();
        let begin = std::time::Instant::now();
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..20).map(|_| scope.spawn(append)).collect();
            for one in all {
                let error = one.join().unwrap().unwrap_err();
                assert!(error.to_string().contains("write"), "{error}");
            }
        });
        assert!(begin.elapsed() < std::time::Duration::from_secs(3), "they waited together, not one after the other");
        drop(turn);
        append().unwrap();
    }
}
