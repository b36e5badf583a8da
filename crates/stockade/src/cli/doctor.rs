//! `stockade doctor`: what this machine can enforce.

use clap::Args;

/// Say what this machine can enforce, what is missing, and the command that fixes it.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Show what would be changed, ask, and change it; what only root may change is done as root
    #[arg(long)]
    pub(crate) fix: bool,
    /// Change it without asking
    #[arg(long, requires = "fix")]
    pub(crate) yes: bool,
}
