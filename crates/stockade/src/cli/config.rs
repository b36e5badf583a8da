//! `stockade config`: settings by dotted key.

use clap::{Args, Subcommand, ValueEnum};

/// Read and change settings.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: ConfigVerb,
}

/// What to do with settings.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Print the effective value of a key
    Get(GetArgs),
    /// Write a value into a settings file
    Set(SetArgs),
    /// Remove a key from a settings file
    Unset(UnsetArgs),
    /// Print every key, its effective value and where that comes from
    List(ListArgs),
}

/// `config get`
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Dotted key, such as sandbox.limits.memory
    pub(crate) key: String,
}

/// `config set`
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Dotted key, such as sandbox.limits.memory
    pub(crate) key: String,
    /// The value as JSON or as a plain word; several values make an array
    #[arg(required = true, num_args = 1.., value_name = "VALUE", allow_negative_numbers = true)]
    pub(crate) values: Vec<String>,
    /// Which settings file to write
    #[arg(long, value_enum, default_value_t = LayerChoice::User)]
    pub(crate) layer: LayerChoice,
}

/// `config unset`
#[derive(Debug, Args)]
pub(crate) struct UnsetArgs {
    /// Dotted key, such as sandbox.limits.memory
    pub(crate) key: String,
    /// Which settings file to write
    #[arg(long, value_enum, default_value_t = LayerChoice::User)]
    pub(crate) layer: LayerChoice,
}

/// `config list`
#[derive(Debug, Args)]
pub(crate) struct ListArgs {}

/// A settings file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayerChoice {
    /// ~/.config/stockade/settings.json
    User,
    /// .stockade/settings.json of the workspace; it may only tighten
    Project,
    /// /etc/stockade/settings.json; it overrides everything
    Machine,
}

const EXAMPLES: &str = "\
Examples:
  stockade config list
  stockade config set sandbox.limits.memory 2048
  stockade config set sandbox.allowedHosts github.com '*.crates.io'
  stockade config set --layer project sandbox.workspaceMode ro
  stockade config unset sandbox.limits.memory";
