//! `stockade secret`: values that sandboxes use without having them. No value is ever an argument.

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueEnum};

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
    /// Take over a login that a tool has: keep it, write the entry for it, and see that it works; deletes nothing
    Adopt(AdoptArgs),
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

/// `secret adopt`
#[derive(Debug, Args)]
pub(crate) struct AdoptArgs {
    /// Whose login
    #[arg(value_enum, value_name = "TOOL")]
    pub(crate) tool: AdoptTool,
    /// The secret's name, in place of the usual one
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<OsString>,
    /// Which host's login (gh, docker, npm)
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// Which profile, in place of `AWS_PROFILE` or `default` (aws)
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: Option<String>,
    /// Which context, in place of the current one (kube)
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) context: Option<String>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not see whether it works
    #[arg(long)]
    pub(crate) no_check: bool,
    /// Put it in the place of a secret and an entry of the same name
    #[arg(long)]
    pub(crate) replace: bool,
}

/// A tool that has logins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AdoptTool {
    /// Google Cloud's application default credentials
    Gcloud,
    /// The token of a context of kubectl
    Kube,
    /// Keys of a profile of AWS
    Aws,
    /// GitHub's command line
    Gh,
    /// A registry of images
    Docker,
    /// A registry of packages
    Npm,
}

impl AdoptTool {
    /// The word on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Gcloud => "gcloud",
            Self::Kube => "kube",
            Self::Aws => "aws",
            Self::Gh => "gh",
            Self::Docker => "docker",
            Self::Npm => "npm",
        }
    }

    /// The program that people log in with.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Kube => "kubectl",
            Self::Gcloud | Self::Aws | Self::Gh | Self::Docker | Self::Npm => self.word(),
        }
    }
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
  stockade secret adopt npm                     takes over what `npm login` left
  stockade secret adopt docker --host ghcr.io --dry-run
  stockade secret list
  stockade secret remove GITHUB_TOKEN";
