//! Jails that stand ready, for calls that fit one. What comes of a call is the same with one and without.

use std::fmt::Debug;

use sha2::{Digest as _, Sha256};
use stockade_core::spec::{BackendKind, MountMode};
use stockade_sandbox::launch::Want;
use stockade_sandbox::launch::remote::Ahead;

use super::Standing;
use super::standing::Question;
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

/// A jail that is on its way while it is found out whether the call may have it: what the same question came to the last time.
///
/// Nothing depends on the guess. It is used only where the call turns out to want the very same, and was looked at after the call came.
#[derive(Debug, Default)]
pub(crate) struct Guess {
    /// None where nothing is guessed, now or the next time.
    question: Option<Question>,
    ahead: Option<Ahead>,
}

impl Guess {
    /// For a call of which so much is known; nothing is asked for where there is no launcher, or nobody asked this before.
    pub(crate) fn at(question: &impl Debug, standing: Option<&Standing>) -> Self {
        // Every field of a value is in its debugging form, and its strings are quoted there, so two values never look alike.
        let question = Sha256::digest(format!("{question:?}")).into();
        let ahead = standing.and_then(|standing| standing.ask_ahead(&question));
        Self { question: Some(question), ahead }
    }
}

/// A jail of the call's own.
pub(crate) fn take<'t>(assembled: &Assembled, guess: Guess, context: &Context) -> Result<Ground<'t>, Failure> {
    from(standing(context)?, &want(assembled), guess)
}

/// A jail of the call's own, if a call has wanted the very same before: the first of a kind takes longer than one from nothing, and many a
/// script comes only once. None where there is none to be had.
pub(crate) fn take_if_usual<'t>(assembled: &Assembled, guess: Guess, context: &Context) -> Option<Ground<'t>> {
    let (standing, want) = (standing(context).ok()?, want(assembled));
    if unfit(assembled).is_some() || !standing.is_usual(&want) {
        return None;
    }
    from(standing, &want, guess).inspect_err(|failure| context.printer.detail(format!("no jail stands ready: {}", failure.message))).ok()
}

fn standing(context: &Context) -> Result<&Standing, Failure> {
    context.standing.as_deref().ok_or_else(|| Failure::new("launcher", "there is none"))
}

fn want(assembled: &Assembled) -> Want {
    Want { spec: assembled.spec.clone(), home: assembled.home.clone(), toolchain_roots: assembled.toolchain_roots.clone() }
}

fn from<'t>(standing: &Standing, want: &Want, guess: Guess) -> Result<Ground<'t>, Failure> {
    let Guess { question, ahead } = guess;
    let ready = match ahead.and_then(|ahead| ahead.take(want)) {
        Some(ready) => ready,
        None => standing.launcher.take(want).map_err(|error| Failure::from_error("launcher", &error))?,
    };
    if let Some(question) = question {
        standing.expect(question, want.digest());
    }
    Ok(Ground::Jail(Box::new(ready)))
}
