//! The one place where receipts are added: a batch at a time, in one transaction.
//!
//! The head is read inside the transaction, so that any number of processes agree on what comes next. They queue at [`Line`]; the database's own
//! lock keeps out whatever else writes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};
use serde_json::{Map, Value, json};
use stockade_verify::merkle;
use stockade_verify::note::Checkpoint;
use stockade_verify::record;

use crate::database;
use crate::error::LedgerError;
use crate::facts;
use crate::head::{Head, whole};
use crate::ledger::{Appended, Options, Order};
use crate::line::Line;
use crate::log::Log;
use crate::owner::{self, Life, Owner};
use crate::queue::{Answer, Ticket};
use crate::receipt::Kind;
use crate::seal::{Pending, Place};
use crate::signing::LedgerKey;

/// Two to the power of this many receipts make a block, whose root is stored.
pub(crate) const BLOCK_LEVEL: u32 = 8;
/// This many receipts may wait to be indexed; whoever looks for something reads them one by one.
const INDEX_LAG: u64 = 512;
/// After so many commits a process counts as one that writes much.
const MANY_COMMITS: u32 = 32;

/// Whether a commit waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sync {
    /// It outlives the process.
    Process,
    /// It outlives a power cut.
    Disk,
}

/// What came of a batch.
pub(crate) struct Committed {
    /// One answer for each member of the batch.
    pub(crate) answers: Vec<Answer>,
    /// A checkpoint that was due, for the witness.
    pub(crate) note: Option<String>,
}

/// Holds the connection and the key.
#[derive(Debug)]
pub(crate) struct Writer {
    connection: Connection,
    pub(crate) directory: PathBuf,
    pub(crate) path: PathBuf,
    pub(crate) origin: String,
    pub(crate) key: LedgerKey,
    pub(crate) log: Arc<Log>,
    pub(crate) line: Line,
    owner: Option<Owner>,
    commits: u32,
    /// How many receipts wait to be indexed, as of the last transaction.
    lag: u64,
    pub(crate) options: Options,
}

/// A transaction under way.
pub(crate) struct Batch<'a> {
    pub(crate) transaction: Transaction<'a>,
    pub(crate) head: Head,
    pub(crate) key: &'a mut LedgerKey,
    pub(crate) origin: &'a str,
    pub(crate) path: &'a Path,
    directory: &'a Path,
    owner: &'a mut Option<Owner>,
    options: &'a Options,
}

impl Writer {
    /// Opens the database and the key, and closes what dead owners left open.
    pub(crate) fn open(directory: &Path, options: Options) -> Result<Self, LedgerError> {
        let path = directory.join(database::FILE);
        let connection = database::open(directory)?;
        let (origin, head, owners) = beginning(&connection).map_err(LedgerError::database("read", &path))?;
        let head = head.ok_or_else(|| LedgerError::Damaged { path: path.clone(), what: "its head does not fit together" })?;
        let key = LedgerKey::load(&LedgerKey::path(directory))?;
        let is_current = key.public().id() == head.key_id;
        if options.order == Order::Later {
            // Only a matter of speed.
            let _ = connection.pragma_update(None, "wal_autocheckpoint", database::LONG_LOG);
        }
        let (log, lag) = (Arc::new(Log::new(directory)), head.lag());
        let line = Line::open(directory)?;
        let directory = directory.to_owned();
        let mut writer = Self { connection, directory, path, origin, key, log, line, owner: None, commits: 0, lag, options };
        if !is_current {
            // A change of keys is finished only while nobody else writes.
            writer.transact(Sync::Process, |_| Ok(()))?;
        }
        writer.close_interrupted(owners)?;
        Ok(writer)
    }

    /// Adds a batch, one receipt after the other as they are handed in. An error means that none of it was added. Does not wait for the disk.
    pub(crate) fn commit(&mut self, next: &mut dyn FnMut() -> Option<Arc<Ticket>>) -> Result<Committed, LedgerError> {
        self.transact(Sync::Process, |adding| {
            let before = adding.head.tree.size();
            let mut answers = Vec::new();
            while let Some(ticket) = next() {
                answers.push(adding.add(&ticket.pending)?);
            }
            let every = adding.options.checkpoint_every.get();
            let note = if adding.head.tree.size() / every == before / every { None } else { Some(adding.checkpoint("regular")?) };
            Ok(Committed { answers, note })
        })
    }

    /// Whether so many receipts wait to be indexed that a writer should do it.
    pub(crate) fn is_lagging(&self) -> bool {
        self.options.order == Order::AtOnce && self.lag >= INDEX_LAG
    }

