//! `stockade version`: the version as a line or as JSON.

use std::process::ExitCode;

use serde_json::json;

use crate::Context;
use crate::failure::Failure;
use crate::printer::Format;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Prints the version.
pub(crate) fn run(context: &Context) -> Result<ExitCode, Failure> {
    match context.printer.format() {
        Format::Human => context.printer.line(format!("stockade {VERSION}"))?,
        Format::Json => context.printer.json(&json!({"name": "stockade", "version": VERSION}))?,
    }
    Ok(ExitCode::SUCCESS)
}
