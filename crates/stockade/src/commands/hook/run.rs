//! `stockade hook run TICKET`: what was permitted a moment ago, behind the wall, once.

use std::ffi::OsString;
use std::process::ExitCode;

use super::claude::{agent, surroundings};
use super::question::real;
use super::ticket::Ticket;
use crate::Context;
use crate::assemble::assemble_with;
use crate::cli::SandboxFlags;
use crate::commands::run::launch;
use crate::engine::Subject;
use crate::failure::Failure;

pub(super) fn run(ticket: &str, context: &Context) -> Result<ExitCode, Failure> {
    let ticket = Ticket::take(ticket, context.places()?)?;
    if real(context.environment.current_dir()?) != ticket.cwd {
        return Err(Failure::new("ticket", "the script was permitted in another directory").with_hint("ask again"));
    }
    let assembled = assemble_with(&SandboxFlags::default(), &surroundings(agent(&ticket.name)), context)?;
    let script = OsString::from(ticket.script);
    launch(assembled, Subject::Script(&script), context)
}
