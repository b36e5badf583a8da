//! Roots of ranges of leaves, from stored roots of blocks and the receipts of one block at a time: what proofs are made of.

use std::path::Path;

use rusqlite::{Connection, params};
use stockade_verify::merkle::{self, Hash, split};

use crate::error::LedgerError;
use crate::head::whole;
use crate::writer::BLOCK_LEVEL;

/// The tree over the first receipts of a ledger.
pub(crate) struct Tree<'a> {
    connection: &'a Connection,
    path: &'a Path,
    size: u64,
    /// Hashes of complete parts above and at the level of blocks, lowest level first.
    upper: Vec<Vec<Hash>>,
    /// The block whose leaves are at hand: its number, and its hashes, leaves first.
    block: Option<(u64, Vec<Vec<Hash>>)>,
}

impl<'a> Tree<'a> {
    /// Reads the roots of the blocks: 32 bytes for every 256 receipts.
    pub(crate) fn new(connection: &'a Connection, path: &'a Path, size: u64) -> Result<Self, LedgerError> {
        let complete = size >> BLOCK_LEVEL;
        let read = || -> Result<Vec<Vec<u8>>, rusqlite::Error> {
            let mut statement = connection.prepare_cached("SELECT root FROM blocks WHERE number < ?1 ORDER BY number")?;
            statement.query_map([whole(complete)], |row| row.get(0))?.collect()
        };
        let roots: Option<Vec<Hash>> =
            read().map_err(LedgerError::database("read", path))?.into_iter().map(|root| Hash::try_from(root).ok()).collect();
        let roots = roots.filter(|roots| whole(complete) == i64::try_from(roots.len()).unwrap_or(-1));
        let roots = roots.ok_or_else(|| LedgerError::Damaged { path: path.to_owned(), what: "roots of blocks are missing" })?;
        Ok(Self { connection, path, size, upper: pyramid(roots), block: None })
    }

    /// The place of a receipt in the tree.
    pub(crate) fn inclusion(&mut self, seq: u64) -> Result<Vec<Hash>, LedgerError> {
        merkle::inclusion_proof(seq, self.size, &mut |start, end| self.range(start, end))
    }

    /// That the tree of the first `old` receipts is the beginning of this one.
    pub(crate) fn consistency(&mut self, old: u64) -> Result<Vec<Hash>, LedgerError> {
        merkle::consistency_proof(old, self.size, &mut |start, end| self.range(start, end))
    }

    /// The root over the leaves from one number up to another. Ranges are those of a tree: they begin at a multiple of their own size.
    fn range(&mut self, start: u64, end: u64) -> Result<Hash, LedgerError> {
        let many = end - start;
        if many.is_power_of_two() {
            let level = many.trailing_zeros();
            let row = usize::try_from(level.saturating_sub(BLOCK_LEVEL)).unwrap_or(usize::MAX);
            let column = usize::try_from(start >> level).unwrap_or(usize::MAX);
            if level >= BLOCK_LEVEL {
                return self.upper.get(row).and_then(|hashes| hashes.get(column)).copied().ok_or_else(|| self.damaged());
            }
            return self.in_block(start, level);
        }
        let middle = start + split(many);
        let (left, right) = (self.range(start, middle)?, self.range(middle, end)?);
        Ok(merkle::node(&left, &right))
    }

    fn in_block(&mut self, start: u64, level: u32) -> Result<Hash, LedgerError> {
        let number = start >> BLOCK_LEVEL;
        if self.block.as_ref().is_none_or(|(held, _)| *held != number) {
            self.block = Some((number, pyramid(self.leaves(number)?)));
        }
        let column = usize::try_from((start & ((1 << BLOCK_LEVEL) - 1)) >> level).unwrap_or(usize::MAX);
        let row = usize::try_from(level).unwrap_or(usize::MAX);
        let found = self.block.as_ref().and_then(|(_, hashes)| hashes.get(row)?.get(column)).copied();
        found.ok_or_else(|| self.damaged())
    }

    fn leaves(&self, number: u64) -> Result<Vec<Hash>, LedgerError> {
        let (from, to) = (number << BLOCK_LEVEL, ((number + 1) << BLOCK_LEVEL).min(self.size));
        let read = || -> Result<Vec<Hash>, rusqlite::Error> {
            let mut statement = self.connection.prepare_cached("SELECT body FROM receipts WHERE seq >= ?1 AND seq < ?2 ORDER BY seq")?;
            let rows = statement.query_map(params![whole(from), whole(to)], |row| Ok(merkle::leaf(row.get_ref(0)?.as_blob()?)))?;
            rows.collect()
        };
        read().map_err(LedgerError::database("read", self.path))
    }

    fn damaged(&self) -> LedgerError {
        LedgerError::Damaged { path: self.path.to_owned(), what: "receipts are missing" }
    }
}

/// Each level over the one below, as far as nodes are complete.
fn pyramid(lowest: Vec<Hash>) -> Vec<Vec<Hash>> {
    let mut levels = vec![lowest];
    while let Some(last) = levels.last().filter(|last| last.len() > 1) {
        let next = last.chunks_exact(2).filter_map(|pair| if let [left, right] = pair { Some(merkle::node(left, right)) } else { None });
        let next = next.collect();
        levels.push(next);
    }
    levels
}
