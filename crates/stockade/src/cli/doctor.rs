//! `stockade doctor`: what this machine can enforce.

use clap::Args;

/// Say what this machine can enforce, what is missing, and the command that fixes it.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Do what can be done without asking for more rights, and print the rest
    #[arg(long)]
    pub(crate) fix: bool,
}
