//! `serve`: the daemon, and with an address the server for agents that connect, each in a process of its own.

use std::process::ExitCode;

use crate::Context;
use crate::cli::{OutputFlags, ServeArgs};
use crate::failure::Failure;
use crate::{daemon, http};

/// Serves until it is told to end.
pub(crate) fn run(args: &ServeArgs, flags: OutputFlags, context: &Context) -> Result<ExitCode, Failure> {
    // Before anything is confined, and before signals are caught.
    let _prompter = args.foreground.then(daemon::Prompter::start).transpose()?;
    match args.listen {
        Some(address) => http::serve(address, args, flags, context),
        None if args.new_token => http::new_token(context).map(|()| ExitCode::SUCCESS),
        None => daemon::serve(args, context),
    }
}