    /// Indexes what waits, signs a checkpoint and empties the log, unless somebody is reading. Opening closed the intents of the dead; what they left
    /// beside the database goes here.
    pub(crate) fn put_in_order(&mut self) -> Result<(), LedgerError> {
        self.index()?;
        self.close_checkpoint()?;
        owner::sweep(&self.directory);
        let empty = |connection: &Connection| -> Result<(), rusqlite::Error> {
            // Writers would wait for whoever waits here.
            connection.busy_timeout(std::time::Duration::ZERO)?;
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        };
        empty(&self.connection).map_err(LedgerError::database("tidy", &self.path))
    }

    /// Signs a checkpoint over everything there is, unless there is one; of those made so, only the last is kept.
    pub(crate) fn close_checkpoint(&mut self) -> Result<String, LedgerError> {
        self.transact(Sync::Process, |adding| {
            let size = whole(adding.head.tree.size());
            let found = adding.transaction.query_row("SELECT note FROM checkpoints WHERE size = ?1", [size], |row| row.get(0)).optional();
            match found.map_err(LedgerError::database("read", adding.path))? {
                Some(note) => Ok(note),
                None => adding.checkpoint("close"),
            }
        })
    }

    /// Keeps a checkpoint with more signatures than before.
    pub(crate) fn keep_note(&mut self, size: u64, note: &str) -> Result<(), LedgerError> {
        self.transact(Sync::Process, |adding| {
            let kept = adding
                .transaction
                .execute("UPDATE checkpoints SET note = ?2, reason = 'regular' WHERE size = ?1", params![whole(size), note]);
            kept.map(drop).map_err(LedgerError::database("write", adding.path))
        })
    }

