//! `agent diff` and `agent apply`: what an agent changed, as with any sandbox.

use std::process::ExitCode;

use super::super::sandbox::changes;
use crate::Context;
use crate::agent::roll::Roll;
use crate::agent::worktree;
use crate::cli::{ApplyArgs, DiffArgs, SandboxRef};
use crate::failure::Failure;
use crate::receipts::lifecycle;

pub(super) fn diff(args: &DiffArgs, context: &Context) -> Result<ExitCode, Failure> {
    if let Some(branch) = Roll::open(context)?.find(args.sandbox.as_str())?.agent.branch {
        let text = worktree::diff(&branch, if args.stat { &["--stat"] } else { &[] })?;
        let text = if rustix::termios::isatty(std::io::stdout()) { shown(&text) } else { text };
        context.printer.bytes(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let args = DiffArgs { sandbox: sandbox_of(&args.sandbox, context)?, stat: args.stat };
    changes::diff(&args, context)
}

pub(super) fn apply(args: &ApplyArgs, context: &Context) -> Result<ExitCode, Failure> {
    if let Some(branch) = Roll::open(context)?.find(args.sandbox.as_str())?.agent.branch {
        lifecycle("agent.apply", &[args.sandbox.as_str(), &branch.name], context, || worktree::fetch(&branch))?;
        context.printer.note(format!("the branch {0} is in the repository: git merge {0}", branch.name));
        return Ok(ExitCode::SUCCESS);
    }
    let args = ApplyArgs { sandbox: sandbox_of(&args.sandbox, context)?, accept_protected: args.accept_protected.clone() };
    changes::apply(&args, context)
}

/// For a terminal: what the agent wrote must not move the cursor.
fn shown(text: &[u8]) -> Vec<u8> {
    let lines = text.split(|byte| *byte == b'\n').map(|line| stockade_core::escape::escape_bytes(line).into_bytes());
    lines.collect::<Vec<_>>().join(&b'\n')
}

/// The sandbox of an agent: of several with one name the latest, whose changes may be gone already.
fn sandbox_of(reference: &SandboxRef, context: &Context) -> Result<SandboxRef, Failure> {
    let entry = Roll::open(context)?.find(reference.as_str())?;
    let known = super::super::sandbox::sandboxes(context)?.find(entry.agent.id.as_str()).is_ok();
    if !known {
        return Err(Failure::new("changes", format!("agent `{reference}` left no changes, or they are applied already"))
            .with_hint("stockade agent list"));
    }
    Ok(SandboxRef::Id(entry.agent.id))
}
