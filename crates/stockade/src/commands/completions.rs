//! `stockade completions`: a completion script for a shell, from the same definition that parses the command line.

use std::process::ExitCode;

use clap::CommandFactory;

use crate::Context;
use crate::cli::{Cli, CompletionsArgs};
use crate::failure::Failure;

/// Prints the script.
pub(crate) fn run(args: &CompletionsArgs, context: &Context) -> Result<ExitCode, Failure> {
    // Into memory first: clap_complete panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "stockade", &mut script);
    context.printer.bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}
