//! `stockade cap`: typed operations of programs, from packs.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// List, show and run capabilities.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct CapArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: CapVerb,
}

/// What to do with capabilities.
#[derive(Debug, Subcommand)]
pub(crate) enum CapVerb {
    /// Print the capabilities of all packs
    List(CapListArgs),
    /// Print what a capability takes, runs and may reach
    Show(CapShowArgs),
    /// Run a capability in a fresh sandbox
    Run(Box<CapRunArgs>),
}

/// `cap list`
#[derive(Debug, Args)]
pub(crate) struct CapListArgs {
    /// Only those of this pack
    #[arg(long, value_name = "PACK")]
    pub(crate) pack: Option<String>,
}

/// `cap show`
#[derive(Debug, Args)]
pub(crate) struct CapShowArgs {
    /// Its name, such as git.log
    #[arg(value_name = "CAPABILITY")]
    pub(crate) name: String,
}

/// `cap run`
#[derive(Debug, Args)]
pub(crate) struct CapRunArgs {
    /// Its name, such as git.log
    #[arg(value_name = "CAPABILITY")]
    pub(crate) name: String,
    /// One input; a list takes its name again for each member
    #[arg(short, long = "input", value_name = "NAME=VALUE", allow_hyphen_values = true)]
    pub(crate) inputs: Vec<String>,
    /// All inputs as one JSON object; - reads it from standard input
    #[arg(long, value_name = "JSON", conflicts_with = "inputs")]
    pub(crate) input_json: Option<String>,
    /// Print the decision and what would run, and run nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The directory that the work is about [default: the git top level around the current directory]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// Apply the changes to the workspace when the exit code is 0
    #[arg(long)]
    pub(crate) apply: bool,
}

const EXAMPLES: &str = "\
Examples:
  stockade cap list
  stockade cap show git.log
  stockade cap run git.log --input max_count=5
  stockade cap run git.diff --input paths=src --dry-run --json";
