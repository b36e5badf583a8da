//! `receipts verify`: recomputes everything, and names the first record that does not hold.
//!
//! Exit code 0: everything holds. 1: something does not. 125: it could not be checked.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use stockade_core::escape::escape;
use stockade_ledger::payload::Payloads;
use stockade_ledger::verify::{self, Ran, Verified};
use stockade_ledger::witness::Witness;
use stockade_ledger::{Ledger, LedgerError, Options, Order, Reader};
use stockade_store::settings::Settings;
use stockade_verify::export::{self, CheckError, Extent};
use stockade_verify::key::{MAX_KEY_TEXT, PublicKey};

use super::existing;
use crate::Context;
use crate::cli::VerifyArgs;
use crate::failure::Failure;
use crate::receipts::{Keeping, book};

const STEP: &str = "receipts";
/// Something does not hold.
const BROKEN: u8 = 1;
const BUFFER: usize = 1 << 20;

pub(super) fn verify(args: &VerifyArgs, context: &Context) -> Result<ExitCode, Failure> {
    let keys = args.keys.iter().map(|path| key(path)).collect::<Result<Vec<_>, _>>()?;
    match &args.file {
        Some(file) => verify_export(file, keys, context),
        None => verify_ledger(args, keys, context),
    }
}

fn verify_export(file: &Path, keys: Vec<PublicKey>, context: &Context) -> Result<ExitCode, Failure> {
    // Keys are the ledger's own or given; never the file's.
    let keys = if keys.is_empty() { vec![local_key(&existing(context)?)?] } else { keys };
    let shown = escape(&file.to_string_lossy());
    let input: Box<dyn Read> = if file == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(file).map_err(|error| Failure::new(STEP, format!("cannot open `{shown}`: {error}")))?)
    };
    match export::check(BufReader::with_capacity(BUFFER, input), &keys) {
        Ok(summary) => {
            let all = summary.extent == Extent::All;
            if context.printer.is_json() {
                let value = json!({
                    "holds": true, "origin": summary.origin, "receipts": summary.count, "of": summary.size, "all": all,
                    "key_id": summary.key_id,
                });
                context.printer.json(&value)?;
            } else if all {
                let (count, origin) = (summary.count, &summary.origin);
                context.printer.line(format!("all {count} receipts of {origin} hold, signed with key {}", summary.key_id))?;
            } else {
                let (count, size, origin) = (summary.count, summary.size, &summary.origin);
                context.printer.line(format!("{count} receipts out of {size} of {origin} hold; what was left out is not seen"))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(CheckError::Broken(broken)) => tell(&broken.to_string(), None, context),
        Err(CheckError::Read(error)) => Err(Failure::new(STEP, format!("cannot read `{shown}`: {error}"))),
    }
}

fn verify_ledger(args: &VerifyArgs, keys: Vec<PublicKey>, context: &Context) -> Result<ExitCode, Failure> {
    let reader = existing(context)?;
    let keys = if keys.is_empty() { vec![local_key(&reader)?] } else { keys };
    let directory = book::directory(&context.places()?.state);
    let keeping = Settings::load(context.places()?, None).map(|settings| Keeping::of(&settings));
    let keeping = keeping.map_err(|error| Failure::from_error("settings", &error))?;
    let witness = keeping.witness(&directory)?;
    if let Some(Witness::Command(_)) = &witness {
        // It can only be asked to sign, and does so only if it has seen no other or later receipts.
        let asked = Ledger::open(&directory, Options { witness: witness.clone(), order: Order::Later, ..Options::default() });
        asked.and_then(Ledger::close).map_err(|error| book::failure(&error))?;
    }
    let verified = match verify::verify(&reader, &keys, witness.as_ref()) {
        Ok(verified) => verified,
        Err(error) => return broken(&error, context),
    };
    let payloads = Payloads::new(&directory, Payloads::MOST);
    let configurations = match compare_configurations(&verified, &payloads) {
        Ok(kept) => kept,
        Err(what) => return tell(&what, None, context),
    };
    if args.binaries
        && let Some(what) = other_program(&verified.ran)
    {
        let hint = "if it was upgraded since, that is why; the receipt says what ran then";
        return tell(&what, Some(hint), context);
    }
    let Verified { origin, size, checkpoints, key_id, ran, witnessed, .. } = &verified;
    if let (Some(Witness::File(_)), None) = (&witness, witnessed) {
        context.printer.warning("the witness has seen nothing of this ledger: it is new, or its directory is not the one it was");
    }
    if context.printer.is_json() {
        let programs = args.binaries.then_some(ran.len());
        let value = json!({
            "holds": true, "origin": origin, "receipts": size, "all": true, "checkpoints": checkpoints, "key_id": key_id,
            "configurations": { "compared": configurations, "gone": verified.configurations.len() - configurations },
            "programs": programs, "witnessed": witnessed,
        });
        context.printer.json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    context.printer.line(format!("all {size} receipts of {origin} hold, signed with key {key_id}"))?;
    context.printer.note(format!("{checkpoints} checkpoints and {configurations} sandbox configurations were compared"));
    if let Some(seen) = witnessed {
        context.printer.note(format!("the witness has seen the first {seen} of them"));
    }
    if args.binaries {
        context.printer.note(format!("{} programs are those that ran last", ran.len()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Recomputes the digests of sandbox configurations; gives how many are still kept.
fn compare_configurations(verified: &Verified, payloads: &Payloads) -> Result<usize, String> {
    let mut kept = 0;
    for (digest, seq) in &verified.configurations {
        match payloads.holds(digest) {
            Ok(None) => {}
            Ok(Some(true)) => kept += 1,
            Ok(Some(false)) => {
                return Err(format!("receipt {seq}: the sandbox configuration that is kept is not the one with digest {digest}"));
            }
            Err(error) => return Err(format!("receipt {seq}: its sandbox configuration cannot be read: {error}")),
        }
    }
    Ok(kept)
}

/// The first program that is not what it was when it ran last.
fn other_program(ran: &BTreeMap<String, Ran>) -> Option<String> {
    ran.iter().find_map(|(path, Ran { sha256, seq })| {
        let now = File::open(path).ok().and_then(|file| crate::receipts::hashed(&file));
        let path = escape(path);
        match now {
            Some(now) if now == *sha256 => None,
            Some(now) => Some(format!("receipt {seq}: `{path}` has digest {now}, and what ran had {sha256}")),
            None => Some(format!("receipt {seq}: `{path}`, which ran, is gone or cannot be read")),
        }
    })
}

fn broken(error: &LedgerError, context: &Context) -> Result<ExitCode, Failure> {
    match error {
        LedgerError::Broken(_)
        | LedgerError::BadIndex(_)
        | LedgerError::RolledBack { .. }
        | LedgerError::Rewritten(_)
        | LedgerError::Damaged { .. } => {
            let failure = book::failure(error);
            tell(&failure.message, failure.hint.as_deref(), context)
        }
        error => Err(book::failure(error)),
    }
}

/// Says what does not hold.
fn tell(what: &str, hint: Option<&str>, context: &Context) -> Result<ExitCode, Failure> {
    if context.printer.is_json() {
        context.printer.json(&json!({ "holds": false, "broken": what, "hint": hint }))?;
    } else {
        context.printer.banner(format!("BROKEN: {what}"));
        if let Some(hint) = hint {
            context.printer.note(hint);
        }
    }
    Ok(ExitCode::from(BROKEN))
}

fn local_key(reader: &Reader) -> Result<PublicKey, Failure> {
    reader.local_key().map_err(|error| book::failure(&error))
}

fn key(path: &Path) -> Result<PublicKey, Failure> {
    let shown = escape(&path.to_string_lossy());
    let failed = |why: String| Failure::new("key", format!("`{shown}`: {why}"));
    let mut text = String::new();
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    file.take(MAX_KEY_TEXT as u64).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    PublicKey::parse(&text).map_err(|bad| failed(bad.to_string()))
}