    /// Runs one transaction in which the head is known, the key is the ledger's own, and the head is written last.
    pub(crate) fn transact<T>(&mut self, sync: Sync, act: impl FnOnce(&mut Batch<'_>) -> Result<T, LedgerError>) -> Result<T, LedgerError> {
        let result = self.transact_once(act)?;
        self.count_commit();
        if sync == Sync::Disk {
            self.log.sync()?;
        }
        Ok(result)
    }

    fn transact_once<T>(&mut self, act: impl FnOnce(&mut Batch<'_>) -> Result<T, LedgerError>) -> Result<T, LedgerError> {
        let Self { connection, path, origin, key, options, directory, owner, lag, line, .. } = self;
        // Over when this function is, and not before the transaction is.
        let _turn = line.turn()?;
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(LedgerError::database("write", path))?;
        let head = Head::read(&transaction).map_err(LedgerError::database("read", path))?;
        let head = head.ok_or_else(|| LedgerError::Damaged { path: path.clone(), what: "its head does not fit together" })?;
        if head.key_id != key.public().id() {
            *key = LedgerKey::load_current(directory, &head.key_id)?;
        }
        let mut batch = Batch { transaction, head, key, origin, path, directory, owner, options };
        let result = act(&mut batch)?;
        let Batch { transaction, head, .. } = batch;
        head.write(&transaction).map_err(LedgerError::database("write", path))?;
        transaction.commit().map_err(LedgerError::database("write", path))?;
        *lag = head.lag();
        Ok(result)
    }

    /// A process that writes much works with a longer log, so that it empties it less often.
    fn count_commit(&mut self) {
        self.commits = self.commits.saturating_add(1);
        if self.commits == MANY_COMMITS {
            // Only a matter of speed.
            let _ = self.connection.pragma_update(None, "wal_autocheckpoint", database::LONG_LOG);
        }
    }

    /// Indexes what waits. A failure is no reason to refuse anything: what is not indexed is read one by one.
    pub(crate) fn catch_up(&mut self) {
        let _ = self.index();
    }

    fn index(&mut self) -> Result<(), LedgerError> {
        if self.lag < INDEX_LAG {
            return Ok(());
        }
        self.transact(Sync::Process, |adding| {
            let done = facts::index(&adding.transaction, adding.head.indexed, adding.head.tree.size());
            adding.head.indexed = done.map_err(LedgerError::database("index", adding.path))?;
            Ok(())
        })
    }

    /// Writes an outcome for every intent whose owner is dead.
    fn close_interrupted(&mut self, owners: Vec<String>) -> Result<(), LedgerError> {
        let mut dead = owners;
        dead.retain(|name| owner::life(&self.directory, name) == Life::Dead);
        if dead.is_empty() {
            return Ok(());
        }
        self.transact(Sync::Process, |adding| dead.iter().try_for_each(|name| adding.interrupt(name)))?;
        for name in dead {
            owner::forget(&self.directory, &name);
        }
        Ok(())
    }
}

/// What must be known at the beginning: the ledger's name, its head, and who has intents open. Read at one moment: locks are taken once.
fn beginning(connection: &Connection) -> Result<(String, Option<Head>, Vec<String>), rusqlite::Error> {
    let moment = connection.unchecked_transaction()?;
    let origin = moment.query_row("SELECT origin FROM ledger", [], |row| row.get(0))?;
    let head = Head::read(&moment)?;
    let owners = moment.prepare("SELECT DISTINCT owner FROM open_intents")?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    moment.commit()?;
    Ok((origin, head, owners))
}

impl Batch<'_> {
    /// Adds one receipt. The inner error is this receipt's alone.
    pub(crate) fn add(&mut self, pending: &Pending) -> Result<Answer, LedgerError> {
        let seq = self.head.tree.size();
        if pending.kind == Kind::Outcome {
            let closed = self.run("DELETE FROM open_intents WHERE receipt_id = ?1", params![pending.receipt_id])?;
            if closed == 0 {
                return Ok(Err(LedgerError::NoIntent(pending.receipt_id.clone())));
            }
        }
        if pending.kind == Kind::Intent {
            let owner = self.own()?;
            let sql = "INSERT OR IGNORE INTO open_intents VALUES (?1, ?2, ?3)";
            if self.run(sql, params![pending.receipt_id, whole(seq), owner])? == 0 {
                return Ok(Err(LedgerError::Content(format!("intent `{}` is already open", pending.receipt_id))));
            }
        }
        let time = format!("{:.6}", (self.options.clock.0)());
        let place = Place { seq, time: &time, prev: &self.head.digest, origin: self.origin };
        let body = pending.seal(&place, self.key);
        self.run("INSERT INTO receipts VALUES (?1, ?2)", params![whole(seq), body])?;
        self.head.digest = record::digest(&body);
        if let Some(root) = self.head.tree.push_noting(merkle::leaf(&body), BLOCK_LEVEL) {
            self.run("INSERT INTO blocks VALUES (?1, ?2)", params![whole(seq >> BLOCK_LEVEL), root.as_slice()])?;
        }
        Ok(Ok(Appended { seq, digest: self.head.digest }))
    }

    /// The name under which this process's intents stand.
    fn own(&mut self) -> Result<String, LedgerError> {
        let owner = match self.owner.take() {
            Some(owner) => owner,
            None => Owner::new(self.directory)?,
        };
        Ok(self.owner.insert(owner).name().to_owned())
    }

    /// Signs a checkpoint over the tree as it is now.
    pub(crate) fn checkpoint(&mut self, reason: &str) -> Result<String, LedgerError> {
        let tree = &self.head.tree;
        let checkpoint = Checkpoint { origin: self.origin.to_owned(), size: tree.size(), root: tree.root(), extensions: Vec::new() };
        let note = self.key.sign_checkpoint(&checkpoint);
        self.run("DELETE FROM checkpoints WHERE reason = 'close'", [])?;
        self.run("INSERT OR REPLACE INTO checkpoints VALUES (?1, ?2, ?3)", params![whole(checkpoint.size), reason, note])?;
        Ok(note)
    }

    pub(crate) fn run(&self, sql: &str, parameters: impl rusqlite::Params) -> Result<usize, LedgerError> {
        let run = || self.transaction.prepare_cached(sql)?.execute(parameters);
        run().map_err(LedgerError::database("write", self.path))
    }

    /// Writes the outcome of each intent that this owner left open.
    fn interrupt(&mut self, owner: &str) -> Result<(), LedgerError> {
        let open = |transaction: &Transaction<'_>| -> Result<Vec<(String, Vec<u8>)>, rusqlite::Error> {
            let sql = "SELECT receipt_id, body FROM open_intents JOIN receipts USING (seq) WHERE owner = ?1 ORDER BY seq";
            transaction.prepare(sql)?.query_map([owner], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        };
        for (receipt_id, body) in open(&self.transaction).map_err(LedgerError::database("read", self.path))? {
            let damaged = || LedgerError::Damaged { path: self.path.to_owned(), what: "an open intent is no receipt" };
            let mut object: Map<String, Value> = serde_json::from_slice(&body).map_err(|_| damaged())?;
            for own in ["seq", "time", "prev", "key_id", "signature"] {
                object.remove(own);
            }
            object.insert("kind".to_owned(), json!("outcome"));
            object.insert("result".to_owned(), json!({"interrupted": true}));
            let pending = Pending::from_object(&object, receipt_id, Kind::Outcome)?;
            self.add(&pending)??;
        }
        // Rows that lead to no receipt would keep their owner for ever.
        self.run("DELETE FROM open_intents WHERE owner = ?1", [owner])?;
        Ok(())
    }
}
