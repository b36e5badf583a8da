//! The commands, one file per verb. Each takes its arguments and the context, and gives the exit code.

mod completions;
mod config;
mod docs_reference;
mod doctor;
mod hold;
mod man;
mod run;
mod sandbox;
mod version;

use std::process::ExitCode;

use crate::Context;
use crate::cli::{Cli, Verb};
use crate::failure::Failure;

/// Does what the command line asks for.
pub(crate) fn dispatch(cli: Cli, context: &Context) -> Result<ExitCode, Failure> {
    match cli.verb {
        Verb::Run(args) => run::run(&args, context),
        Verb::Sandbox(args) => sandbox::run(&args, context),
        Verb::Config(args) => config::run(&args, context),
        Verb::Doctor(args) => doctor::run(&args, context),
        Verb::Hold(args) => hold::run(&args, context),
        Verb::Completions(args) => completions::run(&args, context),
        Verb::Man(args) => man::run(&args, context),
        Verb::Version => version::run(context),
        Verb::DocsReference => docs_reference::run(context),
    }
}
