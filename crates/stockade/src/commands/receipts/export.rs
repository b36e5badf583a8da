//! `receipts export`: receipts for others. The only form that proves itself is JSONL; the rest is for tools that read theirs.

use stockade_ledger::export;

use super::{existing, filter, out};
use crate::Context;
use crate::cli::ExportArgs;
use crate::failure::Failure;
use crate::receipts::{Book, book};

pub(super) fn export(args: &ExportArgs, context: &Context) -> Result<(), Failure> {
    let filter = filter::of(&args.filter)?;
    // One that is only looked at is not begun.
    existing(context)?;
    let book = Book::of(context)?;
    let ledger = book.ledger()?;
    let count = out::to(args.output.as_deref(), context, |mut to| {
        export::export(ledger, &filter, args.format, &mut to).map_err(|error| book::failure(&error))
    })?;
    context.printer.note(format!("{count} {} exported", if count == 1 { "receipt" } else { "receipts" }));
    Ok(())
}
