//! The check of a whole ledger where it lies: every receipt, link and signature, every checkpoint, what is stored beside them, and the witness.
//!
//! Receipts are read in order, a batch at a time, and examined on all processors; memory does not grow with the ledger.

use std::collections::BTreeMap;

use rusqlite::params;
use stockade_verify::export::in_parallel;
use stockade_verify::flaw::{Broken, Flaw, Place};
use stockade_verify::key::PublicKey;
use stockade_verify::merkle::{Frontier, Hash};
use stockade_verify::note::{Checkpoint, Note};
use stockade_verify::record::{self, Ledger, Record};
use stockade_verify::rotation::Keys;

use crate::error::LedgerError;
use crate::facts::Facts;
use crate::head::{Head, whole};
use crate::query::{Entry, Reader};
use crate::witness::Witness;
use crate::writer::BLOCK_LEVEL;

/// How many receipts are examined at a time, and how many bytes of them at most.
const BATCH: i64 = 1024;
/// How many configurations and programs are collected at most.
const MOST_COLLECTED: usize = 65_536;

/// A ledger that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Its name.
    pub origin: String,
    /// How many receipts it has.
    pub size: u64,
    /// How many checkpoints were compared.
    pub checkpoints: u64,
    /// The key in use.
    pub key_id: String,
    /// How many receipts the witness has seen; `None` without a witness.
    pub witnessed: Option<u64>,
    /// Digests of sandbox configurations that receipts name, each with the first receipt that does.
    pub configurations: BTreeMap<String, u64>,
    /// Programs that ran, by path, each as it was when it ran last.
    pub ran: BTreeMap<String, Ran>,
}

/// A program as it was when it ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// The digest of its file.
    pub sha256: String,
    /// The receipt that says so.
    pub seq: u64,
}

/// Checks everything, trusting these keys.
pub fn verify(reader: &Reader, trusted: &[PublicKey], witness: Option<&Witness>) -> Result<Verified, LedgerError> {
    let moment = reader.moment()?;
    let head = reader.head(&moment)?;
    let origin = reader.origin().to_owned();
    let keys =
        Keys::trusted(trusted, reader.rotations(&moment)?, &origin, |key| key.id() == head.key_id).map_err(|flaw| at(0, None, flaw))?;
    let ledger = Ledger { origin: origin.clone(), keys };
    let mut walk = Walk::new(reader, &moment, &ledger, &head, witness)?;
    loop {
        let sql = "SELECT seq, body FROM receipts WHERE seq >= ?1 ORDER BY seq LIMIT ?2";
        let entries = reader.entries(&moment, sql, params![whole(walk.tree.size()), BATCH])?;
        if entries.is_empty() {
            break;
        }
        let examined = in_parallel(&entries, |entry| (record::check(&entry.body, &ledger), Facts::of(&entry.body)));
        for (entry, (record, facts)) in entries.iter().zip(examined) {
            walk.step(entry, record, &facts)?;
        }
    }
    walk.finish()
}

/// The state between one receipt and the next.
struct Walk<'a> {
    reader: &'a Reader,
    moment: &'a rusqlite::Connection,
    ledger: &'a Ledger,
    head: &'a Head,
    tree: Frontier,
    last: Hash,
    /// Checkpoints still to come, next one last.
    notes: Vec<(u64, String)>,
    compared: u64,
    /// What the witness has seen.
    seen: Option<Checkpoint>,
    configurations: BTreeMap<String, u64>,
    ran: BTreeMap<String, Ran>,
}

impl<'a> Walk<'a> {
    fn new(
        reader: &'a Reader,
        moment: &'a rusqlite::Connection,
        ledger: &'a Ledger,
        head: &'a Head,
        witness: Option<&Witness>,
    ) -> Result<Self, LedgerError> {
        let mut notes = reader.notes(moment)?;
        notes.reverse();
        let seen = witness.map(|witness| witness.seen(&ledger.origin)).transpose()?.flatten();
        // Said first: everything else about a rolled back ledger holds.
        if let Some(seen) = seen.as_ref().filter(|seen| seen.size > head.tree.size()) {
            return Err(LedgerError::RolledBack { seen: seen.size, found: head.tree.size() });
        }
        let last = record::first_prev(&ledger.origin);
        let mut walk = Self {
            reader,
            moment,
            ledger,
            head,
            tree: Frontier::default(),
            last,
            notes,
            compared: 0,
            seen,
            configurations: BTreeMap::new(),
            ran: BTreeMap::new(),
        };
        walk.compare(None)?;
        Ok(walk)
    }

