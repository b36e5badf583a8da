//! Where the ledger has got to: one row, read and written in the transaction that adds receipts, so that any number of processes agree.

use rusqlite::{Connection, params};
use stockade_verify::merkle::{Frontier, Hash};

/// The end of the chain and the tree over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// The tree over all receipts.
    pub(crate) tree: Frontier,
    /// The digest of the last receipt.
    pub(crate) digest: Hash,
    /// The key that signs the next one.
    pub(crate) key_id: String,
    /// How many receipts can be found by what they say; the rest are looked through one by one.
    pub(crate) indexed: u64,
}

impl Head {
    /// Reads the row; `None` where it does not fit together.
    pub(crate) fn read(connection: &Connection) -> Result<Option<Self>, rusqlite::Error> {
        let mut statement = connection.prepare_cached("SELECT size, digest, peaks, key_id, indexed FROM head")?;
        statement.query_row([], |row| {
            let (size, indexed): (i64, i64) = (row.get(0)?, row.get(4)?);
            let (digest, peaks): (Vec<u8>, Vec<u8>) = (row.get(1)?, row.get(2)?);
            let key_id = row.get(3)?;
            Ok(Self::from_parts(size, &digest, &peaks, key_id, indexed))
        })
    }

    fn from_parts(size: i64, digest: &[u8], peaks: &[u8], key_id: String, indexed: i64) -> Option<Self> {
        let (size, indexed) = (u64::try_from(size).ok()?, u64::try_from(indexed).ok()?);
        let parts: Vec<Hash> = peaks.chunks(32).map(Hash::try_from).collect::<Result<_, _>>().ok()?;
        let tree = Frontier::from_parts(size, parts)?;
        (indexed <= size).then_some(Self { tree, digest: digest.try_into().ok()?, key_id, indexed })
    }

    /// How many receipts wait to be indexed.
    pub(crate) fn lag(&self) -> u64 {
        self.tree.size().saturating_sub(self.indexed)
    }

    /// Writes the row.
    pub(crate) fn write(&self, connection: &Connection) -> Result<(), rusqlite::Error> {
        let mut statement = connection.prepare_cached("UPDATE head SET size = ?1, digest = ?2, peaks = ?3, key_id = ?4, indexed = ?5")?;
        let peaks = self.tree.peaks().concat();
        statement.execute(params![whole(self.tree.size()), self.digest.as_slice(), peaks, self.key_id, whole(self.indexed)])?;
        Ok(())
    }
}

/// A number as SQLite has it. No ledger has 2^63 receipts.
pub(crate) fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
