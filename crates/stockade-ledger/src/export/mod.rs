//! Receipts for others: as lines that can be checked with a public key alone, and in the forms that other tools read.

mod csv;
mod intoto;
mod jsonl;
mod ocsf;
mod otlp;

use std::io::Write;
use std::str::FromStr;
use std::sync::Arc;

pub use jsonl::prove;
pub use otlp::spans;

use crate::error::LedgerError;
use crate::ledger::Ledger;
use crate::query::{Entry, Filter, MOST_ON_A_PAGE, Reader};

/// The form of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One receipt per line with its proof, closed by a signed checkpoint. The only form that `verify` takes.
    Jsonl,
    /// Open Cybersecurity Schema Framework events, one per line.
    Ocsf,
    /// OpenTelemetry log records, as one OTLP/JSON request per line.
    Otlp,
    /// in-toto statements in DSSE envelopes, signed with the ledger's key, one per line.
    Intoto,
    /// A table.
    Csv,
}

/// Text that names no form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown format `{0}`; known: jsonl ocsf otlp intoto csv")]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;
    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        match text {
            "jsonl" => Ok(Self::Jsonl),
            "ocsf" => Ok(Self::Ocsf),
            "otlp" => Ok(Self::Otlp),
            "intoto" => Ok(Self::Intoto),
            "csv" => Ok(Self::Csv),
            other => Err(UnknownFormat(stockade_core::escape::escape(other))),
        }
    }
}

/// Writes the receipts that match, oldest first. Returns how many.
pub fn export(ledger: &Ledger, filter: &Filter, format: Format, out: &mut impl Write) -> Result<u64, LedgerError> {
    let reader = ledger.reader()?;
    let written = match format {
        Format::Jsonl => jsonl::write(ledger, &reader, filter, out)?,
        Format::Ocsf => each(&reader, filter, None, |entry| line(out, &ocsf::event(entry, reader.origin())?))?,
        Format::Otlp => each(&reader, filter, None, |entry| line(out, &otlp::request(entry, reader.origin())?))?,
        Format::Intoto => each(&reader, filter, None, |entry| line(out, &intoto::envelope(entry, ledger)?))?,
        Format::Csv => {
            out.write_all(csv::HEADER.as_bytes()).map_err(failed)?;
            each(&reader, filter, None, |entry| out.write_all(csv::row(entry).as_bytes()).map_err(failed))?
        }
    };
    out.flush().map_err(failed)?;
    Ok(written)
}

/// Gives every receipt that matches, oldest first, up to a size of the ledger. Memory does not grow with their number.
fn each(
    reader: &Reader,
    filter: &Filter,
    size: Option<u64>,
    mut take: impl FnMut(&Entry) -> Result<(), LedgerError>,
) -> Result<u64, LedgerError> {
    let size = size.map_or_else(|| reader.size(), Ok)?;
    let is_everything = *filter == Filter::default();
    let (mut next, mut written) = (0, 0);
    while next < size {
        let entries = reader.from(next, 512.min(MOST_ON_A_PAGE))?;
        let Some(last) = entries.last() else { break };
        next = last.seq + 1;
        for entry in entries.iter().filter(|entry| entry.seq < size) {
            if is_everything || filter.matches(&crate::facts::Facts::of(&entry.body)) {
                take(entry)?;
                written += 1;
            }
        }
    }
    Ok(written)
}

fn line(out: &mut impl Write, value: &serde_json::Value) -> Result<(), LedgerError> {
    writeln!(out, "{value}").map_err(failed)
}

fn failed(error: std::io::Error) -> LedgerError {
    LedgerError::Export(Arc::new(error))
}

fn malformed(entry: &Entry) -> LedgerError {
    LedgerError::Content(format!("receipt {} is malformed", entry.seq))
}
