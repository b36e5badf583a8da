//! `stockade secret`: values that sandboxes use without having them. No value is ever an argument.

use std::ffi::OsString;

use clap::{Args, Subcommand};

/// Keep secrets that sandboxes use without ever having them.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct SecretArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: SecretVerb,
}

/// What to do with secrets.
#[derive(Debug, Subcommand)]
pub(crate) enum SecretVerb {
    /// Keep a value, which is read from standard input or asked for; never an argument
    Set(SetSecretArgs),
    /// Print the names of secrets, where each comes from and where it may go; never a value
    List(ListSecretsArgs),
    /// Forget secrets of the store
    Remove(RemoveSecretArgs),
}

/// `secret set`
#[derive(Debug, Args)]
pub(crate) struct SetSecretArgs {
    /// The secret's name: that of the variable which holds its placeholder inside
    #[arg(value_name = "NAME")]
    pub(crate) name: OsString,
}

/// `secret list`
#[derive(Debug, Args)]
pub(crate) struct ListSecretsArgs {}

/// `secret remove`
#[derive(Debug, Args)]
pub(crate) struct RemoveSecretArgs {
    /// Which
    #[arg(required = true, num_args = 1.., value_name = "NAME")]
    pub(crate) names: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  stockade secret set GITHUB_TOKEN              asks for the value, without showing it
  gh auth token | stockade secret set GITHUB_TOKEN
  stockade secret list
  stockade secret remove GITHUB_TOKEN";
