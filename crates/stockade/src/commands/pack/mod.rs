//! `stockade pack`: writes, signs, checks, installs, lists and removes packs.
//!
//! What a pack is, is `stockade-policy`'s; reading, verifying and installing is `stockade-store`'s; here people are shown what they agree to.

mod consent;
mod init;
mod install;
mod keys;
mod lint;
mod list;
mod sign;

use std::process::ExitCode;

use stockade_policy::Faults;
use stockade_store::packs::PackError;

use crate::Context;
use crate::cli::{PackArgs, PackVerb};
use crate::failure::Failure;

pub(crate) use list::tell_problems;

const STEP: &str = "pack";

pub(crate) fn run(args: &PackArgs, context: &Context) -> Result<ExitCode, Failure> {
    match &args.verb {
        PackVerb::Init(args) => init::run(args, context),
        PackVerb::Lint(args) => lint::run(args, context),
        PackVerb::Keygen(args) => keys::run(args, context),
        PackVerb::Sign(args) => sign::run(args, context),
        PackVerb::Verify(args) => lint::verify(args, context),
        PackVerb::Install(args) => install::run(args, context),
        PackVerb::List(_) => list::run(context),
        PackVerb::Remove(args) => install::remove(args, context),
    }
}

/// A pack's error as a failure with its fix.
pub(crate) fn failure(error: &PackError) -> Failure {
    let failure = match error {
        PackError::Faults(faults) => Failure::new(STEP, headline(faults)),
        error => Failure::from_error(STEP, error),
    };
    match error.hint() {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

/// The first fault, and how many more there are.
fn headline(Faults(faults): &Faults) -> String {
    let first = faults.first().map_or_else(String::new, stockade_policy::Fault::headline);
    let others = faults.len().saturating_sub(1);
    if others == 0 { first } else { format!("{first} (and {others} more)") }
}
