//! `stockade agent`: a whole agent in a sandbox, and what comes of it.

mod attach;
mod changes;
mod detach;
mod ending;
mod guide;
mod list;
mod run;
mod running;

use std::process::ExitCode;

use crate::Context;
use crate::cli::{AgentArgs, AgentVerb};
use crate::failure::Failure;

/// Does what `stockade agent` was asked for.
pub(crate) fn run(args: &AgentArgs, context: &Context) -> Result<ExitCode, Failure> {
    match &args.verb {
        AgentVerb::Run(args) => run::run(args, context),
        AgentVerb::List => list::list(context),
        AgentVerb::Diff(args) => changes::diff(args, context),
        AgentVerb::Apply(args) => changes::apply(args, context),
        AgentVerb::Attach(args) => attach::attach(args, context),
        AgentVerb::Logs(args) => running::logs(args, context),
        AgentVerb::Stop(args) => running::stop(args, context),
        AgentVerb::Guide(args) => guide::guide(args, context),
    }
}
