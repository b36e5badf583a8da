//! `stockade receipts`: looks at the ledger, checks it, and hands it on. One file per verb.

mod export;
pub(crate) mod filter;
mod line;
mod list;
mod out;
mod prove;
#[cfg(wall)]
mod replay;
mod report;
mod show;
mod tail;
mod verify;

use std::process::ExitCode;

use stockade_ledger::query::Entry;
use stockade_ledger::{LedgerError, Reader};

use crate::Context;
use crate::cli::{ReceiptsArgs, ReceiptsVerb};
use crate::failure::Failure;
use crate::receipts::book;

/// Does what `stockade receipts` was asked for.
pub(crate) fn run(args: &ReceiptsArgs, context: &Context) -> Result<ExitCode, Failure> {
    match &args.verb {
        ReceiptsVerb::List(args) => list::list(args, context)?,
        ReceiptsVerb::Show(args) => show::show(args, context)?,
        ReceiptsVerb::Tail(args) => tail::tail(args, context)?,
        ReceiptsVerb::Verify(args) => return verify::verify(args, context),
        ReceiptsVerb::Export(args) => export::export(args, context)?,
        ReceiptsVerb::Prove(args) => prove::prove(args, context)?,
        #[cfg(wall)]
        ReceiptsVerb::Replay(args) => replay::replay(args, context)?,
        #[cfg(not(wall))]
        ReceiptsVerb::Replay(_) => return Err(super::no_wall::refuse()),
        ReceiptsVerb::Report(args) => report::report(args, context)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The ledger, to look at; `None` where nothing was ever written.
pub(crate) fn reader(context: &Context) -> Result<Option<Reader>, Failure> {
    let directory = book::directory(&context.places()?.state);
    match Reader::open(&directory) {
        Ok(reader) => Ok(Some(reader)),
        Err(LedgerError::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(book::failure(&error)),
    }
}

/// The ledger, which must be there.
fn existing(context: &Context) -> Result<Reader, Failure> {
    reader(context)?.ok_or_else(|| Failure::new("receipts", "there are no receipts yet").with_hint("stockade run -- true leaves the first"))
}

/// A receipt as JSON. What is no receipt was put there by somebody else; `verify` says so.
pub(crate) fn value(entry: &Entry) -> serde_json::Value {
    serde_json::from_slice(&entry.body).unwrap_or(serde_json::Value::Null)
}
