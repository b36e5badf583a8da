//! `stockade pack lint` and `stockade pack verify`.

use std::process::ExitCode;

use serde_json::json;
use stockade_policy::pack::Pack;
use stockade_store::packs::{PackError, Publishers, Standing, read_pack, standing};

use super::super::policy::tell;
use super::failure;
use crate::Context;
use crate::cli::PackPathArgs;
use crate::failure::Failure;

/// Checks everything but the signature.
pub(super) fn run(args: &PackPathArgs, context: &Context) -> Result<ExitCode, Failure> {
    let files = read_pack(&args.path).map_err(|error| failure(&error))?;
    let label = args.path.display().to_string();
    let label = label.trim_end_matches('/');
    let checked = Pack::read(&files, label).and_then(|pack| pack.lint(&files, label).map(|()| pack));
    match checked {
        Ok(pack) => {
            let examples: usize = pack.capabilities.iter().map(|file| file.capability.examples.len()).sum();
            if context.printer.is_json() {
                let value = json!({ "faults": [], "pack": pack.manifest.name.as_str(), "capabilities": pack.capabilities.len(), "examples": examples });
                context.printer.json(&value)?;
            } else {
                let capabilities = counted(pack.capabilities.len(), "capability", "capabilities");
                let examples = counted(examples, "example", "examples");
                context.printer.note(format!("`{}` holds: {capabilities}, {examples}", pack.manifest.name));
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(faults) => {
            tell(&faults, context)?;
            Ok(ExitCode::from(125))
        }
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Checks the signature, and everything else that an installation would.
pub(super) fn verify(args: &PackPathArgs, context: &Context) -> Result<ExitCode, Failure> {
    let files = read_pack(&args.path).map_err(|error| failure(&error))?;
    let pack = Pack::read(&files, "").map_err(|faults| failure(&PackError::Faults(faults)))?;
    let publishers = Publishers::load(context.places()?).map_err(|error| failure(&error.into()))?;
    let found = standing(&files, &pack.manifest, &publishers).map_err(|error| failure(&error))?;
    let (name, version) = (&pack.manifest.name, pack.manifest.version);
    let (key, publisher) = match &found {
        Standing::Signed { key_id, publisher } => (key_id.as_str(), publisher.as_str()),
        Standing::Unsigned | Standing::BuiltIn => ("", ""),
    };
    if context.printer.is_json() {
        context.printer.json(&json!({ "pack": name.as_str(), "version": version.to_string(), "publisher": publisher, "key": key }))?;
    } else {
        context.printer.note(format!("`{name}` {version} is as `{publisher}` signed it (key {key})"));
    }
    Ok(ExitCode::SUCCESS)
}
