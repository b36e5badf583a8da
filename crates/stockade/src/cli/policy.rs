//! `stockade policy`, `stockade init` and `stockade trust`: what may be done.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use stockade_core::host::HostPattern;

/// Check, try and explain the rules.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct PolicyArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: PolicyVerb,
}

/// What to do with the rules.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Check that the rules stand: syntax, names, types and examples
    Check(CheckArgs),
    /// Try the examples above the rules
    Test(TestArgs),
    /// Say what the rules make of a command or a host, and which rule decides
    Explain(ExplainArgs),
    /// Add the narrowest rule that allows a command or a host to your own rules, or one that was proposed
    Allow(AllowArgs),
    /// Propose the narrowest rule that allows a command or a host; a person decides
    Propose(ProposeArgs),
    /// Print the rules that were proposed
    Proposals(ProposalsArgs),
    /// Make your own rules of those of another program
    Import(ImportArgs),
}

/// `policy check`
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Check these files instead of the rules in force
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// Print what rules may name, in Cedar's schema language
    #[arg(long, conflicts_with = "files")]
    pub(crate) schema: bool,
}

/// `policy test`
#[derive(Debug, Args)]
pub(crate) struct TestArgs {}

/// A command, a host or a capability that is asked about; nothing runs.
#[derive(Debug, Args)]
pub(crate) struct QuestionArgs {
    /// The program and its arguments, after --
    #[arg(last = true, num_args = 1.., value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
    /// A script for bash instead of a program
    #[arg(long, value_name = "SCRIPT", allow_hyphen_values = true)]
    pub(crate) shell: Option<String>,
    /// A host instead of a program: HOST[:PORT]
    #[arg(long, value_name = "HOST", value_parser = HostPattern::parse)]
    pub(crate) host: Option<HostPattern>,
    /// A capability instead of a program
    #[arg(long, value_name = "CAPABILITY")]
    pub(crate) cap: Option<String>,
    /// One input of the capability
    #[arg(short, long = "input", value_name = "NAME=VALUE", requires = "cap", allow_hyphen_values = true)]
    pub(crate) inputs: Vec<String>,
    /// Ask for this agent (client/name) instead of yourself
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// The directory that the work is about [default: the git top level around the current directory]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
}

/// `policy explain`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["program", "shell", "host", "cap"]))]
pub(crate) struct ExplainArgs {
    /// What is asked about.
    #[command(flatten)]
    pub(crate) question: QuestionArgs,
}

/// `policy allow`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["program", "shell", "host", "cap", "proposal"]))]
pub(crate) struct AllowArgs {
    /// The proposal to allow (stockade policy proposals)
    #[arg(value_name = "ID", conflicts_with_all = ["agent", "workspace"])]
    pub(crate) proposal: Option<String>,
    /// What is to be allowed.
    #[command(flatten)]
    pub(crate) question: QuestionArgs,
}

/// `policy propose`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["program", "shell", "host", "cap"]))]
pub(crate) struct ProposeArgs {
    /// Why, in words for the person who decides
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// What is to be allowed.
    #[command(flatten)]
    pub(crate) question: QuestionArgs,
}

/// `policy proposals`
#[derive(Debug, Args)]
pub(crate) struct ProposalsArgs {
    /// Take this one away instead
    #[arg(long, value_name = "ID")]
    pub(crate) remove: Option<String>,
}

/// `policy import`
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Whose rules they are
    #[arg(value_enum, value_name = "PROGRAM")]
    pub(crate) origin: Origin,
    /// Settings of Claude Code (settings.json), or rules of Codex (*.rules)
    #[arg(required = true, num_args = 1.., value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// Print the rules and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Whose rules are imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Origin {
    /// Claude Code's permission rules
    Claude,
    /// Codex's prefix rules
    Codex,
}

impl Origin {
    /// The word on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
        }
    }
}

/// Write a starter policy into your own rules.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Which
    #[arg(long, value_enum, default_value_t = Preset::Developer)]
    pub(crate) preset: Preset,
}

/// A starter policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// Agents look at files and history
    ReadOnly,
    /// Agents run any program, without network
    Developer,
    /// Agents build and test, and publish nothing
    Ci,
}

/// Say whose packs and which projects' rules are trusted.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct TrustArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: TrustVerb,
}

/// Whom to trust.
#[derive(Debug, Subcommand)]
pub(crate) enum TrustVerb {
    /// Let the permits of this repository's .stockade/policy count, until they change
    Project(TrustProjectArgs),
    /// Trust a publisher's key: packs that it signed can be installed
    Add(TrustAddArgs),
    /// Print the keys and the projects that are trusted
    List(TrustListArgs),
    /// Trust a publisher's key no longer: its packs do not load any more
    Remove(TrustRemoveArgs),
}

/// `trust project`
#[derive(Debug, Args)]
pub(crate) struct TrustProjectArgs {
    /// Take it back
    #[arg(long)]
    pub(crate) remove: bool,
    /// The directory that the work is about [default: the git top level around the current directory]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
}

/// `trust add`
#[derive(Debug, Args)]
pub(crate) struct TrustAddArgs {
    /// The publisher's name, as its packs write it
    #[arg(value_name = "PUBLISHER")]
    pub(crate) publisher: String,
    /// The public key: a PEM file, or 64 hexadecimal digits
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
}

/// `trust remove`
#[derive(Debug, Args)]
pub(crate) struct TrustRemoveArgs {
    /// A publisher, or the id of one key
    #[arg(value_name = "PUBLISHER|KEY")]
    pub(crate) which: String,
    /// The key was stolen: it can never be trusted again
    #[arg(long)]
    pub(crate) revoke: bool,
}

/// `trust list`
#[derive(Debug, Args)]
pub(crate) struct TrustListArgs {}

const EXAMPLES: &str = "\
Examples:
  stockade policy check
  stockade policy explain -- git push origin main
  stockade policy explain --agent claude/main --shell 'make && rm -r /tmp/x'
  stockade policy allow --agent claude/main -- git push origin main
  stockade policy allow --host api.github.com
  stockade policy import claude ~/.claude/settings.json --dry-run";
