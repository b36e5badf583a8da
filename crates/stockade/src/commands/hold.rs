//! `stockade hold`: to be written.

use std::process::ExitCode;

use crate::Context;
use crate::cli::HoldArgs;
use crate::failure::Failure;

pub(crate) fn run(_args: &HoldArgs, _context: &Context) -> Result<ExitCode, Failure> {
    Err(Failure::new("hold", "not built yet"))
}
