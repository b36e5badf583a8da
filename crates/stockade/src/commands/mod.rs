//! The commands, one file per verb. Each takes its arguments and the context, and gives the exit code.

mod completions;
mod config;
mod docs_reference;
#[cfg(wall)]
mod doctor;
#[cfg(wall)]
mod hold;
mod man;
#[cfg(not(wall))]
mod no_wall;
#[cfg(wall)]
mod run;
#[cfg(wall)]
mod sandbox;
mod version;

use std::process::ExitCode;

use crate::Context;
use crate::cli::{Cli, Verb};
use crate::failure::Failure;

/// Does what the command line asks for.
pub(crate) fn dispatch(cli: Cli, context: &Context) -> Result<ExitCode, Failure> {
    match cli.verb {
        #[cfg(wall)]
        Verb::Run(args) => run::run(&args, context),
        #[cfg(wall)]
        Verb::Sandbox(args) => sandbox::run(&args, context),
        #[cfg(wall)]
        Verb::Doctor(args) => doctor::run(&args, context),
        #[cfg(wall)]
        Verb::Hold(args) => hold::run(&args, context),
        #[cfg(not(wall))]
        Verb::Run(_) | Verb::Sandbox(_) | Verb::Doctor(_) | Verb::Hold(_) => Err(no_wall::refuse()),
        Verb::Config(args) => config::run(&args, context),
        Verb::Completions(args) => completions::run(&args, context),
        Verb::Man(args) => man::run(&args, context),
        Verb::Version => version::run(context),
        Verb::DocsReference => docs_reference::run(context),
    }
}
