//! `stockade install` and `stockade hook`: agents that ask before they act.

use clap::{Args, Subcommand, ValueEnum};

/// Have an agent ask Stockade before it acts, by its own settings.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InstallArgs {
    /// Which agent
    #[arg(value_enum, value_name = "AGENT")]
    pub(crate) agent: AgentChoice,
    /// Say what would be changed, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Take it out again; where nobody changed the file since, it is as it was before, to the byte
    #[arg(long)]
    pub(crate) uninstall: bool,
}

/// An agent whose settings can name Stockade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AgentChoice {
    /// Claude Code: a hook before its tools
    Claude,
    /// Codex: an MCP server in place of its shell
    Codex,
}

/// Answer an agent that asks before it acts.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct HookArgs {
    /// Who asks.
    #[command(subcommand)]
    pub(crate) verb: HookVerb,
}

/// Who asks.
#[derive(Debug, Subcommand)]
pub(crate) enum HookVerb {
    /// Claude Code before it uses a tool: its question is standard input, the answer standard output
    Claude,
    /// Run what was permitted a moment ago, once
    #[command(hide = true)]
    Run(TicketArgs),
}

/// `hook run`
#[derive(Debug, Args)]
pub(crate) struct TicketArgs {
    /// The ticket that the answer named
    #[arg(value_name = "TICKET")]
    pub(crate) ticket: String,
}

const EXAMPLES: &str = "\
Examples:
  stockade install claude               Claude Code asks before Bash, Read, Write, Edit and WebFetch
  stockade install claude --dry-run     what would be changed
  stockade install claude --uninstall   as it was before";
