//! The command line as types: one file per group of verbs.
//!
//! These types hold what was written, parsed and checked one value at a time. They make no decisions, read no
//! environment and touch no file; `commands/` does the work.

mod agent;
mod approvals;
mod cap;
mod config;
mod doctor;
mod flags;
mod integration;
mod mcp;
mod output;
mod pack;
mod policy;
mod receipts;
mod run;
mod sandbox;
mod secret;
mod serve;
mod shipped;
mod values;

use std::ffi::OsString;

use clap::{Parser, Subcommand};

pub(crate) use agent::{AgentArgs, AgentRunArgs, AgentVerb, Detached, GuideArgs, LogsArgs, OneAgent};
pub(crate) use approvals::{
    ApprovalsArgs, ApprovalsListArgs, ApprovalsVerb, ApproveArgs, CredentialKeyArgs, CredentialVerb, DenyArgs, GrantsArgs, GrantsVerb,
    OneRequest, RevokeArgs,
};
pub(crate) use cap::{CapArgs, CapListArgs, CapRunArgs, CapShowArgs, CapVerb};
pub(crate) use config::{ConfigArgs, ConfigVerb, GetArgs, LayerChoice, SetArgs, UnsetArgs};
pub(crate) use doctor::DoctorArgs;
pub(crate) use flags::SandboxFlags;
pub(crate) use integration::{AgentChoice, HookArgs, HookVerb, InstallArgs};
pub(crate) use mcp::{EffectChoice, McpArgs, McpVerb, ProxyArgs, ToolsAcceptArgs, ToolsArgs, ToolsListArgs, ToolsOfServer, ToolsVerb};
pub(crate) use output::{ColorWish, OutputFlags};
pub(crate) use pack::{PackArgs, PackInitArgs, PackInstallArgs, PackKeygenArgs, PackPathArgs, PackRemoveArgs, PackSignArgs, PackVerb};
pub(crate) use policy::{
    AllowArgs, CheckArgs, ImportArgs, InitArgs, Origin, PolicyArgs, PolicyVerb, Preset, ProposalsArgs, ProposeArgs, QuestionArgs,
    TrustAddArgs, TrustArgs, TrustProjectArgs, TrustRemoveArgs, TrustVerb,
};
pub(crate) use receipts::{
    ExportArgs, FilterFlags, ListReceiptsArgs, OneReceipt, ProveArgs, ReceiptsArgs, ReceiptsVerb, ReplayArgs, ReportArgs, ReportForm,
    TailArgs, VerifyArgs,
};
#[cfg(test)]
pub(crate) use receipts::{KindChoice, VerdictChoice};
pub(crate) use run::RunArgs;
pub(crate) use sandbox::{
    ApplyArgs, CopyArgs, CreateArgs, DestroyArgs, DiffArgs, ExecArgs, ForkArgs, HoldArgs, NetworkArgs, OneSandbox, PruneArgs, ReadArgs,
    SandboxArgs, SandboxVerb, UseArgs, WriteArgs,
};
pub(crate) use secret::{AdoptArgs, AdoptTool, RemoveSecretArgs, SecretArgs, SecretVerb, SetSecretArgs};
pub(crate) use serve::{LogForm, ServeArgs};
pub(crate) use shipped::{CompletionsArgs, DocsReferenceArgs, ManArgs};
pub(crate) use values::{BackendChoice, CopyEnd, EnvFlag, MountFlag, SandboxRef};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "stockade",
    bin_name = "stockade",
    version,
    about = "Run what an AI agent asks for behind a wall",
    long_about = "Run what an AI agent asks for behind a wall.\n\nPrograms see the workspace and the system's own files, and nothing else of this machine: no home \
                  directory, no network, no credentials. Their changes to the workspace are kept apart until you apply them.",
    after_help = EXAMPLES,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a program in a fresh sandbox
    Run(Box<RunArgs>),
    /// Run a whole agent (Claude Code, Codex and others) in a sandbox, its keys outside
    Agent(Box<AgentArgs>),
    /// Show what the walls enforce, and keep sandboxes that live longer than one command
    Sandbox(Box<SandboxArgs>),
    /// Keep secrets that sandboxes use without ever having them
    Secret(SecretArgs),
    /// Check, try and explain the rules about what may run
    Policy(PolicyArgs),
    /// Write a starter policy into your own rules
    Init(InitArgs),
    /// Say whose packs and which projects' rules you trust
    Trust(TrustArgs),
    /// List, show and run capabilities: typed operations of programs
    Cap(CapArgs),
    /// Write, sign, check and install packs of capabilities
    Pack(PackArgs),
    /// Serve agents over MCP on standard input and output
    Mcp(McpArgs),
    /// Keep sandboxes ready, so that `run` starts faster; or serve agents over MCP on HTTP
    Serve(ServeArgs),
    /// Decide about calls that the rules ask a person about
    Approvals(ApprovalsArgs),
    /// See and take back what was approved for longer than one call
    Grants(GrantsArgs),
    /// See and prove what was asked for, decided and done
    Receipts(Box<ReceiptsArgs>),
    /// Have an agent ask Stockade before it acts, by its own settings
    Install(InstallArgs),
    /// Answer an agent that asks before it acts (what `install` puts into its settings)
    Hook(HookArgs),
    /// Read and change settings
    Config(ConfigArgs),
    /// Say what this machine can enforce, what is missing, and the command that fixes it
    Doctor(DoctorArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page, or write all of them into a directory
    Man(ManArgs),
    /// Print the version (the same as --version, and with --json as an object)
    Version,
    /// Own one created sandbox until it is destroyed
    #[command(hide = true)]
    Hold(HoldArgs),
    /// Hold secrets for the sandboxes of one command: the owner's connection is stdin, that of egress is stdout
    #[command(hide = true)]
    Broker,
    /// Make jails for the daemon, whose connection is stdin
    #[command(hide = true)]
    Launcher,
    /// Start other roles for a confined server, whose connection is stdin
    #[command(hide = true)]
    Steward,
    /// Confine this process as servers do, and say what it can do all the same
    #[command(hide = true)]
    Confinement,
    /// Be the way out of one sandbox: the owner's connection is stdin
    #[command(hide = true)]
    Egress,
    /// Print the reference of all commands and flags as Markdown
    #[command(hide = true)]
    DocsReference(DocsReferenceArgs),
}

