//! The form that proves itself: a header with a checkpoint, a line per receipt with its place in the tree, a closing line that signs the count.

use std::io::Write;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use stockade_verify::canonical::canonical;
use stockade_verify::export::Extent;
use stockade_verify::note::{Checkpoint, Note};
use stockade_verify::rotation::Rotation;
use stockade_verify::text::to_hex;

use super::{each, failed};
use crate::error::LedgerError;
use crate::ledger::Ledger;
use crate::query::{Filter, Reader};
use crate::receipt::ReceiptId;
use crate::tree::Tree;

/// Writes the records of one call, each with the proof that it is in the ledger, as an export that `verify` takes.
pub fn prove(ledger: &Ledger, id: &ReceiptId, out: &mut impl Write) -> Result<u64, LedgerError> {
    let reader = ledger.reader()?;
    reader.show(id)?;
    write(ledger, &reader, &Filter { receipt_id: Some(id.to_string()), ..Filter::default() }, out)
}

pub(super) fn write(ledger: &Ledger, reader: &Reader, filter: &Filter, out: &mut impl Write) -> Result<u64, LedgerError> {
    let (note, key_id) = ledger.with_writer(|writer| Ok((writer.close_checkpoint()?, writer.key.public().id().to_owned())))?;
    let parsed = Note::parse(&note).and_then(|parsed| Checkpoint::parse(parsed.text));
    let checkpoint = parsed.map_err(|_| LedgerError::Damaged { path: reader.path.clone(), what: "its checkpoint is malformed" })?;
    let extent = if *filter == Filter::default() { Extent::All } else { Extent::Some };
    let rotations: Vec<Value> = reader.rotations(&reader.connection)?.iter().map(Rotation::to_value).collect();
    let header = json!({
        "checkpoint": note,
        "format": "stockade-receipts",
        "records": extent.as_str(),
        "rotations": rotations,
        "version": 1,
    });
    let mut out = Hashed { out, digest: Sha256::new() };
    out.line(&text(&header)?)?;
    let mut tree = Tree::new(&reader.connection, &reader.path, checkpoint.size)?;
    let count = each(reader, filter, Some(checkpoint.size), |entry| {
        let proof: Vec<String> = tree.inclusion(entry.seq)?.iter().map(|hash| format!("\"{}\"", to_hex(hash))).collect();
        // The receipt's own bytes are canonical, so they are the member as it must be.
        let body = str::from_utf8(&entry.body).map_err(|_| super::malformed(entry))?;
        out.line(&format!("{{\"proof\":[{}],\"receipt\":{body}}}", proof.join(",")))
    })?;
    let digest = out.digest.clone().finalize();
    let extension = format!("export {count} {}", to_hex(&digest));
    let closing = Checkpoint { extensions: vec![extension], ..checkpoint };
    let note = ledger.with_writer(|writer| (writer.key.public().id() == key_id).then(|| writer.key.sign_checkpoint(&closing)));
    let note = note.ok_or_else(|| LedgerError::Content("the key was changed during the export; export again".to_owned()))?;
    out.line(&text(&json!({"checkpoint": note}))?)?;
    Ok(count)
}

/// Writes lines and hashes them.
struct Hashed<'a, W> {
    out: &'a mut W,
    digest: Sha256,
}

impl<W: Write> Hashed<'_, W> {
    fn line(&mut self, text: &str) -> Result<(), LedgerError> {
        let line = format!("{text}\n");
        self.digest.update(line.as_bytes());
        self.out.write_all(line.as_bytes()).map_err(failed)
    }
}

fn text(value: &Value) -> Result<String, LedgerError> {
    canonical(value).map_err(|error| LedgerError::Content(error.to_string()))
}
