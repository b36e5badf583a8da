//! `stockade pack`: packs of capabilities, and the keys that sign them.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Write, sign, check and install packs.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct PackArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: PackVerb,
}

/// What to do with packs.
#[derive(Debug, Subcommand)]
pub(crate) enum PackVerb {
    /// Write a pack to begin with
    Init(PackInitArgs),
    /// Check a pack: its manifests, schemas, rules and examples
    Lint(PackPathArgs),
    /// Make a key to sign packs with, encrypted under a passphrase
    Keygen(PackKeygenArgs),
    /// Sign a pack
    Sign(PackSignArgs),
    /// Check a pack's signature against the keys that you trust
    Verify(PackPathArgs),
    /// Install a pack, after showing what it may do
    Install(PackInstallArgs),
    /// Print the packs that there are
    List(PackListArgs),
    /// Remove an installed pack
    Remove(PackRemoveArgs),
}

/// `pack init`
#[derive(Debug, Args)]
pub(crate) struct PackInitArgs {
    /// The pack's name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Whose key will sign it
    #[arg(long, value_name = "NAME", default_value = "me")]
    pub(crate) publisher: String,
    /// Where to write it [default: a directory of the pack's name]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
}

/// A pack that is not installed.
#[derive(Debug, Args)]
pub(crate) struct PackPathArgs {
    /// A directory or a .tar.zst file
    #[arg(value_name = "PACK", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) path: PathBuf,
}

/// `pack keygen`
#[derive(Debug, Args)]
pub(crate) struct PackKeygenArgs {
    /// The publisher's name, as packs write it
    #[arg(value_name = "PUBLISHER")]
    pub(crate) publisher: String,
    /// Where to write the key [default: PUBLISHER.key]; the public half gets .pub added
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}

/// `pack sign`
#[derive(Debug, Args)]
pub(crate) struct PackSignArgs {
    /// The pack's directory
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// The publisher's key; the passphrase is asked for, or read from standard input
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) key: PathBuf,
    /// Write the signed pack as one file too
    #[arg(long, value_name = "FILE.tar.zst", value_hint = clap::ValueHint::FilePath)]
    pub(crate) archive: Option<PathBuf>,
}

/// `pack install`
#[derive(Debug, Args)]
pub(crate) struct PackInstallArgs {
    /// A directory or a .tar.zst file
    #[arg(value_name = "PACK", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) path: PathBuf,
    /// Take a pack that nobody whom you trust has signed
    #[arg(long)]
    pub(crate) unsigned: bool,
    /// Let an older version take a newer one's place
    #[arg(long)]
    pub(crate) allow_downgrade: bool,
    /// Agree to what it may do without being asked
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// `pack list`
#[derive(Debug, Args)]
pub(crate) struct PackListArgs {}

/// `pack remove`
#[derive(Debug, Args)]
pub(crate) struct PackRemoveArgs {
    /// The pack
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

const EXAMPLES: &str = "\
Examples:
  stockade pack init deploy --publisher acme   write one to begin with
  stockade pack lint deploy
  stockade pack keygen acme                    acme.key and acme.key.pub
  stockade pack sign deploy --key acme.key --archive deploy.tar.zst
  stockade trust add acme acme.key.pub
  stockade pack install deploy.tar.zst";
