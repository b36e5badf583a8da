//! `stockade pack sign`: a signature over every file of a pack, and the pack as one file.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use stockade_policy::pack::{Pack, SIGNATURE};
use stockade_store::packs::{PackError, read_directory, sign, write_archive};

use super::{STEP, failure, keys};
use crate::Context;
use crate::cli::PackSignArgs;
use crate::failure::Failure;
use crate::receipts::lifecycle;

pub(super) fn run(args: &PackSignArgs, context: &Context) -> Result<ExitCode, Failure> {
    if args.directory.is_file() {
        let message = format!("`{}` is a file", args.directory.display());
        return Err(Failure::new(STEP, message).with_hint("give the pack's directory; --archive makes a file of it"));
    }
    let files = read_directory(&args.directory).map_err(|error| failure(&error))?;
    let label = args.directory.display().to_string();
    // What does not stand is not worth a signature.
    let pack = Pack::read(&files, &label).and_then(|pack| pack.lint(&files, &label).map(|()| pack));
    let pack = pack.map_err(|faults| failure(&PackError::Faults(faults)))?;
    let key = keys::open(&args.key, context)?;
    if key.publisher != pack.manifest.publisher {
        let message = format!("the key is `{}`'s, and the pack names the publisher `{}`", key.publisher, pack.manifest.publisher);
        return Err(Failure::new(STEP, message).with_hint("write the key's publisher into pack.toml"));
    }
    let signature = sign(&files, &pack.manifest, &key.signing, key.public.id());
    let words = [pack.manifest.name.as_str(), &pack.manifest.version.to_string(), key.public.id()];
    lifecycle("pack.sign", &words, context, || {
        replace(&args.directory.join(SIGNATURE), &signature)?;
        let Some(archive) = &args.archive else { return Ok(()) };
        let signed = read_directory(&args.directory).map_err(|error| failure(&error))?;
        let mut bytes = Vec::new();
        write_archive(&signed, &mut bytes).map_err(|error| Failure::new(STEP, format!("the archive cannot be made: {error}")))?;
        replace(archive, &bytes)
    })?;
    if context.printer.is_json() {
        let archive = args.archive.as_ref().map(|path| path.to_string_lossy().into_owned());
        context.printer.json(&json!({ "pack": pack.manifest.name.as_str(), "key": key.public.id(), "archive": archive }))?;
    } else {
        context.printer.note(format!("signed `{}` {} with the key {}", pack.manifest.name, pack.manifest.version, key.public.id()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Puts a whole file in place of any other.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let mut draft = path.to_owned().into_os_string();
    draft.push(format!(".{}", std::process::id()));
    let written = std::fs::write(&draft, bytes).and_then(|()| std::fs::rename(&draft, path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&draft);
        Failure::new(STEP, format!("cannot write `{}`: {error}", path.display()))
    })
}
