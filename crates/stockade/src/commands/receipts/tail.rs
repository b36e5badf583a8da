//! `receipts tail`: the newest receipts, and those that come. Numbers have no gaps, so who asks for the next one misses none.

use std::time::Duration;

use stockade_ledger::Reader;

use super::line::Line;
use super::{reader, value};
use crate::Context;
use crate::cli::TailArgs;
use crate::failure::Failure;
use crate::receipts::book;

/// Receipts that are read at once.
const AT_ONCE: usize = 500;
/// How long one look lasts.
const LOOK: Duration = Duration::from_secs(1);

pub(super) fn tail(args: &TailArgs, context: &Context) -> Result<(), Failure> {
    let failed = |error: &stockade_ledger::LedgerError| book::failure(error);
    let Some(reader) = wait_for_ledger(args, context)? else { return Ok(()) };
    let size = reader.size().map_err(|error| failed(&error))?;
    let mut next = args.from.unwrap_or_else(|| size.saturating_sub(args.lines as u64));
    loop {
        let entries = if args.follow { reader.wait_from(next, AT_ONCE, LOOK) } else { reader.from(next, AT_ONCE) };
        let entries = entries.map_err(|error| failed(&error))?;
        for entry in &entries {
            next = entry.seq + 1;
            let receipt = value(entry);
            if context.printer.is_json() {
                context.printer.json(&receipt)?;
            } else {
                context.printer.line(Line::of(&receipt).text())?;
            }
        }
        if context.printer.reader_is_gone() || (entries.is_empty() && !args.follow) {
            return Ok(());
        }
    }
}

/// Whoever follows may begin before the first receipt.
fn wait_for_ledger(args: &TailArgs, context: &Context) -> Result<Option<Reader>, Failure> {
    loop {
        match reader(context)? {
            None if args.follow => std::thread::sleep(LOOK),
            found => return Ok(found),
        }
    }
}
