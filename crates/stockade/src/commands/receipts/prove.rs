//! `receipts prove`: the records of one call as an export, each with the proof that it is in the ledger.

use stockade_ledger::export;

use super::{existing, out};
use crate::Context;
use crate::cli::ProveArgs;
use crate::failure::Failure;
use crate::receipts::{Book, book};

pub(super) fn prove(args: &ProveArgs, context: &Context) -> Result<(), Failure> {
    existing(context)?.show(&args.id).map_err(|error| book::failure(&error).with_hint("stockade receipts list"))?;
    let book = Book::of(context)?;
    let ledger = book.ledger()?;
    out::to(args.output.as_deref(), context, |mut to| export::prove(ledger, &args.id, &mut to).map_err(|error| book::failure(&error)))?;
    context.printer.note("check it with: stockade receipts verify FILE, or stockade-verify --key PUBLIC.pem FILE");
    Ok(())
}
