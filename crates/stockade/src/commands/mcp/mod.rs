//! `stockade mcp`: serves agents, fronts other servers, and keeps what was accepted of those.

mod tools;

use std::process::ExitCode;

use crate::Context;
use crate::cli::{McpArgs, McpVerb, OutputFlags};
use crate::failure::Failure;

pub(crate) fn run(args: &McpArgs, flags: OutputFlags, context: &Context) -> Result<ExitCode, Failure> {
    match &args.verb {
        None => crate::mcp::run(args, flags, context),
        Some(McpVerb::Proxy(args)) => crate::mcp::proxy::run(args, context),
        Some(McpVerb::Tools(args)) => tools::run(args, context).map(|()| ExitCode::SUCCESS),
    }
}
