//! What a sandbox is, as flags of `run` and `sandbox create`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, builder::NonEmptyStringValueParser};
use stockade_broker::binding::SecretBinding;
use stockade_core::demand::Demand;
use stockade_core::host::HostPattern;
use stockade_core::limits::{parse_cpus, parse_duration, parse_size};
use stockade_core::spec::MountMode;

use super::values::{
    BackendChoice, EnvFlag, MountFlag, backend_parser, demand_parser, env_parser, host_parser, mode_parser, mount_parser, secret_parser,
};

/// What the sandbox is. A flag that was not given is `None` or empty: settings and defaults fill it in later.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct SandboxFlags {
    /// Which wall to use
    #[arg(long, value_name = "BACKEND", value_parser = backend_parser())]
    pub(crate) backend: Option<BackendChoice>,
    /// The directory that the work is about [default: the git top level around the current directory]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// What happens to changes: kept apart, written at once, or refused [default: overlay]
    #[arg(long, value_name = "MODE", value_parser = mode_parser())]
    pub(crate) workspace_mode: Option<MountMode>,
    /// Show one more file or directory inside; read-only unless it says :rw or :overlay
    #[arg(long = "mount", value_name = "HOST:GUEST[:ro|:rw|:overlay]", value_parser = mount_parser())]
    pub(crate) mounts: Vec<MountFlag>,
    /// Start in this directory of the sandbox
    #[arg(long, value_name = "PATH")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set a variable, or pass the caller's own
    #[arg(long = "env", value_name = "NAME[=VALUE]", value_parser = env_parser())]
    pub(crate) env: Vec<EnvFlag>,
    /// Start from a named checkpoint
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) checkpoint: Option<String>,
    /// Start from a container image (docker, kubernetes)
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) image: Option<String>,
    /// Apply the changes to the workspace when the exit code is 0
    #[arg(long)]
    pub(crate) apply: bool,

    /// Allow connections to a host (host, *.host, host:port); nothing is allowed otherwise
    #[arg(long = "allow-host", value_name = "PATTERN", value_parser = host_parser(), help_heading = "Network")]
    pub(crate) allow_hosts: Vec<HostPattern>,
    /// Let every host be reached, and say which ones --allow-host would have to name
    #[arg(long, help_heading = "Network")]
    pub(crate) learn: bool,
    /// Put a secret in on the way to these hosts; inside it is a placeholder
    #[arg(long = "secret", value_name = "NAME@HOST[,HOST...]", value_parser = secret_parser(), help_heading = "Network")]
    pub(crate) secrets: Vec<SecretBinding>,

    /// Let only these programs run
    #[arg(long, value_name = "PROGRAM[,PROGRAM...]", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new(), help_heading = "Limits")]
    pub(crate) exec_allow: Vec<String>,
    /// Kill everything after this time, such as 30s or 10m
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = parse_duration, help_heading = "Limits")]
    pub(crate) timeout: Option<Duration>,
    /// Processors, such as 2 or 0.5 (kept in thousandths)
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_cpus, help_heading = "Limits")]
    pub(crate) cpus: Option<u32>,
    /// Memory, such as 512M
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = parse_size, help_heading = "Limits")]
    pub(crate) memory: Option<u64>,
    /// Processes and threads
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Limits")]
    pub(crate) pids: Option<u32>,
    /// Bytes written to disk, such as 1G
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = parse_size, help_heading = "Limits")]
    pub(crate) disk: Option<u64>,
    /// Bytes of captured output, such as 10M; what is beyond is cut and marked
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = parse_size, help_heading = "Limits")]
    pub(crate) output_limit: Option<u64>,

    /// Start even if these demands cannot be held in full
    #[arg(long, value_name = "DEMAND[,DEMAND...]", value_delimiter = ',', value_parser = demand_parser(), help_heading = "Limits")]
    pub(crate) allow_degraded: Vec<Demand>,
    /// Refuse to start without this
    #[arg(long, value_enum, value_name = "WHAT", help_heading = "Limits")]
    pub(crate) require: Option<Requirement>,
}

/// Something that the wall must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Requirement {
    /// A virtual machine held by the processor
    HardwareVm,
}
