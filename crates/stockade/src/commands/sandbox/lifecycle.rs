//! `sandbox pause`, `resume`, `prune` and `destroy`.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;
use stockade_core::id::SandboxId;
use stockade_ledger::Weight;
use stockade_sandbox::keeper::Remote;
use stockade_sandbox::state::{Found, KEEP, Kind, Sandboxes};
use stockade_sandbox::{keeper, sweep};

use super::{connect, file_failure, find, sandboxes, state_failure};
use crate::Context;
use crate::cli::{DestroyArgs, OneSandbox, PruneArgs};
use crate::failure::Failure;
use crate::receipts::{Book, Deed, recorded};

/// How long a supervisor may take to remove its sandbox.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn pause(args: &OneSandbox, context: &Context) -> Result<ExitCode, Failure> {
    set_paused(args, true, context)
}

pub(super) fn resume(args: &OneSandbox, context: &Context) -> Result<ExitCode, Failure> {
    set_paused(args, false, context)
}

fn set_paused(args: &OneSandbox, paused: bool, context: &Context) -> Result<ExitCode, Failure> {
    let found = find(&args.sandbox, context)?;
    let verb = if paused { "sandbox.pause" } else { "sandbox.resume" };
    recorded(verb, &[found.record.id.as_str()], Weight::Read, &found, context, |_| freeze(&found, paused, context))
}

fn freeze(found: &Found, paused: bool, context: &Context) -> Result<ExitCode, Failure> {
    let mut remote = connect(found, context)?;
    remote.freeze(paused).map_err(|e| file_failure(if paused { "pausing" } else { "resuming" }, &e))?;
    keeper::mark_paused(&found.directory, paused).map_err(|e| Failure::new("state", e.to_string()))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn prune(args: &PruneArgs, context: &Context) -> Result<ExitCode, Failure> {
    let book = Book::of(context)?;
    book.give_way();
    let deed = Deed::verb(&book, "sandbox.prune", if args.all { &["--all"] } else { &[] }, Weight::Effect);
    let pruned = deed.around(context, || sweep_away(args, context));
    drop(deed);
    book.close().tidy();
    pruned
}

fn sweep_away(args: &PruneArgs, context: &Context) -> Result<ExitCode, Failure> {
    let keep = if args.all { Duration::ZERO } else { KEEP };
    let places = context.places()?;
    crate::daemon::sweep(&places.runtime);
    let removed = sweep::sweep(&places.state, &places.runtime, keep, sweep::Extent::Everything).map_err(|e| state_failure(&e))?;
    if context.printer.is_json() {
        context.printer.json(&json!({ "removed": removed }))?;
    } else {
        context.printer.note(format!("{} removed", removed.len()));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn destroy(args: &DestroyArgs, context: &Context) -> Result<ExitCode, Failure> {
    let sandboxes = sandboxes(context)?;
    Book::of(context)?.give_way();
    for reference in &args.sandboxes {
        let found = match sandboxes.find(reference.as_str()) {
            Ok(found) => found,
            Err(error) => {
                // What cannot be read can still be ended and removed, by its id.
                let damaged = sandboxes.damaged().map_err(|e| state_failure(&e))?;
                let Some((id, _)) = damaged.into_iter().find(|(id, _)| id.as_str() == reference.as_str()) else {
                    return Err(state_failure(&error));
                };
                let book = Book::of(context)?;
                let words = [id.as_str()];
                let deed = Deed::verb(&book, "sandbox.destroy", &words, Weight::Effect);
                deed.around(context, || destroy_damaged(&sandboxes, &id, context).map(|()| ExitCode::SUCCESS))?;
                continue;
            }
        };
        if found.alive && found.record.kind == Kind::Run {
            return Err(Failure::new("destroy", format!("sandbox {} belongs to a `stockade run`; end that", found.record.id)));
        }
        let words = [found.record.id.as_str()];
        recorded("sandbox.destroy", &words, Weight::Effect, &found, context, |_| {
            destroy_one(&sandboxes, &found, context).map(|()| ExitCode::SUCCESS)
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends one and removes it.
pub(crate) fn destroy_one(sandboxes: &Sandboxes, found: &Found, context: &Context) -> Result<(), Failure> {
    if !found.alive {
        return sandboxes.forget(found).map_err(|e| state_failure(&e));
    }
    let asked = connect(found, context).and_then(|mut remote| remote.shut_down().map_err(|e| file_failure("destroying", &e)));
    if let Err(failure) = asked {
        return ask_again(found, context)?.ok_or(failure);
    }
    wait_until_gone(&found.record.id, &found.directory, context)
}

/// A supervisor that cannot be reached may be starting, or ending by itself: it is asked until it answers or is gone, and then what it
/// left is removed. `None` when it lives on and does not answer.
fn ask_again(found: &Found, context: &Context) -> Result<Option<()>, Failure> {
    let id = &found.record.id;
    let sandboxes = sandboxes(context)?;
    let deadline = Instant::now() + PATIENCE;
    while sandboxes.is_alive(id.as_str()) {
        if connect(found, context).is_ok_and(|mut remote| remote.shut_down().is_ok()) {
            wait_until_gone(id, &found.directory, context)?;
            return Ok(Some(()));
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    remove(id, context)?;
    Ok(Some(()))
}

/// Removes a sandbox whose owner is gone, with everything that owner left.
fn remove(id: &SandboxId, context: &Context) -> Result<(), Failure> {
    let places = context.places()?;
    sweep::remove(&places.state, &places.runtime, id).map_err(|e| state_failure(&e))
}

fn destroy_damaged(sandboxes: &Sandboxes, id: &SandboxId, context: &Context) -> Result<(), Failure> {
    let directory = sandboxes.directory_of(id);
    if !sandboxes.is_alive(id.as_str()) {
        return remove(id, context);
    }
    let connected = Remote::connect(&context.places()?.runtime, id).map_err(|e| file_failure("connecting to the sandbox", &e));
    connected?.shut_down().map_err(|e| file_failure("destroying", &e))?;
    wait_until_gone(id, &directory, context)
}

/// Done means gone: `list` must not show it afterwards, nor may its processes linger. A supervisor that dies on the way is helped.
fn wait_until_gone(id: &SandboxId, directory: &Path, context: &Context) -> Result<(), Failure> {
    let sandboxes = sandboxes(context)?;
    let deadline = Instant::now() + PATIENCE;
    while directory.exists() {
        if !sandboxes.is_alive(id.as_str()) {
            return remove(id, context);
        }
        if Instant::now() > deadline {
            return Err(Failure::new("destroy", format!("sandbox {id} did not end in time")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    sandboxes.finish_removal(id).map_err(|e| state_failure(&e))
}
