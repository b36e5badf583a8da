//! `sandbox pause`, `resume`, `prune` and `destroy`.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;
use stockade_core::id::SandboxId;
use stockade_sandbox::keeper::Remote;
use stockade_sandbox::state::{KEEP, Kind, Sandboxes, is_gone};
use stockade_sandbox::{keeper, once};

use super::{connect, file_failure, find, sandboxes, state_failure};
use crate::Context;
use crate::cli::{DestroyArgs, OneSandbox, PruneArgs};
use crate::failure::Failure;

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
    let mut remote = connect(&found, context)?;
    remote.freeze(paused).map_err(|e| file_failure(if paused { "pausing" } else { "resuming" }, &e))?;
    keeper::mark_paused(&found.directory, paused).map_err(|e| Failure::new("state", e.to_string()))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn prune(args: &PruneArgs, context: &Context) -> Result<ExitCode, Failure> {
    let keep = if args.all { Duration::ZERO } else { KEEP };
    let places = context.places()?;
    let removed = once::sweep(&places.state, &places.runtime, keep).map_err(|e| state_failure(&e))?;
    if context.printer.is_json() {
        context.printer.json(&json!({ "removed": removed }))?;
    } else {
        context.printer.note(format!("{} removed", removed.len()));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn destroy(args: &DestroyArgs, context: &Context) -> Result<ExitCode, Failure> {
    let sandboxes = sandboxes(context)?;
    for reference in &args.sandboxes {
        let found = match sandboxes.find(reference.as_str()) {
            Ok(found) => found,
            Err(error) => {
                // What cannot be read can still be ended and removed, by its id.
                let damaged = sandboxes.damaged().map_err(|e| state_failure(&e))?;
                let Some((id, _)) = damaged.into_iter().find(|(id, _)| id.as_str() == reference.as_str()) else {
                    return Err(state_failure(&error));
                };
                destroy_damaged(&sandboxes, &id, context)?;
                continue;
            }
        };
        if !found.alive {
            sandboxes.remove(&found).map_err(|e| state_failure(&e))?;
            continue;
        }
        if found.record.kind == Kind::Run {
            return Err(Failure::new("destroy", format!("sandbox {} belongs to a `stockade run`; end that", found.record.id)));
        }
        let asked = connect(&found, context).and_then(|mut remote| remote.shut_down().map_err(|e| file_failure("destroying", &e)));
        if let Err(failure) = asked {
            // It may be ending by itself this very moment; then what it keeps is removed like anything kept.
            return_when_dead(&found, context)?.ok_or(failure)?;
            continue;
        }
        wait_until_gone(&found.record.id, &found.directory)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for a supervisor that does not answer to end, and removes what it left; `None` when it lives on.
fn return_when_dead(found: &stockade_sandbox::state::Found, context: &Context) -> Result<Option<()>, Failure> {
    let sandboxes = sandboxes(context)?;
    let deadline = Instant::now() + PATIENCE;
    while sandboxes.is_alive(found.record.id.as_str()) {
        if Instant::now() > deadline {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    if found.directory.exists() {
        sandboxes.remove(found).map_err(|e| state_failure(&e))?;
    }
    Ok(Some(()))
}

fn destroy_damaged(sandboxes: &Sandboxes, id: &SandboxId, context: &Context) -> Result<(), Failure> {
    let directory = sandboxes.directory_of(id);
    if !sandboxes.is_alive(id.as_str()) {
        return sandboxes.remove_directory(&directory).map_err(|e| state_failure(&e));
    }
    let connected = Remote::connect(&context.places()?.runtime, id).map_err(|e| file_failure("connecting to the sandbox", &e));
    connected?.shut_down().map_err(|e| file_failure("destroying", &e))?;
    wait_until_gone(id, &directory)
}

/// Done means gone: `list` must not show it afterwards, nor may its processes linger.
fn wait_until_gone(id: &SandboxId, directory: &Path) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    while !is_gone(directory) {
        if Instant::now() > deadline {
            return Err(Failure::new("destroy", format!("sandbox {id} did not end in time")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
