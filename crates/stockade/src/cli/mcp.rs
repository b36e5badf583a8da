//! `stockade mcp`: a server for agents, on standard input and output; and the front of other servers.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use stockade_core::id::SandboxName;
use stockade_policy::pack::{ServerName, ToolName};

use super::flags::SandboxFlags;

/// Serve agents over MCP on standard input and output.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct McpArgs {
    /// The directory that the work is about [default: the git top level around the current directory]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// What rules call this agent: Agent::"CLIENT/NAME" [default: main]
    #[arg(long)]
    pub(crate) name: Option<SandboxName>,
    /// Something else than serving Stockade's own tools.
    #[command(subcommand)]
    pub(crate) verb: Option<McpVerb>,
}

/// What else there is.
#[derive(Debug, Subcommand)]
pub(crate) enum McpVerb {
    /// Put another MCP server behind the wall, and pass on the tools of it that you accepted
    Proxy(Box<ProxyArgs>),
    /// See and accept tools of other MCP servers
    Tools(ToolsArgs),
}

/// `mcp proxy`
#[derive(Debug, Args)]
#[command(
    override_usage = "stockade mcp proxy --server SERVER [OPTIONS] -- PROGRAM [ARGS]...\n       stockade mcp proxy --server SERVER [OPTIONS] --url URL",
    after_help = PROXY_EXAMPLES
)]
pub(crate) struct ProxyArgs {
    /// What you call the server; rules call its tools mcp.SERVER.TOOL
    #[arg(long)]
    pub(crate) server: ServerName,
    /// What rules call this agent: Agent::"CLIENT/NAME" [default: main]
    #[arg(long)]
    pub(crate) name: Option<SandboxName>,
    /// A server that is reached over HTTPS, in the place of a program; one --secret, if there is one, is its bearer token
    #[arg(long, value_name = "URL", value_hint = clap::ValueHint::Url, conflicts_with = "program")]
    pub(crate) url: Option<String>,
    /// The server and its arguments, after --
    #[arg(last = true, required_unless_present = "url", num_args = 1.., value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
    /// What its sandbox is. The time limit is that of one call.
    #[command(flatten)]
    pub(crate) sandbox: SandboxFlags,
}

/// `mcp tools`
#[derive(Debug, Args)]
#[command(after_help = TOOLS_EXAMPLES, arg_required_else_help = true)]
pub(crate) struct ToolsArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: ToolsVerb,
}

/// What to do with tools of other servers.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolsVerb {
    /// Print the tools of all servers that were proxied, and how they stand
    List(ToolsListArgs),
    /// Print what waits to be accepted: whole, and what changed in it
    Show(ToolsOfServer),
    /// Accept what `show` printed
    Accept(ToolsAcceptArgs),
    /// Take acceptance back
    Forget(ToolsOfServer),
}

/// `mcp tools list`
#[derive(Debug, Args)]
pub(crate) struct ToolsListArgs {
    /// Only those of this server
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<ServerName>,
}

/// Tools of one server.
#[derive(Debug, Args)]
pub(crate) struct ToolsOfServer {
    /// The server, as `mcp proxy --server` called it
    #[arg(value_name = "SERVER")]
    pub(crate) server: ServerName,
    /// Only these tools [default: all]
    #[arg(value_name = "TOOL")]
    pub(crate) tools: Vec<ToolName>,
}

/// `mcp tools accept`
#[derive(Debug, Args)]
pub(crate) struct ToolsAcceptArgs {
    /// Which ones.
    #[command(flatten)]
    pub(crate) which: ToolsOfServer,
    /// The digest that `show` printed with the same tools: what you saw is what is accepted
    #[arg(long, value_name = "SHA256")]
    pub(crate) digest: String,
    /// What they do, for rules and approvals; a server's own word on it does not count
    #[arg(long, value_enum, default_value = "write")]
    pub(crate) effect: EffectChoice,
}

/// What a tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EffectChoice {
    /// It looks
    Read,
    /// It changes something that can be changed back
    Write,
    /// It removes, publishes or overwrites
    Destructive,
}

const EXAMPLES: &str = "\
Examples:
  claude mcp add stockade -- stockade mcp           Claude Code
  codex mcp add stockade -- stockade mcp            Codex
  stockade mcp --workspace ~/project --name review  another place, another name

What changed is kept apart when the client goes: see `stockade sandbox list`,
`diff` and `apply`.";

const PROXY_EXAMPLES: &str = "\
Examples:
  stockade mcp proxy --server files -- mcp-server-filesystem .
  stockade mcp proxy --server github --allow-host api.github.com \\
      --secret GITHUB_TOKEN@api.github.com -- github-mcp-server stdio
  stockade mcp proxy --server linear --secret LINEAR_KEY@mcp.linear.app \\
      --url https://mcp.linear.app/mcp

Tools that nobody accepted are not passed on: see `stockade mcp tools`.";

const TOOLS_EXAMPLES: &str = "\
Examples:
  stockade mcp tools list
  stockade mcp tools show github
  stockade mcp tools accept github --digest 3f2a… --effect read";
