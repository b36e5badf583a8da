//! Jails that stand ready, for calls that fit one. What comes of a call is the same with one and without.

use stockade_core::spec::{BackendKind, MountMode};
use stockade_sandbox::launch::Want;

use super::Standing;
use crate::assemble::Assembled;
use crate::context::Context;
use crate::engine::Ground;
use crate::failure::Failure;

/// Why a call cannot be served from jails that wait.
pub(crate) fn unfit(assembled: &Assembled) -> Option<&'static str> {
    let spec = &assembled.spec;
    if assembled.backend.kind() != BackendKind::Jail {
        return Some("it is not for the jail");
    }
    if !assembled.reach.is_nothing() {
        return Some("it has a way out");
    }
    if spec.workspace.mode == MountMode::Rw || spec.mounts.iter().any(|mount| mount.mode == MountMode::Rw) {
        return Some("it writes through");
    }
    None
}

/// A jail of the call's own.
pub(crate) fn take<'t>(assembled: &Assembled, context: &Context) -> Result<Ground<'t>, Failure> {
    from(standing(context)?, &want(assembled))
}

/// A jail of the call's own, if a call has wanted the very same before: the first of a kind takes longer than one from nothing, and many a
/// script comes only once. None where there is none to be had.
pub(crate) fn take_if_usual<'t>(assembled: &Assembled, context: &Context) -> Option<Ground<'t>> {
    let (standing, want) = (standing(context).ok()?, want(assembled));
    if unfit(assembled).is_some() || !standing.is_usual(&want) {
        return None;
    }
    from(standing, &want).inspect_err(|failure| context.printer.detail(format!("no jail stands ready: {}", failure.message))).ok()
}

fn standing(context: &Context) -> Result<&Standing, Failure> {
    context.standing.as_deref().ok_or_else(|| Failure::new("launcher", "there is none"))
}

fn want(assembled: &Assembled) -> Want {
    Want { spec: assembled.spec.clone(), home: assembled.home.clone(), toolchain_roots: assembled.toolchain_roots.clone() }
}

fn from<'t>(standing: &Standing, want: &Want) -> Result<Ground<'t>, Failure> {
    let ready = standing.launcher.take(want).map_err(|error| Failure::from_error("launcher", &error))?;
    Ok(Ground::Jail(Box::new(ready)))
}
