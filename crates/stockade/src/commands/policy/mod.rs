//! `stockade policy`: checks, tries and explains the rules, adds some, and lets others be proposed.

mod check;
mod import;
mod propose;
mod question;

pub(crate) use check::tell;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use stockade_sandbox::workspace::locate;
use stockade_store::policy::PolicyError;

use crate::Context;
use crate::cli::{PolicyArgs, PolicyVerb};
use crate::failure::Failure;

const STEP: &str = "policy";
/// Bytes of one file that is named on the command line.
const MAX_FILE: u64 = 1 << 20;

pub(crate) fn run(args: &PolicyArgs, context: &Context) -> Result<ExitCode, Failure> {
    match &args.verb {
        PolicyVerb::Check(args) => check::check(args, context),
        PolicyVerb::Test(_) => check::test(context),
        PolicyVerb::Explain(args) => question::explain(&args.question, context),
        PolicyVerb::Allow(args) => question::allow(args, context),
        PolicyVerb::Propose(args) => propose::propose(args, context),
        PolicyVerb::Proposals(args) => propose::proposals(args, context),
        PolicyVerb::Import(args) => import::import(args, context),
    }
}

pub(super) fn workspace(asked: Option<&PathBuf>, context: &Context) -> Result<PathBuf, Failure> {
    let located = locate::locate(context.environment.current_dir()?, asked.map(PathBuf::as_path), &context.places()?.home);
    match located {
        Ok(located) => Ok(located.path.as_path().to_owned()),
        // Rules of a person and a machine hold in any directory.
        Err(_) if asked.is_none() => Ok(context.environment.current_dir()?.to_owned()),
        Err(error) => Err(Failure::from_error("workspace", &error)),
    }
}

/// The text of a file that was named.
fn read(path: &Path) -> Result<String, Failure> {
    use std::io::Read;

    let failed = |error: std::io::Error| Failure::from_error(STEP, &PolicyError::Read(path.to_owned(), error));
    let mut bytes = Vec::new();
    std::fs::File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(Failure::from_error(STEP, &PolicyError::TooLarge(path.to_owned())));
    }
    String::from_utf8(bytes).map_err(|_| Failure::from_error(STEP, &PolicyError::NotText(path.to_owned())))
}
