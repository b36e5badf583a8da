//! `sandbox read`, `write` and `cp`: single files in and out, streamed.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use stockade_core::path::SafePath;
use stockade_ledger::Weight;
use stockade_sandbox::files::Files;
use stockade_sandbox::state::Found;
use stockade_sandbox::wire::FileKind;

use super::super::run::text_or_base64;
use super::{connect, file_failure, find};
use crate::Context;
use crate::cli::{CopyArgs, CopyEnd, ReadArgs, SandboxRef, WriteArgs};
use crate::failure::Failure;
use crate::receipts::{recorded, weight_in};

/// With `--json` a file is held in memory, so it may only be so long.
const MAX_JSON: u64 = 64 << 20;

pub(super) fn read(args: &ReadArgs, context: &Context) -> Result<ExitCode, Failure> {
    if !context.printer.is_json() {
        let mut out = Shown { context };
        return match fetch(&args.sandbox, &args.path, &mut out, context) {
            // The rest was not fetched because nobody wants it.
            Err(_) if context.printer.reader_is_gone() => Ok(ExitCode::SUCCESS),
            fetched => fetched.map(|_| ExitCode::SUCCESS),
        };
    }
    let mut bytes = Capped { bytes: Vec::new() };
    fetch(&args.sandbox, &args.path, &mut bytes, context)?;
    let (content, content_base64) = text_or_base64(&bytes.bytes);
    let key = if content.is_some() { "content" } else { "content_base64" };
    context.printer.json(&json!({ "path": args.path.to_string(), "bytes": bytes.bytes.len(), key: content.or(content_base64) }))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn write(args: &WriteArgs, context: &Context) -> Result<ExitCode, Failure> {
    let bytes = store(&args.sandbox, &args.path, &mut std::io::stdin().lock(), 0o644, context)?;
    report(bytes, args.path.as_path(), context)
}

pub(super) fn copy(args: &CopyArgs, context: &Context) -> Result<ExitCode, Failure> {
    match (&args.source, &args.target) {
        (CopyEnd::Host(from), CopyEnd::Sandbox { sandbox, path, into_directory }) => {
            let failed =
                |e: std::io::Error| Failure::new("copy", format!("`{}`: {e}", stockade_core::escape::escape(&from.to_string_lossy())));
            let mut file = File::open(from).map_err(failed)?;
            let meta = file.metadata().map_err(failed)?;
            if !meta.is_file() {
                return Err(Failure::new("copy", format!("`{}` is not a file", stockade_core::escape::escape(&from.to_string_lossy()))));
            }
            let target = match (into_directory, from.file_name()) {
                (true, Some(name)) => SafePath::new(path.as_path().join(name)).map_err(|e| Failure::from_error("copy", &e))?,
                _ => path.clone(),
            };
            let mode = std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o777;
            let bytes = store(sandbox, &target, &mut file, mode, context)?;
            report(bytes, target.as_path(), context)
        }
        (CopyEnd::Sandbox { sandbox, path, .. }, CopyEnd::Host(to)) => {
            let target = if to.is_dir() { path.as_path().file_name().map_or_else(|| to.clone(), |name| to.join(name)) } else { to.clone() };
            let bytes = fetch_to_file(sandbox, path, &target, context)?;
            report(bytes, &target, context)
        }
        (CopyEnd::Host(_), CopyEnd::Host(_)) => Err(Failure::new("copy", "one end must be in a sandbox, written as SANDBOX:/path")),
        (CopyEnd::Sandbox { .. }, CopyEnd::Sandbox { .. }) => {
            Err(Failure::new("copy", "only one end may be in a sandbox").with_hint("copy to a file here first"))
        }
    }
}

fn report(bytes: u64, path: &Path, context: &Context) -> Result<ExitCode, Failure> {
    if context.printer.is_json() {
        context.printer.json(&json!({ "path": path.to_string_lossy(), "bytes": bytes }))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn fetch(sandbox: &SandboxRef, path: &SafePath, to: &mut dyn Write, context: &Context) -> Result<u64, Failure> {
    let found = find(sandbox, context)?;
    in_book("sandbox.read", &found, path, Weight::Read, context, || {
        let mut remote = connect(&found, context)?;
        Files(&mut remote.connection).read_file(path, to).map_err(|e| file_failure("read", &e))
    })
}

/// Moves a file between an intent and an outcome; gives how many bytes it has.
fn in_book(
    verb: &'static str,
    found: &Found,
    path: &SafePath,
    weight: Weight,
    context: &Context,
    act: impl FnOnce() -> Result<u64, Failure>,
) -> Result<u64, Failure> {
    let mut bytes = 0;
    let shown = path.to_string();
    recorded(verb, &[found.record.id.as_str(), &shown], weight, found, context, |_| {
        bytes = act()?;
        Ok(ExitCode::SUCCESS)
    })?;
    Ok(bytes)
}

/// A file from a sandbox appears here only when complete, and never through a link that is in its place.
fn fetch_to_file(sandbox: &SandboxRef, path: &SafePath, target: &Path, context: &Context) -> Result<u64, Failure> {
    let found = find(sandbox, context)?;
    // It writes to a file of the person.
    in_book("sandbox.cp", &found, path, Weight::Effect, context, || place(&found, path, target, context))
}

fn place(found: &Found, path: &SafePath, target: &Path, context: &Context) -> Result<u64, Failure> {
    let mut remote = connect(found, context)?;
    let mut files = Files(&mut remote.connection);
    let stat = files.stat(path).map_err(|e| file_failure("copy", &e))?;
    if matches!(stat.kind, FileKind::Directory {} | FileKind::Other {}) {
        return Err(Failure::new("copy", format!("`{path}` is not a file")));
    }
    let failed = |e: std::io::Error| Failure::new("copy", format!("`{}`: {e}", stockade_core::escape::escape(&target.to_string_lossy())));
    let name = target.file_name().ok_or_else(|| failed(std::io::Error::other("it has no name")))?;
    let mut temporary_name = std::ffi::OsString::from(".");
    temporary_name.push(name);
    temporary_name.push(format!(".stockade-{}", std::process::id()));
    let temporary: PathBuf = target.with_file_name(temporary_name);
    let mut file = File::options().write(true).create_new(true).open(&temporary).map_err(failed)?;
    let copied = files.read_file(path, &mut file).map_err(|e| file_failure("copy", &e));
    let placed = copied.and_then(|bytes| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(stat.mode & 0o777);
        file.set_permissions(mode).and_then(|()| std::fs::rename(&temporary, target)).map_err(failed)?;
        Ok(bytes)
    });
    if placed.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    placed
}

fn store(sandbox: &SandboxRef, path: &SafePath, from: &mut dyn Read, mode: u32, context: &Context) -> Result<u64, Failure> {
    let found = find(sandbox, context)?;
    in_book("sandbox.write", &found, path, weight_in(&found), context, || {
        let mut remote = connect(&found, context)?;
        Files(&mut remote.connection).write_file(path, mode, from).map_err(|e| file_failure("write", &e))
    })
}

/// stdout as every command writes to it: a reader that goes away is no failure, a full disk is.
struct Shown<'a> {
    context: &'a Context,
}

impl Write for Shown<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.context.printer.bytes(bytes).map_err(|failure| std::io::Error::other(failure.message))?;
        if self.context.printer.reader_is_gone() { Err(std::io::ErrorKind::BrokenPipe.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Capped {
    bytes: Vec<u8>,
}

impl Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if (self.bytes.len() + bytes.len()) as u64 > MAX_JSON {
            return Err(std::io::Error::other("the file is too large for --json; read it without"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
