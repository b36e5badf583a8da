//! Looking at a ledger: by what receipts say, by id, by number. Nothing here writes.

mod filter;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction, params, params_from_iter};
use stockade_verify::key::{MAX_KEY_TEXT, PublicKey};
use stockade_verify::rotation::Rotation;

pub use filter::Filter;

use crate::database;
use crate::error::LedgerError;
use crate::facts::Facts;
use crate::head::{Head, whole};
use crate::receipt::{Receipt, ReceiptId};
use crate::signing::LedgerKey;

/// The most receipts of one page.
pub const MOST_ON_A_PAGE: usize = 10_000;
/// How often a waiting reader looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A ledger that is only looked at.
#[derive(Debug)]
pub struct Reader {
    pub(crate) connection: Connection,
    pub(crate) path: PathBuf,
    pub(crate) directory: PathBuf,
    origin: String,
}

/// A receipt as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number.
    pub seq: u64,
    /// Its bytes: canonical JSON.
    pub body: Vec<u8>,
}

impl Entry {
    /// The receipt; an error where the bytes are none.
    pub fn receipt(&self) -> Result<Receipt, LedgerError> {
        serde_json::from_slice(&self.body).map_err(|error| LedgerError::Content(format!("receipt {} is malformed: {error}", self.seq)))
    }
}

/// Which part of a list.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// Only receipts before this number.
    pub before: Option<u64>,
    /// At most so many.
    pub most: usize,
}

impl Reader {
    /// Opens the ledger in a directory.
    pub fn open(directory: &Path) -> Result<Self, LedgerError> {
        let path = directory.join(database::FILE);
        let connection = database::open_to_read(directory)?;
        let origin =
            connection.query_row("SELECT origin FROM ledger", [], |row| row.get(0)).map_err(LedgerError::database("read", &path))?;
        Ok(Self { connection, path, directory: directory.to_owned(), origin })
    }

    /// The ledger's name.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// How many receipts there are.
    pub fn size(&self) -> Result<u64, LedgerError> {
        Ok(self.head(&self.connection)?.tree.size())
    }

    /// The local public key: what a check trusts unless it is told otherwise.
    pub fn local_key(&self) -> Result<PublicKey, LedgerError> {
        if let Ok(key) = LedgerKey::load(&LedgerKey::path(&self.directory)) {
            return Ok(key.public().clone());
        }
        let path = self.directory.join("key.pub.pem");
        let text = std::fs::read_to_string(&path).map_err(LedgerError::file("read", &path))?;
        let text = text.get(..text.len().min(MAX_KEY_TEXT)).unwrap_or_default();
        PublicKey::parse(text).map_err(|_| LedgerError::BadKey(path))
    }

    /// Receipts that match, newest first.
    pub fn list(&self, filter: &Filter, page: Page) -> Result<Vec<Entry>, LedgerError> {
        let most = page.most.min(MOST_ON_A_PAGE);
        // Everything is read at one moment, so that nothing is indexed between the two halves.
        let moment = self.moment()?;
        let head = self.head(&moment)?;
        let before = page.before.unwrap_or(u64::MAX).min(head.tree.size());
        let mut found = self.list_unindexed(&moment, filter, head.indexed, before, most)?;
        if found.len() < most {
            let rest = most - found.len();
            found.extend(self.list_indexed(&moment, filter, before.min(head.indexed), rest)?);
        }
        Ok(found)
    }

    /// The records of one call, oldest first.
    pub fn show(&self, id: &ReceiptId) -> Result<Vec<Entry>, LedgerError> {
        let filter = Filter { receipt_id: Some(id.to_string()), ..Filter::default() };
        let mut found = self.list(&filter, Page { before: None, most: MOST_ON_A_PAGE })?;
        found.reverse();
        if found.is_empty() { Err(LedgerError::NoReceipt(id.to_string())) } else { Ok(found) }
    }

    /// The receipts from this number on, oldest first. Numbers are given in the order of commits, so who asks for the next one misses none.
    pub fn from(&self, seq: u64, most: usize) -> Result<Vec<Entry>, LedgerError> {
        let most = i64::try_from(most.min(MOST_ON_A_PAGE)).unwrap_or(i64::MAX);
        self.entries(&self.connection, "SELECT seq, body FROM receipts WHERE seq >= ?1 ORDER BY seq LIMIT ?2", params![whole(seq), most])
    }

