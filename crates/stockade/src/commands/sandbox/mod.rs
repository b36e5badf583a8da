//! `stockade sandbox`: to be written.

use std::process::ExitCode;

use crate::Context;
use crate::cli::SandboxArgs;
use crate::failure::Failure;

pub(crate) fn run(_args: &SandboxArgs, _context: &Context) -> Result<ExitCode, Failure> {
    Err(Failure::new("sandbox", "not built yet"))
}
