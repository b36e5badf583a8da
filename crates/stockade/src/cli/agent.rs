//! `stockade agent`: a whole agent in a sandbox, and what comes of it.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use stockade_core::id::SandboxName;

use super::flags::SandboxFlags;
use super::sandbox::{ApplyArgs, DiffArgs};
use super::values::SandboxRef;

/// Run a whole agent (Claude Code, Codex and others) in a sandbox, its keys outside.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AgentArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: AgentVerb,
}

/// What to do with agents.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentVerb {
    /// Run an agent in a fresh sandbox; its changes are kept apart
    Run(Box<AgentRunArgs>),
    /// List agents that run, or ended within a week
    List,
    /// Show what an agent changed in the workspace
    Diff(DiffArgs),
    /// Bring an agent's changes into the workspace
    Apply(ApplyArgs),
    /// Join your terminal to a detached agent's; Ctrl-] lets go of it
    Attach(OneAgent),
    /// Print what a detached agent printed
    Logs(LogsArgs),
    /// Ask an agent to end, and end it two seconds later
    Stop(OneAgent),
    /// Say how to run an agent here: its keys, its hosts, what it is given
    Guide(GuideArgs),
}

/// `agent run`
#[derive(Debug, Args)]
#[command(override_usage = "stockade agent run [OPTIONS] -- AGENT [ARGS]...")]
pub(crate) struct AgentRunArgs {
    /// A name to call it by
    #[arg(long)]
    pub(crate) name: Option<SandboxName>,
    /// Give it a tree and a branch of its own beside the repository; the result is the branch stockade/NAME
    #[arg(long, requires = "name", conflicts_with_all = ["workspace", "workspace_mode", "apply"])]
    pub(crate) worktree: bool,
    /// Let it run in the background; attach, logs and stop reach it there
    #[arg(long, conflicts_with = "detached")]
    pub(crate) detach: bool,
    /// It is in the background already
    #[arg(long, value_enum, hide = true)]
    pub(crate) detached: Option<Detached>,
    /// Take the agent for this one, whatever its program is called; a path names a profile of your own
    #[arg(long, value_name = "NAME|PATH")]
    pub(crate) profile: Option<String>,
    /// End it after so many tokens, cached ones included
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Limits")]
    pub(crate) budget_tokens: Option<u64>,
    /// End it after so many dollars, by the prices of the setting agent.prices
    #[arg(long, value_name = "USD", value_parser = parse_dollars, help_heading = "Limits")]
    pub(crate) budget_usd: Option<f64>,
    /// What the sandbox is.
    #[command(flatten)]
    pub(crate) sandbox: SandboxFlags,
    /// The agent and its arguments, after --
    #[arg(last = true, required = true, num_args = 1.., value_name = "AGENT")]
    pub(crate) program: Vec<OsString>,
}

/// What a detached agent has for a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Detached {
    /// One that others can attach to.
    Terminal,
    /// None: its output goes to a file.
    Plain,
}

/// A verb about one agent.
#[derive(Debug, Args)]
pub(crate) struct OneAgent {
    /// Name or id
    pub(crate) agent: SandboxRef,
}

/// `agent logs`
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Name or id
    pub(crate) agent: SandboxRef,
    /// Go on until the agent ends
    #[arg(long)]
    pub(crate) follow: bool,
}

/// `agent guide`
#[derive(Debug, Args)]
pub(crate) struct GuideArgs {
    /// claude, codex, gemini, opencode or generic
    pub(crate) agent: Option<String>,
}

fn parse_dollars(text: &str) -> Result<f64, String> {
    match text.trim_start_matches('$').parse::<f64>() {
        Ok(dollars) if dollars > 0.0 && dollars <= 1e9 => Ok(dollars),
        Ok(_) | Err(_) => Err("write a number of dollars above 0, such as 2.50".to_owned()),
    }
}

const EXAMPLES: &str = "\
Examples:
  stockade agent run -- claude                              interactive, in this terminal
  stockade agent run -- claude -p 'fix the failing test'    headless
  stockade agent run --budget-tokens 500000 -- codex exec --json 'add a test'
  stockade agent run --detach --name night -- claude -p '…' in the background
  stockade agent diff ID                                    what it changed
  stockade agent apply ID                                   bring that into the workspace";

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Verb};

    fn parse(words: &[&str]) -> Result<AgentRunArgs, clap::Error> {
        let cli = Cli::try_parse_from(words)?;
        let Verb::Agent(args) = cli.verb else { panic!("{words:?} is no agent") };
        let AgentVerb::Run(args) = args.verb else { panic!("{words:?} is no run") };
        Ok(*args)
    }

    #[test]
    fn what_follows_the_dashes_is_the_agents_alone() {
        let args =
            parse(&["stockade", "agent", "run", "--name", "fix", "--budget-usd", "$2.50", "--", "claude", "-p", "--json", "x"]).unwrap();
        assert_eq!(args.program, ["claude", "-p", "--json", "x"]);
        assert_eq!((args.budget_usd, args.budget_tokens), (Some(2.5), None));
        assert!(parse(&["stockade", "agent", "run"]).is_err());
        assert!(parse(&["stockade", "agent", "run", "--budget-usd", "0", "--", "x"]).is_err());
        assert!(parse(&["stockade", "agent", "run", "--budget-tokens", "0", "--", "x"]).is_err());
    }
}
