//! `stockade sandbox`: the walls, and sandboxes that live longer than one command.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use stockade_core::id::{SandboxId, SandboxName};
use stockade_core::limits::parse_duration;
use stockade_core::path::SafePath;

use super::flags::SandboxFlags;
use super::values::{BackendChoice, CopyEnd, EnvFlag, SandboxRef, backend_parser, copy_parser, env_parser, safe_path_parser};

/// Show what the walls enforce, and keep sandboxes that live longer than one command.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SandboxArgs {
    /// What to do; without a verb the active wall and what each enforces is shown.
    #[command(subcommand)]
    pub(crate) verb: Option<SandboxVerb>,
}

/// What to do with sandboxes.
#[derive(Debug, Subcommand)]
pub(crate) enum SandboxVerb {
    /// Choose the wall for later commands (user settings)
    Use(UseArgs),
    /// Make a sandbox and keep it
    Create(Box<CreateArgs>),
    /// List sandboxes
    List,
    /// Run a program in a sandbox
    Exec(ExecArgs),
    /// Open an interactive shell in a sandbox
    Shell(OneSandbox),
    /// Print a file of a sandbox
    Read(ReadArgs),
    /// Write stdin to a file of a sandbox
    Write(WriteArgs),
    /// Copy a file into or out of a sandbox
    Cp(CopyArgs),
    /// Show what a sandbox changed in the workspace
    Diff(DiffArgs),
    /// Bring a sandbox's changes into the workspace
    Apply(ApplyArgs),
    /// Throw a sandbox's changes away
    Discard(OneSandbox),
    /// Show what a sandbox tried to reach, and what was answered
    Network(NetworkArgs),
    /// Freeze everything in a sandbox
    Pause(OneSandbox),
    /// Let a frozen sandbox go on
    Resume(OneSandbox),
    /// Make a second sandbox with the same changes of the workspace
    Fork(ForkArgs),
    /// Remove kept changes and sandboxes that nobody owns any more
    Prune(PruneArgs),
    /// End sandboxes and remove what they kept
    Destroy(DestroyArgs),
}

/// `sandbox use`
#[derive(Debug, Args)]
pub(crate) struct UseArgs {
    /// Which wall
    #[arg(value_parser = backend_parser())]
    pub(crate) backend: BackendChoice,
}

/// `sandbox create`
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// A name to call it by
    #[arg(long)]
    pub(crate) name: Option<SandboxName>,
    /// What the sandbox is.
    #[command(flatten)]
    pub(crate) sandbox: SandboxFlags,
}

/// `sandbox exec`
#[derive(Debug, Args)]
#[command(override_usage = "stockade sandbox exec [OPTIONS] SANDBOX -- PROGRAM [ARGS]...")]
pub(crate) struct ExecArgs {
    /// Name or id
    pub(crate) sandbox: SandboxRef,
    /// Start in this directory of the sandbox
    #[arg(long, value_name = "PATH")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set a variable, or pass the caller's own
    #[arg(long = "env", value_name = "NAME[=VALUE]", value_parser = env_parser())]
    pub(crate) env: Vec<EnvFlag>,
    /// Kill the program's process group after this time, such as 30s
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// The program and its arguments, after --
    #[arg(last = true, required = true, num_args = 1.., value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// A verb about one sandbox.
#[derive(Debug, Args)]
pub(crate) struct OneSandbox {
    /// Name or id
    pub(crate) sandbox: SandboxRef,
}

/// `sandbox network`
#[derive(Debug, Args)]
pub(crate) struct NetworkArgs {
    /// Name or id
    pub(crate) sandbox: SandboxRef,
    /// Go on until the sandbox ends
    #[arg(long)]
    pub(crate) follow: bool,
}

/// `sandbox read`
#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    /// Name or id
    pub(crate) sandbox: SandboxRef,
    /// Absolute path inside
    #[arg(value_parser = safe_path_parser())]
    pub(crate) path: SafePath,
}

/// `sandbox write`
#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    /// Name or id
    pub(crate) sandbox: SandboxRef,
    /// Absolute path inside
    #[arg(value_parser = safe_path_parser())]
    pub(crate) path: SafePath,
}

/// `sandbox cp`
#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// A file here, or SANDBOX:/path
    #[arg(value_name = "SRC", value_parser = copy_parser())]
    pub(crate) source: CopyEnd,
    /// A file here, or SANDBOX:/path
    #[arg(value_name = "DST", value_parser = copy_parser())]
    pub(crate) target: CopyEnd,
}

/// `sandbox diff`
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Name or id
    pub(crate) sandbox: SandboxRef,
    /// List the changed paths only
    #[arg(long)]
    pub(crate) stat: bool,
}

/// `sandbox apply`
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// Name or id
    pub(crate) sandbox: SandboxRef,
    /// Also apply this protected path, which may run code outside later (repeat)
    #[arg(long = "accept-protected", value_name = "PATH")]
    pub(crate) accept_protected: Vec<PathBuf>,
}

/// `sandbox fork`
#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// Name or id
    pub(crate) sandbox: SandboxRef,
    /// A name to call the new one by
    #[arg(long)]
    pub(crate) name: Option<SandboxName>,
}

/// `sandbox prune`
#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Also what is younger than seven days
    #[arg(long)]
    pub(crate) all: bool,
}

/// `sandbox destroy`
#[derive(Debug, Args)]
pub(crate) struct DestroyArgs {
    /// Names or ids
    #[arg(required = true, value_name = "SANDBOX")]
    pub(crate) sandboxes: Vec<SandboxRef>,
}

/// `hold`: started by `sandbox create`, never by people.
#[derive(Debug, Args)]
pub(crate) struct HoldArgs {
    /// The sandbox's id
    pub(crate) id: SandboxId,
    /// A directory that what it shows of the host may lie in; repeatable. None: anywhere
    #[arg(long, value_name = "DIR")]
    pub(crate) within: Vec<PathBuf>,
    /// A wall that it may have; repeatable. Counts where a directory is given
    #[arg(long, value_name = "WALL")]
    pub(crate) wall: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  stockade sandbox                              the active wall, and what each one enforces
  stockade sandbox create --name box            make a sandbox that stays
  stockade sandbox exec box -- npm test         run something in it
  stockade sandbox cp report.txt box:/tmp/      copy a file in
  stockade sandbox diff box                     see what changed
  stockade sandbox apply box                    bring the changes into the workspace
  stockade sandbox destroy box                  end it";
