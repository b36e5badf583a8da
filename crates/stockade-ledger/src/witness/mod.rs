//! Somebody outside who has seen how far the ledger had got, and signs that: what makes a roll-back visible.
//!
//! A witness signs a checkpoint only if the one it signed before is a beginning of it. Its signature has the form of C2SP `tlog-cosignature`, so other
//! witnesses fit too.

mod command;
mod file;

use std::time::{SystemTime, UNIX_EPOCH};

use stockade_verify::note::Checkpoint;

pub use command::CommandWitness;
pub use file::FileWitness;

use crate::error::LedgerError;
use crate::query::Reader;

/// Who signs checkpoints beside the ledger.
#[derive(Debug, Clone)]
pub enum Witness {
    /// A directory, on another disk or machine, with a key of its own.
    File(FileWitness),
    /// A program that is given each checkpoint.
    Command(Box<CommandWitness>),
}

impl Witness {
    /// The note with the witness's signature added; an error where it does not sign.
    pub fn cosign(&self, note: &str, checkpoint: &Checkpoint, reader: &Reader) -> Result<String, LedgerError> {
        match self {
            Self::File(witness) => witness.cosign(note, checkpoint, reader),
            Self::Command(witness) => witness.cosign(note, checkpoint, reader),
        }
    }

    /// The last checkpoint it signed for a ledger, as far as it keeps that where it can be asked.
    pub fn seen(&self, origin: &str) -> Result<Option<Checkpoint>, LedgerError> {
        match self {
            Self::File(witness) => witness.seen(origin),
            Self::Command(_) => Ok(None),
        }
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