    fn step(&mut self, entry: &Entry, record: Result<Record, Flaw>, facts: &Facts) -> Result<(), LedgerError> {
        let expected = self.tree.size();
        let record = record.map_err(|flaw| at(entry.seq, None, flaw))?;
        let name = Some(record.receipt_id.clone());
        if record.seq != expected || entry.seq != expected {
            return Err(at(entry.seq, name, Flaw::Sequence { expected, found: record.seq }));
        }
        if record.prev != self.last {
            return Err(at(entry.seq, name, Flaw::Chain));
        }
        self.last = record.digest;
        if let Some(root) = self.tree.push_noting(record.leaf, BLOCK_LEVEL) {
            self.compare_block(expected >> BLOCK_LEVEL, &root)?;
        }
        if expected < self.head.indexed {
            let is_stored = facts.are_stored(self.moment, expected).map_err(LedgerError::database("read", &self.reader.path))?;
            if !is_stored {
                return Err(LedgerError::BadIndex(expected));
            }
        }
        self.collect(facts, expected);
        self.compare(name)
    }

    /// Remembers what others may want to compare, up to a bound.
    fn collect(&mut self, facts: &Facts, seq: u64) {
        if let Some(digest) = &facts.configuration
            && self.configurations.len() < MOST_COLLECTED
        {
            self.configurations.entry(digest.clone()).or_insert(seq);
        }
        if let Some((path, sha256)) = &facts.ran
            && (self.ran.len() < MOST_COLLECTED || self.ran.contains_key(path))
        {
            self.ran.insert(path.clone(), Ran { sha256: sha256.clone(), seq });
        }
    }

    /// Compares the checkpoints of the present size.
    fn compare(&mut self, name: Option<String>) -> Result<(), LedgerError> {
        let size = self.tree.size();
        let place = size.saturating_sub(1);
        while let Some((_, text)) = self.notes.pop_if(|(of, _)| *of == size) {
            let note = Note::parse(&text).map_err(|bad| at(place, name.clone(), Flaw::Note(bad)))?;
            let key = self.ledger.keys.at(size);
            note.signed_by(&self.ledger.origin, key).map_err(|bad| at(place, name.clone(), Flaw::Note(bad)))?;
            let checkpoint = Checkpoint::parse(note.text).map_err(|bad| at(place, name.clone(), Flaw::Note(bad)))?;
            if (&checkpoint.origin, checkpoint.size, checkpoint.root) != (&self.ledger.origin, size, self.tree.root()) {
                return Err(at(place, name, Flaw::Root(size)));
            }
            self.compared += 1;
        }
        match &self.seen {
            Some(seen) if seen.size == size && seen.root != self.tree.root() => Err(LedgerError::Rewritten(size)),
            _ => Ok(()),
        }
    }

    fn compare_block(&self, number: u64, root: &Hash) -> Result<(), LedgerError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM blocks WHERE number = ?1 AND root = ?2)";
        let found = self.moment.query_row(sql, params![whole(number), root.as_slice()], |row| row.get(0));
        if found.map_err(LedgerError::database("read", &self.reader.path))? {
            return Ok(());
        }
        Err(LedgerError::Damaged { path: self.reader.path.clone(), what: "the root of a block is wrong" })
    }

    fn finish(self) -> Result<Verified, LedgerError> {
        let size = self.tree.size();
        let damaged = |what| Err(LedgerError::Damaged { path: self.reader.path.clone(), what });
        if self.head.tree.size() != size {
            return Err(at(size, None, Flaw::Count { found: size, signed: self.head.tree.size() }));
        }
        if self.head.tree != self.tree || self.head.digest != self.last {
            return damaged("its head is not that of its receipts");
        }
        if let Some((beyond, _)) = self.notes.last() {
            return Err(at(size, None, Flaw::Count { found: size, signed: *beyond }));
        }
        let witnessed = self.seen.as_ref().map(|seen| seen.size);
        let key_id = self.ledger.keys.newest().id().to_owned();
        let (origin, checkpoints) = (self.ledger.origin.clone(), self.compared);
        Ok(Verified { origin, size, checkpoints, key_id, witnessed, configurations: self.configurations, ran: self.ran })
    }
}

fn at(seq: u64, receipt_id: Option<String>, flaw: Flaw) -> LedgerError {
    LedgerError::Broken(Box::new(Broken { place: Place::Record { line: seq, seq: Some(seq), receipt_id }, flaw }))
}
