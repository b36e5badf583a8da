//! The program `stockade`: reads the command line, builds the context, hands over to a command.
//!
//! `cli/` says what can be written, `commands/` does it, `printer.rs` is the only way out and `failure.rs` the only way
//! to fail. Nothing slow happens before a command begins: no settings are read, no runtime is started.

#![cfg_attr(not(wall), expect(dead_code, unused_imports, reason = "without a wall most verbs only refuse"))]

#[cfg(wall)]
mod admission;
#[cfg(wall)]
mod agent;
#[cfg(wall)]
mod approval;
mod approver;
#[cfg(wall)]
mod assemble;
mod cli;
mod commands;
mod context;
#[cfg(wall)]
mod daemon;
mod destination;
#[cfg(wall)]
mod egress;
#[cfg(wall)]
mod engine;
mod failure;
#[cfg(wall)]
mod http;
#[cfg(wall)]
mod mcp;
#[cfg(wall)]
mod outbound;
mod passphrase;
mod printer;
mod receipts;
#[cfg(wall)]
mod rest;
mod terminal;
mod text;
mod usage;
mod visitor;

use std::ffi::OsString;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

pub(crate) use context::Context;

fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().collect();
    let environment = context::Environment::capture();
    // A bug must look like a failure of Stockade (125), not like a program that ended with Rust's 101.
    std::panic::catch_unwind(AssertUnwindSafe(|| start(&argv, &environment))).unwrap_or_else(|_| usage::answer_panic(&argv, &environment))
}

fn start(argv: &[OsString], environment: &context::Environment) -> ExitCode {
    #[cfg(wall)]
    if let Some(code) = daemon::client::ask(argv, environment) {
        return code;
    }
    match cli::Cli::read(argv) {
        Err(error) => usage::answer(&error, argv, environment),
        Ok(cli) => {
            let context = Context::new(cli.output, environment.clone());
            commands::dispatch(cli, &context).unwrap_or_else(|failure| failure.report(&context.printer))
        }
    }
}
