//! `stockade completions` and `stockade man`: what a package ships next to the program; and `docs-reference`, which documentation is made with.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// Print a completion script.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stockade completions bash > ~/.local/share/bash-completion/completions/stockade")]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Print the manual page, or write all of them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stockade man | man -l -\n  stockade man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Write a page for every command into this directory; it is made if it is not there
    pub(crate) dir: Option<PathBuf>,
}

/// Print the reference of all commands and flags as Markdown.
#[derive(Debug, Args)]
pub(crate) struct DocsReferenceArgs {
    /// The OpenAPI document of REST instead
    #[arg(long)]
    pub(crate) openapi: bool,
}
