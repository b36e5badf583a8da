//! `stockade trust`: whose packs may be installed, and which projects' rules count.

mod project;
mod publishers;

use std::process::ExitCode;

use crate::Context;
use crate::cli::{TrustArgs, TrustVerb};
use crate::failure::Failure;

pub(crate) fn run(args: &TrustArgs, context: &Context) -> Result<ExitCode, Failure> {
    match &args.verb {
        TrustVerb::Project(args) => project::project(args, context)?,
        TrustVerb::Add(args) => publishers::add(args, context)?,
        TrustVerb::List(_) => publishers::list(context)?,
        TrustVerb::Remove(args) => publishers::remove(args, context)?,
    }
    Ok(ExitCode::SUCCESS)
}
