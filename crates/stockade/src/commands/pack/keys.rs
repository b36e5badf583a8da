//! `stockade pack keygen`, and opening a key to sign with.

use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use stockade_policy::pack::PublisherName;
use stockade_store::packs::{KeyFileError, PublisherKey, generate_key, open_key, seal_key};

use super::STEP;
use crate::Context;
use crate::cli::PackKeygenArgs;
use crate::failure::Failure;
use crate::passphrase;
use crate::receipts::lifecycle;

/// Longer than any key file.
const MAX_KEY_FILE: u64 = 64 << 10;

pub(super) fn run(args: &PackKeygenArgs, context: &Context) -> Result<ExitCode, Failure> {
    let publisher = args.publisher.parse::<PublisherName>().map_err(|error| Failure::from_error(STEP, &error))?;
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{publisher}.key")));
    let mut public_path = path.clone().into_os_string();
    public_path.push(".pub");
    let public_path = PathBuf::from(public_path);
    for path in [&path, &public_path] {
        if path.symlink_metadata().is_ok() {
            return Err(Failure::new(STEP, format!("`{}` is there already", path.display())).with_hint("choose another file with --output"));
        }
    }
    let passphrase = passphrase::ask_new("Passphrase for the new key (not shown): ", STEP, context)?;
    let key = generate_key(publisher).map_err(|error| Failure::from_error(STEP, &error))?;
    let sealed = seal_key(&key, &passphrase).map_err(|error| Failure::from_error(STEP, &error))?;
    lifecycle("pack.keygen", &[key.publisher.as_str(), key.public.id()], context, || {
        write_new(&path, &sealed, 0o600)?;
        write_new(&public_path, key.public.to_pem().as_bytes(), 0o644)
    })?;
    if context.printer.is_json() {
        let value = json!({ "publisher": key.publisher.as_str(), "key": key.public.id(), "file": path.to_string_lossy(), "public": public_path.to_string_lossy() });
        context.printer.json(&value)?;
    } else {
        context.printer.note(format!(
            "wrote {} (keep it) and {} (give it away); key {}",
            path.display(),
            public_path.display(),
            key.public.id()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens a publisher's key.
pub(super) fn open(path: &Path, context: &Context) -> Result<PublisherKey, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(STEP, format!("`{}`: {error}", path.display()));
    let mut bytes = Vec::new();
    std::fs::File::open(path).and_then(|file| file.take(MAX_KEY_FILE).read_to_end(&mut bytes)).map_err(|error| failed(&error))?;
    let passphrase = passphrase::ask("Passphrase of the key (not shown): ", STEP, context)?;
    open_key(&bytes, &passphrase).map_err(|error| {
        let is_other_file = matches!(error, KeyFileError::Form(_));
        let failure = failed(&error);
        if is_other_file { failure.with_hint("give the file that `stockade pack keygen` wrote, without .pub") } else { failure }
    })
}

/// Writes a file that was not there.
pub(super) fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    let opened = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = opened.and_then(|mut file| file.write_all(bytes));
    written.map_err(|error| Failure::new(STEP, format!("cannot write `{}`: {error}", path.display())))
}
