//! A change of keys: stated once, signed by both, recorded as a receipt that the old key signs last.
//!
//! ```text
//!  key.next.pem written ─▶ one transaction: receipt, statement, checkpoint by the new key ─▶ key.next.pem becomes key.pem
//! ```
//!
//! If it is cut short after the transaction, whoever opens the ledger next finishes it; before it, nothing happened.

use rusqlite::params;
use stockade_verify::key::PublicKey;
use stockade_verify::rotation::Rotation;

use crate::database;
use crate::error::LedgerError;
use crate::head::whole;
use crate::receipt::{Draft, Kind, LedgerEvent, ReceiptId};
use crate::redact::Redactor;
use crate::seal::Pending;
use crate::signing::{LedgerKey, take_over};
use crate::writer::{Sync, Writer};

/// Changes the key of a ledger.
pub(crate) fn rotate(writer: &mut Writer) -> Result<PublicKey, LedgerError> {
    let path = LedgerKey::next_path(&writer.directory);
    // One change at a time, until its file has its place: a second one would write over a key that is already the ledger's.
    let _lock = database::lock(&writer.directory.join("lock"))?;
    let public = writer.transact(Sync::Disk, |adding| {
        // What is there was left by a change that never happened; had it happened, this transaction would have begun by finishing it.
        match std::fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(LedgerError::file("remove", &path)(error)),
        }
        let next = LedgerKey::create(&path)?;
        let seq = adding.head.tree.size();
        let message = Rotation::message(adding.origin, seq, adding.key.public(), next.public());
        let rotation = Rotation {
            seq,
            old: adding.key.public().clone(),
            new: next.public().clone(),
            old_signature: adding.key.sign(&message),
            new_signature: next.sign(&message),
        };
        let mut draft = Draft::new(ReceiptId::new(), Kind::Checkpoint);
        draft.ledger = Some(LedgerEvent { event: "rotated".to_owned(), rotation: Some(rotation.to_value()) });
        adding.add(&Pending::new(&draft, &Redactor::none())?)??;
        let text = rotation.to_value().to_string();
        adding.run("INSERT INTO keys VALUES (?1, ?2, ?3)", params![whole(seq + 1), next.public().as_bytes(), text])?;
        next.public().id().clone_into(&mut adding.head.key_id);
        let public = next.public().clone();
        *adding.key = next;
        adding.checkpoint("rotation")?;
        Ok(public)
    })?;
    take_over(&writer.directory, &writer.key)?;
    Ok(public)
}
