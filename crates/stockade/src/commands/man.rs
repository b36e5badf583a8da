//! `stockade man`: manual pages, from the same definition that parses the command line.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use stockade_core::escape::escape_bytes;

use crate::Context;
use crate::cli::{Cli, ManArgs};
use crate::failure::Failure;

/// Prints the main page, or writes all pages into a directory.
pub(crate) fn run(args: &ManArgs, context: &Context) -> Result<ExitCode, Failure> {
    match &args.dir {
        Some(dir) => write_all(dir)?,
        None => context.printer.bytes(&main_page()?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn main_page() -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(|error| Failure::from_error("man", &error))?;
    Ok(page)
}

fn write_all(dir: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        let shown = escape_bytes(dir.as_os_str().as_encoded_bytes());
        Failure::new("man", format!("cannot write manual pages into `{shown}`: {error}"))
            .with_hint("name a directory that you can write to")
    };
    std::fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), dir).map_err(failed)
}
