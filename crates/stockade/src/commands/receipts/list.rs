//! `receipts list`: receipts that match, newest first.

use serde_json::{Value, json};
use stockade_ledger::query::Page;

use super::line::Line;
use super::{filter, reader, value};
use crate::Context;
use crate::cli::ListReceiptsArgs;
use crate::failure::Failure;
use crate::printer::Table;
use crate::receipts::book;

pub(super) fn list(args: &ListReceiptsArgs, context: &Context) -> Result<(), Failure> {
    let filter = filter::of(&args.filter)?;
    let page = Page { before: args.before, most: args.limit };
    let entries = match reader(context)? {
        Some(reader) => reader.list(&filter, page).map_err(|error| book::failure(&error))?,
        None => Vec::new(),
    };
    let receipts: Vec<Value> = entries.iter().map(value).collect();
    if context.printer.is_json() {
        return context.printer.json(&json!({ "receipts": receipts }));
    }
    if receipts.is_empty() {
        context.printer.note("no receipt matches");
        return Ok(());
    }
    let mut table = Table::new(["SEQ", "TIME", "KIND", "VERDICT", "WHO", "WHAT", "RESULT", "RECEIPT"]);
    for line in receipts.iter().map(Line::of) {
        table.row([&line.seq, &line.time, &line.kind, &line.verdict, &line.who, &line.what, &line.result, &line.id]);
    }
    context.printer.table(&table)
}
