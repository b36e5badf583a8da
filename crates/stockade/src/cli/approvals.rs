//! `stockade approvals` and `stockade grants`: what waits for a person, and what a person let through for a while.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use stockade_core::limits::parse_duration;

/// Decide about calls that the rules ask a person about.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct ApprovalsArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: ApprovalsVerb,
}

/// What to do with requests.
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsVerb {
    /// List what waits, the oldest first
    List(ApprovalsListArgs),
    /// Show one request whole, with everything that it is bound to
    Show(OneRequest),
    /// Let a call through: the next one, or for longer
    Approve(ApproveArgs),
    /// Say no; asking again does not help for an hour
    Deny(DenyArgs),
    /// Ask at the terminal about what comes in, until standard input ends
    #[command(hide = true)]
    Prompt,
    /// Set up what tells you from an agent that runs as you
    Credential(CredentialArgs),
}

/// `approvals list`
#[derive(Debug, Args)]
pub(crate) struct ApprovalsListArgs {
    /// Also what was decided, used or ended in the last days
    #[arg(long)]
    pub(crate) all: bool,
    /// What waits of another user, for whom the administrator named you as the one who approves
    #[arg(long, value_name = "USER", conflicts_with = "all")]
    pub(crate) of: Option<String>,
}

/// One request.
#[derive(Debug, Args)]
pub(crate) struct OneRequest {
    /// Which
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Of another user, for whom the administrator named you as the one who approves
    #[arg(long, value_name = "USER")]
    pub(crate) of: Option<String>,
}

/// `approvals approve`
#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    /// Which
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Let the same call through as often as this session asks
    #[arg(long, conflicts_with_all = ["until", "as_rule"])]
    pub(crate) for_session: bool,
    /// Let the same call through for this long, such as 1h
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "as_rule")]
    pub(crate) until: Option<Duration>,
    /// Show the rule that would let it through without asking, and add it to your policy after a yes
    #[arg(long)]
    pub(crate) as_rule: bool,
    /// Do not ask once more
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Of another user, for whom the administrator named you as the one who approves
    #[arg(long, value_name = "USER", conflicts_with_all = ["for_session", "until", "as_rule"])]
    pub(crate) of: Option<String>,
}

/// `approvals deny`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).args(["id", "all"]))]
pub(crate) struct DenyArgs {
    /// Which
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// All that wait
    #[arg(long)]
    pub(crate) all: bool,
    /// With --all: only those of this agent (client/name)
    #[arg(long, value_name = "NAME", requires = "all", conflicts_with = "id")]
    pub(crate) agent: Option<String>,
    /// Of another user, for whom the administrator named you as the one who approves
    #[arg(long, value_name = "USER")]
    pub(crate) of: Option<String>,
}

/// `approvals credential`
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct CredentialArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: CredentialVerb,
}

/// What to do with the approver credential.
#[derive(Debug, Subcommand)]
pub(crate) enum CredentialVerb {
    /// Choose a passphrase, which is asked for or read from standard input; never an argument
    Set(CredentialSetArgs),
    /// Take it away: from then on nothing tells you from an agent that runs as you
    Remove(CredentialRemoveArgs),
    /// Say whether one is set up
    Status(CredentialStatusArgs),
    /// Make a key to approve for other users of this machine, and print what an administrator puts at /etc/stockade/approver.json
    Key(CredentialKeyArgs),
}

/// `approvals credential set`
#[derive(Debug, Args)]
pub(crate) struct CredentialSetArgs {}

/// `approvals credential remove`
#[derive(Debug, Args)]
pub(crate) struct CredentialRemoveArgs {}

/// `approvals credential key`
#[derive(Debug, Args)]
pub(crate) struct CredentialKeyArgs {
    /// The directory in which daemons show what waits; root's, and sticky
    #[arg(long, value_name = "DIR", default_value = "/run/stockade-approvals")]
    pub(crate) sockets: PathBuf,
}

/// `approvals credential status`
#[derive(Debug, Args)]
pub(crate) struct CredentialStatusArgs {}

/// See and take back what was approved for longer than one call.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct GrantsArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: GrantsVerb,
}

/// What to do with grants.
#[derive(Debug, Subcommand)]
pub(crate) enum GrantsVerb {
    /// List grants that stand
    List(GrantsListArgs),
    /// Take grants back
    Revoke(RevokeArgs),
}

/// `grants list`
#[derive(Debug, Args)]
pub(crate) struct GrantsListArgs {}

/// `grants revoke`
#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// Which
    #[arg(required = true, num_args = 1.., value_name = "ID")]
    pub(crate) ids: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  stockade approvals list
  stockade approvals show 3f9a0c61d2b7
  stockade approvals approve 3f9a0c61d2b7              the next such call runs
  stockade approvals approve 3f9a0c61d2b7 --until 1h
  stockade approvals deny 3f9a0c61d2b7
  stockade approvals deny --all --agent claude/main    whatever waits of this agent
  stockade approvals credential set                    so that an agent cannot approve its own
  stockade approvals approve 3f9a0c61d2b7 --of alice   what alice's agents ask for, where you are the one who approves";