    /// As [`Self::from`], but waits for the first one for some time.
    pub fn wait_from(&self, seq: u64, most: usize, patience: Duration) -> Result<Vec<Entry>, LedgerError> {
        let end = Instant::now() + patience;
        loop {
            let found = self.from(seq, most)?;
            if !found.is_empty() || Instant::now() >= end {
                return Ok(found);
            }
            std::thread::sleep(LOOK_AGAIN.min(end.saturating_duration_since(Instant::now())));
        }
    }

    /// One moment of the ledger.
    pub(crate) fn moment(&self) -> Result<Transaction<'_>, LedgerError> {
        self.connection.unchecked_transaction().map_err(LedgerError::database("read", &self.path))
    }

    pub(crate) fn head(&self, connection: &Connection) -> Result<Head, LedgerError> {
        let head = Head::read(connection).map_err(LedgerError::database("read", &self.path))?;
        head.ok_or_else(|| LedgerError::Damaged { path: self.path.clone(), what: "its head does not fit together" })
    }

    /// How the keys followed each other.
    pub(crate) fn rotations(&self, connection: &Connection) -> Result<Vec<Rotation>, LedgerError> {
        let read = || -> Result<Vec<String>, rusqlite::Error> {
            let mut statement = connection.prepare_cached("SELECT rotation FROM keys WHERE rotation IS NOT NULL ORDER BY since")?;
            statement.query_map([], |row| row.get(0))?.collect()
        };
        let texts = read().map_err(LedgerError::database("read", &self.path))?;
        let rotations: Option<Vec<Rotation>> = texts.iter().map(|text| Rotation::from_value(&serde_json::from_str(text).ok()?)).collect();
        rotations.ok_or_else(|| LedgerError::Damaged { path: self.path.clone(), what: "a change of keys is malformed" })
    }

    /// Checkpoints, smallest first, with their sizes.
    pub(crate) fn notes(&self, connection: &Connection) -> Result<Vec<(u64, String)>, LedgerError> {
        let read = || -> Result<Vec<(u64, String)>, rusqlite::Error> {
            let mut statement = connection.prepare_cached("SELECT size, note FROM checkpoints ORDER BY size")?;
            statement.query_map([], |row| Ok((u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0), row.get(1)?)))?.collect()
        };
        read().map_err(LedgerError::database("read", &self.path))
    }

    pub(crate) fn entries(&self, connection: &Connection, sql: &str, parameters: impl rusqlite::Params) -> Result<Vec<Entry>, LedgerError> {
        let read = || -> Result<Vec<Entry>, rusqlite::Error> {
            let mut statement = connection.prepare_cached(sql)?;
            let entry = |row: &rusqlite::Row<'_>| Ok(Entry { seq: u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0), body: row.get(1)? });
            statement.query_map(parameters, entry)?.collect()
        };
        read().map_err(LedgerError::database("read", &self.path))
    }

    /// Receipts that no index knows yet, one by one.
    fn list_unindexed(&self, moment: &Connection, filter: &Filter, from: u64, before: u64, most: usize) -> Result<Vec<Entry>, LedgerError> {
        const STEP: i64 = 256;
        let (mut found, mut end) = (Vec::new(), before);
        while end > from && found.len() < most {
            let sql = "SELECT seq, body FROM receipts WHERE seq >= ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3";
            let entries = self.entries(moment, sql, params![whole(from), whole(end), STEP])?;
            let Some(last) = entries.last() else { break };
            end = last.seq;
            found.extend(entries.into_iter().filter(|entry| filter.matches(&Facts::of(&entry.body))));
        }
        found.truncate(most);
        Ok(found)
    }

    fn list_indexed(&self, moment: &Connection, filter: &Filter, before: u64, most: usize) -> Result<Vec<Entry>, LedgerError> {
        let fail = || LedgerError::database("read", &self.path);
        let (mut found, mut end) = (Vec::new(), before);
        // An index that claims too much is asked again: the receipt itself decides.
        while found.len() < most && end > 0 {
            let Some(plan) = filter.plan(moment, end).map_err(fail())? else { break };
            let wanted = i64::try_from(most - found.len()).unwrap_or(i64::MAX);
            let sql = format!(
                "SELECT receipts.seq, body FROM ({} LIMIT {wanted}) AS chosen CROSS JOIN receipts ON receipts.seq = chosen.seq ORDER BY receipts.seq DESC",
                plan.sql
            );
            let entries = self.entries(moment, &sql, params_from_iter(plan.values))?;
            let Some(last) = entries.last() else { break };
            end = last.seq;
            let is_end = i64::try_from(entries.len()).unwrap_or(0) < wanted;
            found.extend(entries.into_iter().filter(|entry| filter.matches(&Facts::of(&entry.body))));
            if is_end {
                break;
            }
        }
        Ok(found)
    }
}
