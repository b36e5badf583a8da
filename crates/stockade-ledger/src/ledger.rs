//! A ledger that is open for writing. Many threads may use one; those that wait together are written together.
//!
//! There is no writer thread: a caller that finds nobody writing becomes the writer, and takes along everything that waits. While it waits for the disk
//! the next batch gathers. A process with one call to record thus starts no thread for it.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use stockade_verify::key::PublicKey;
use stockade_verify::merkle::Hash;
use stockade_verify::note::{Checkpoint, Note};

use crate::error::LedgerError;
use crate::query::Reader;
use crate::receipt::{Draft, Kind};
use crate::redact::Redactor;
use crate::seal::Pending;
use crate::witness::Witness;
use crate::writer::{Sync, Writer};

/// The most receipts of one transaction.
const MOST_TOGETHER: usize = 256;

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
}

impl Default for Options {
    fn default() -> Self {
        let checkpoint_every = NonZeroU64::new(1024).unwrap_or(NonZeroU64::MIN);
        Self { durability: Durability::default(), checkpoint_every, witness: None, clock: Clock::default() }
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
    waiting: Mutex<Vec<Arc<Ticket>>>,
    writer: Mutex<Writer>,
    witnessed: Mutex<Result<(), LedgerError>>,
    durability: Durability,
    witness: Option<Witness>,
}

/// A receipt that waits to be written.
#[derive(Debug)]
struct Ticket {
    pending: Pending,
    sync: Sync,
    answer: Mutex<Option<Result<Appended, LedgerError>>>,
}

impl Ledger {
    /// Opens the ledger in a directory, or begins one. Intents whose owners died are closed as interrupted.
    pub fn open(directory: &Path, options: Options) -> Result<Self, LedgerError> {
        let (durability, witness) = (options.durability, options.witness.clone());
        let writer = Mutex::new(Writer::open(directory, options)?);
        Ok(Self { waiting: Mutex::default(), writer, witnessed: Mutex::new(Ok(())), durability, witness })
    }

    /// Adds a receipt, less the secrets that the redactor knows. Answers when it is as durable as was asked for.
    ///
    /// After an error nothing may run: the receipt is not there.
    pub fn append(&self, draft: &Draft, weight: Weight, redactor: &Redactor) -> Result<Appended, LedgerError> {
        let pending = Pending::new(draft, redactor)?;
        let ticket = Arc::new(Ticket { sync: self.needed(draft.kind, weight), pending, answer: Mutex::new(None) });
        held(&self.waiting).push(Arc::clone(&ticket));
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

    /// Waits for the writer, or is the writer, until this ticket has its answer.
    fn write_until_answered(&self, ticket: &Ticket) -> (Result<Appended, LedgerError>, Option<String>) {
        let mut due = None;
        loop {
            let mut writer = held(&self.writer);
            if let Some(answer) = held(&ticket.answer).take() {
                return (answer, due);
            }
            let batch: Vec<Arc<Ticket>> = {
                let mut waiting = held(&self.waiting);
                let many = waiting.len().min(MOST_TOGETHER);
                waiting.drain(..many).collect()
            };
            if batch.is_empty() {
                // Only a panic in a writer can have lost the ticket.
                return (Err(LedgerError::Content("the writer failed".to_owned())), due);
            }
            let sync = batch.iter().map(|one| one.sync).max().unwrap_or(Sync::Disk);
            let pending: Vec<&Pending> = batch.iter().map(|one| &one.pending).collect();
            match writer.commit(&pending, sync) {
                Ok(committed) => {
                    for (one, answer) in batch.iter().zip(committed.answers) {
                        *held(&one.answer) = Some(answer);
                    }
                    due = committed.note.or(due);
                }
                Err(error) => batch.iter().for_each(|one| *held(&one.answer) = Some(Err(error.clone()))),
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

/// A lock, whatever became of those who held it: what it guards is changed in whole steps.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
