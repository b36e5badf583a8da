//! `stockade sandbox`: the walls, and sandboxes that live longer than one command.

pub(crate) mod changes;
pub(crate) mod create;
pub(crate) mod exec;
mod files;
pub(crate) mod lifecycle;
pub(crate) mod list;
mod network;
mod status;

use std::process::ExitCode;
use std::time::Duration;

use stockade_sandbox::files::FileError;
use stockade_sandbox::keeper::Remote;
use stockade_sandbox::state::{Found, Kind, Sandboxes, StateError};

use crate::Context;
use crate::cli::{SandboxArgs, SandboxRef, SandboxVerb};
use crate::failure::Failure;

/// Does what `stockade sandbox` was asked for.
pub(crate) fn run(args: &SandboxArgs, context: &Context) -> Result<ExitCode, Failure> {
    match &args.verb {
        None => status::show(context),
        Some(SandboxVerb::Use(args)) => status::choose(args, context),
        Some(SandboxVerb::Create(args)) => create::create(args, context),
        Some(SandboxVerb::Fork(args)) => create::fork(args, context),
        Some(SandboxVerb::List) => list::list(context),
        Some(SandboxVerb::Exec(args)) => exec::exec(args, context),
        Some(SandboxVerb::Shell(args)) => exec::shell(args, context),
        Some(SandboxVerb::Read(args)) => files::read(args, context),
        Some(SandboxVerb::Write(args)) => files::write(args, context),
        Some(SandboxVerb::Cp(args)) => files::copy(args, context),
        Some(SandboxVerb::Diff(args)) => changes::diff(args, context),
        Some(SandboxVerb::Apply(args)) => changes::apply(args, context),
        Some(SandboxVerb::Discard(args)) => changes::discard(args, context),
        Some(SandboxVerb::Network(args)) => network::network(args, context),
        Some(SandboxVerb::Pause(args)) => lifecycle::pause(args, context),
        Some(SandboxVerb::Resume(args)) => lifecycle::resume(args, context),
        Some(SandboxVerb::Prune(args)) => lifecycle::prune(args, context),
        Some(SandboxVerb::Destroy(args)) => lifecycle::destroy(args, context),
    }
}

/// All sandboxes of this person.
pub(crate) fn sandboxes(context: &Context) -> Result<Sandboxes, Failure> {
    Sandboxes::open(&context.places()?.state).map_err(|e| state_failure(&e))
}

/// How often, and after how long each time, a run that seems to go on is looked at again.
const LOOKS: usize = 20;
const LOOK: Duration = Duration::from_millis(25);

/// One sandbox by id or name. What a run left seems to belong to somebody for a moment while others look whether it does, as that run's own
/// clearing up does after it has ended; so it is looked at again before that is believed.
fn find(reference: &SandboxRef, context: &Context) -> Result<Found, Failure> {
    let sandboxes = sandboxes(context)?;
    let mut found = sandboxes.find(reference.as_str()).map_err(|e| state_failure(&e))?;
    for _ in 0..LOOKS {
        if !found.alive || found.record.kind != Kind::Run {
            break;
        }
        std::thread::sleep(LOOK);
        found = sandboxes.find(reference.as_str()).map_err(|e| state_failure(&e))?;
    }
    Ok(found)
}

pub(crate) fn state_failure(error: &StateError) -> Failure {
    let failure = Failure::from_error("state", error);
    match error {
        StateError::Unknown(_) | StateError::Ambiguous(_) => failure.with_hint("stockade sandbox list"),
        StateError::NameTaken(_) => failure.with_hint("choose another name, or destroy the other sandbox first"),
        StateError::Damaged { id, .. } => failure.with_hint(format!("stockade sandbox destroy {id}")),
        StateError::Io { .. } => failure,
    }
}

pub(crate) fn file_failure(step: &str, error: &FileError) -> Failure {
    Failure::from_error(step, error)
}

/// Connects to a sandbox that must be running.
pub(crate) fn connect(found: &Found, context: &Context) -> Result<Remote, Failure> {
    const STEP: &str = "connecting to the sandbox";
    let id = &found.record.id;
    if !found.alive {
        return Err(Failure::new("sandbox", format!("sandbox {id} has ended; only its changes are kept"))
            .with_hint(format!("stockade sandbox diff {id} · apply · discard")));
    }
    if found.record.kind == Kind::Run {
        return Err(Failure::new("sandbox", format!("sandbox {id} belongs to a `stockade run` that is still going on")));
    }
    let connected = match &context.standing {
        Some(standing) => Remote::greet(standing.launcher.reach(id).map_err(|e| Failure::from_error(STEP, &e))?),
        None => Remote::connect(&context.places()?.runtime, id),
    };
    connected.map_err(|e| file_failure(STEP, &e))
}
