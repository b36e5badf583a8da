//! The program `stockade`: reads the command line, builds the context, hands over to a command.
//!
//! `cli/` says what can be written, `commands/` does it, `printer.rs` is the only way out and `failure.rs` the only way
//! to fail. Nothing slow happens before a command begins: no settings are read, no runtime is started.

#[allow(dead_code, unused_imports, reason = "some of the commands that read these are still to be written")]
mod cli;
mod assemble;
mod commands;
#[allow(dead_code, reason = "some of the commands that use these are still to be written")]
mod context;
#[allow(dead_code, reason = "some of the commands that use these are still to be written")]
mod failure;
#[allow(dead_code, reason = "some of the commands that use these are still to be written")]
mod printer;
#[allow(dead_code, reason = "some of the commands that use these are still to be written")]
mod text;
mod terminal;
mod usage;

use std::ffi::OsString;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

use clap::Parser;

pub(crate) use context::Context;

fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().collect();
    let environment = context::Environment::capture();
    // A bug must look like a failure of Stockade (125), not like a program that ended with Rust's 101.
    std::panic::catch_unwind(AssertUnwindSafe(|| start(&argv, &environment))).unwrap_or_else(|_| usage::answer_panic(&argv, &environment))
}

fn start(argv: &[OsString], environment: &context::Environment) -> ExitCode {
    match cli::Cli::try_parse_from(argv) {
        Err(error) => usage::answer(&error, argv, environment),
        Ok(cli) => {
            let context = Context::new(cli.output, environment.clone());
            commands::dispatch(cli, &context).unwrap_or_else(|failure| failure.report(&context.printer))
        }
    }
}