impl Cli {
    /// Reads a command line. Building the tree of all verbs and flags takes longer than reading any line, so where the line begins with
    /// the verb that is to be quick, only that one's is built. What does not parse there is judged again by the whole tree. The line that an agent's
    /// settings hold needs none: an agent waits for it before each use of a tool.
    pub(crate) fn read(argv: &[OsString]) -> Result<Self, clap::Error> {
        if let [_, hook, claude] = argv
            && hook == "hook"
            && claude == "claude"
        {
            return Ok(Self { output: OutputFlags::default(), verb: Verb::Hook(HookArgs { verb: HookVerb::Claude }) });
        }
        if argv.get(1).is_some_and(|verb| verb == "run")
            && let Ok(line) = RunLine::try_parse_from(argv)
        {
            let RunVerb::Run(args) = line.verb;
            return Ok(Self { output: line.output, verb: Verb::Run(args) });
        }
        Self::try_parse_from(argv)
    }
}

/// A command line of `run` alone.
#[derive(Debug, Parser)]
#[command(name = "stockade", subcommand_required = true, disable_help_subcommand = true)]
struct RunLine {
    #[command(flatten)]
    output: OutputFlags,
    #[command(subcommand)]
    verb: RunVerb,
}

#[derive(Debug, Subcommand)]
enum RunVerb {
    Run(Box<RunArgs>),
}

const EXAMPLES: &str = "\
Examples:
  stockade run -- npm test             run the tests; changes are kept apart
  stockade agent run -- claude         a whole agent, its key outside
  stockade sandbox                     what the wall on this machine enforces
  stockade doctor                      what is missing, and how to get it

Exit codes: the program's own; 124 timed out; 125 Stockade failed;
            126 denied; 127 no such program";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_not_parsed_means_what_the_parser_says() {
        for line in [&["stockade", "hook", "claude"][..], &["stockade", "run", "--json", "--", "true"]] {
            let argv: Vec<OsString> = line.iter().map(OsString::from).collect();
            let (quick, whole) = (Cli::read(&argv).unwrap(), Cli::try_parse_from(&argv).unwrap());
            assert_eq!(format!("{quick:?}"), format!("{whole:?}"));
        }
        let argv: Vec<OsString> = ["stockade", "hook", "claude", "--quiet"].iter().map(OsString::from).collect();
        assert!(Cli::read(&argv).unwrap().output.quiet, "flags are still read");
    }
}
