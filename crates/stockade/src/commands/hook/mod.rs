//! `stockade hook`: agents that ask before they act, by their own settings.
//!
//! ```text
//!  Claude Code ── "may I use Bash?" ──▶ hook claude ── rules ──▶ no: the reason, and the narrowest change
//!                                            └ yes: the command becomes `stockade hook run TICKET`
//!  Claude Code ── runs that ──▶ hook run ── takes the ticket, asks the rules again ──▶ the script runs behind the wall
//! ```
//!
//! `question` reads what an agent asks, `claude` answers, `ticket` is what binds a permitted script to the one run of it.

mod claude;
mod question;
mod run;
mod ticket;

use std::process::ExitCode;

use crate::Context;
use crate::cli::{HookArgs, HookVerb};
use crate::failure::Failure;

/// The exit code by which every version of Claude Code knows that the tool must not be used; the reason is standard error.
const BLOCK: u8 = 2;

pub(crate) fn run(args: &HookArgs, context: &Context) -> Result<ExitCode, Failure> {
    match &args.verb {
        HookVerb::Claude => Ok(match claude::answer(context) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                context.printer.failure(&failure);
                ExitCode::from(BLOCK)
            }
        }),
        HookVerb::Run(args) => run::run(&args.ticket, context),
    }
}
