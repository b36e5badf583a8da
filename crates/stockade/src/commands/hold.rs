//! `stockade hold`: the supervisor of one created sandbox. Started by `sandbox create`, never typed.
//!
//! Standard input is the sandbox's lock; standard output takes one line of JSON when the sandbox stands or cannot.

use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use serde_json::json;
use stockade_core::escape::escape;
use stockade_core::spec::BackendKind;
use stockade_sandbox::gate::Gate;
use stockade_sandbox::keeper::{self, Charge};
use stockade_sandbox::state::Sandboxes;

use super::run::explain;
use crate::Context;
use crate::assemble;
use crate::cli::HoldArgs;
use crate::daemon::launcher::Scope;
use crate::egress::Outlet;
use crate::failure::Failure;

pub(crate) fn run(args: &HoldArgs, context: &Context) -> Result<ExitCode, Failure> {
    let places = context.places()?;
    let lock: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned().map_err(|e| Failure::new("hold", e.to_string()))?;
    // Only that copy holds the lock, so that it is free when the sandbox is put in order and not when this process is gone.
    rustix::stdio::dup2_stdin(null().map_err(|e| Failure::new("hold", e.to_string()))?).map_err(|e| Failure::new("hold", e.to_string()))?;
    // A session of its own: the terminal of whoever created the sandbox means nothing to it.
    let _ = rustix::process::setsid();
    let sandboxes = Sandboxes::open(&places.state).map_err(|e| Failure::from_error("state", &e))?;
    let owned = sandboxes.adopt(&args.id, lock);
    let charge = Charge::read(&owned.directory).map_err(|e| explain(&e))?;
    if let Some(failure) = refusal(args, &charge, context)? {
        // Whoever asked reads why.
        let _ = context.printer.json(&failure.to_json());
        owned.remove().map_err(|e| Failure::from_error("state", &e))?;
        return Err(failure);
    }
    let choice = charge.backend.parse().map_err(|_| Failure::new("hold", format!("unknown backend `{}`", charge.backend)))?;
    let backend = assemble::backend_of(choice)?;
    stockade_store::private_dir::ensure_private_dir(&places.runtime).map_err(|e| Failure::from_error("runtime directory", &e))?;
    let socket = keeper::socket_path(&places.runtime, &args.id);
    let printer = &context.printer;
    let outlet = Outlet::of(&charge.reach, &charge.given, context)?;
    let gate = outlet.as_ref().map(|outlet| outlet as &dyn Gate);
    let held = keeper::hold(owned, backend.as_ref(), &charge, &places.state, &socket, gate, |started| {
        let line = match started {
            Ok(enforcement) => json!({ "ready": true, "enforcement": enforcement }),
            Err(error) => explain(error).to_json(),
        };
        // The creator may be gone; the sandbox is wanted all the same.
        let _ = printer.json(&line);
        let _ = close_output();
    });
    drop(outlet.map(|outlet| outlet.close()));
    held.map_err(|e| explain(&e))?;
    Ok(ExitCode::SUCCESS)
}

/// Why this is not held, where whoever asked for it is held to something.
fn refusal(args: &HoldArgs, charge: &Charge, context: &Context) -> Result<Option<Failure>, Failure> {
    if args.within.is_empty() {
        return Ok(None);
    }
    let walls: Vec<BackendKind> = BackendKind::ALL.into_iter().filter(|kind| args.wall.iter().any(|name| name == kind.name())).collect();
    let scope = Scope { roots: args.within.clone(), walls, hint: crate::mcp::START_AGAIN };
    let bounds = scope.bounds(context.places()?);
    let wall = BackendKind::ALL.into_iter().find(|kind| charge.backend == kind.name());
    let refused = match wall {
        Some(wall) => bounds.refusal_of_wall(wall).or_else(|| bounds.refusal(&charge.spec)),
        None => Some(format!("unknown backend `{}`", escape(&charge.backend))),
    };
    Ok(refused.map(|message| Failure::new("hold", message).with_hint(scope.hint)))
}

/// The creator waits for the end of our output; give it the null device instead.
fn close_output() -> Result<(), rustix::io::Errno> {
    let null = null()?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)
}

fn null() -> Result<OwnedFd, rustix::io::Errno> {
    rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())
}
