//! `stockade doctor`: to be written.

use std::process::ExitCode;

use crate::Context;
use crate::cli::DoctorArgs;
use crate::failure::Failure;

pub(crate) fn run(_args: &DoctorArgs, _context: &Context) -> Result<ExitCode, Failure> {
    Err(Failure::new("doctor", "not built yet"))
}
