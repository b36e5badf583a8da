//! `sandbox diff`, `apply` and `discard`: what a sandbox changed in the workspace.

use std::os::fd::OwnedFd;
use std::process::ExitCode;

use serde_json::{Value, json};
use stockade_core::spec::MountMode;
use stockade_ledger::Weight;
use stockade_sandbox::keeper;
use stockade_sandbox::once;
use stockade_sandbox::state::{self, Found};
use stockade_sandbox::workspace::change::{LayerChange, digest_of};
use stockade_sandbox::workspace::diff::{self as unified, Audience};
use stockade_sandbox::workspace::layer::Layer;
use stockade_sandbox::workspace::plan::Plan;

use super::super::run::explain;
use super::{LOOK, LOOKS, connect, file_failure, find, sandboxes, state_failure};
use crate::Context;
use crate::cli::{ApplyArgs, DiffArgs, OneSandbox};
use crate::failure::Failure;
use crate::receipts::{Book, Deed, changed, recorded};

/// Remembers the digest of what `diff` showed last.
const SHOWN: &str = "shown";

pub(in crate::commands) fn diff(args: &DiffArgs, context: &Context) -> Result<ExitCode, Failure> {
    let found = find(&args.sandbox, context)?;
    while_frozen(&found, context, || {
        let (layer, changes) = changes(&found)?;
        // What is applied later must be what a person saw.
        let _ = std::fs::write(found.directory.join(SHOWN), digest_of(&changes).to_string());
        if context.printer.is_json() {
            return context.printer.json(&compared(&found, &layer, &changes)?);
        }
        if args.stat {
            let summary = unified::summarize(&changes, &layer).map_err(|e| Failure::new("diff", e.to_string()))?;
            for change in &changes {
                context.printer.line(change.to_string())?;
            }
            return context.printer.line(summary.to_string());
        }
        let audience = if rustix::termios::isatty(std::io::stdout()) { Audience::Terminal } else { Audience::Pipe };
        let mut text = Vec::new();
        unified::render(&changes, &layer, &mut text, audience).map_err(|e| Failure::new("diff", e.to_string()))?;
        context.printer.bytes(&text)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// What a sandbox changed, as `diff --json` says it; nothing is remembered as shown to a person.
pub(crate) fn difference(found: &Found, context: &Context) -> Result<Value, Failure> {
    while_frozen(found, context, || {
        let (layer, changes) = changes(found)?;
        compared(found, &layer, &changes)
    })
}

fn compared(found: &Found, layer: &Layer, changes: &[LayerChange]) -> Result<Value, Failure> {
    let mut text = Vec::new();
    unified::render(changes, layer, &mut text, Audience::Pipe).map_err(|e| Failure::new("diff", e.to_string()))?;
    Ok(json!({ "sandbox_id": found.record.id, "changes": once::listed(changes), "diff": String::from_utf8_lossy(&text) }))
}

pub(in crate::commands) fn apply(args: &ApplyArgs, context: &Context) -> Result<ExitCode, Failure> {
    let found = find(&args.sandbox, context)?;
    let id = &found.record.id;
    recorded("sandbox.apply", &[id.as_str()], Weight::Effect, &found, context, |deed| {
        let lock = if found.alive { None } else { take_over(&found, context)? };
        if !found.alive && lock.is_none() {
            return Err(Failure::new("apply", format!("somebody else is applying or removing sandbox {id} just now")));
        }
        while_frozen(&found, context, || apply_frozen(args, &found, deed, context))
    })
}

/// Takes a sandbox that nobody owns; whoever only looks whether somebody does is waited for.
fn take_over(found: &Found, context: &Context) -> Result<Option<OwnedFd>, Failure> {
    let sandboxes = sandboxes(context)?;
    let looks = (0..LOOKS).find_map(|look| {
        if look > 0 {
            std::thread::sleep(LOOK);
        }
        sandboxes.take_over(found)
    });
    Ok(looks)
}

fn apply_frozen(args: &ApplyArgs, found: &Found, deed: &Deed<'_>, context: &Context) -> Result<ExitCode, Failure> {
    let (layer, changes) = changes(found)?;
    let id = &found.record.id;
    if let Ok(shown) = std::fs::read_to_string(found.directory.join(SHOWN))
        && shown != digest_of(&changes).to_string()
    {
        return Err(Failure::new("apply", "the changes are not the ones that `diff` showed")
            .with_hint(format!("look again: stockade sandbox diff {id}")));
    }
    let plan = Plan::from(&changes, &args.accept_protected);
    let unmatched = plan.unmatched();
    if let Some(path) = unmatched.first() {
        return Err(Failure::new("apply", format!("`--accept-protected {path}` names no protected change of this sandbox")));
    }
    let mut record = found.record.clone();
    // Killed on the way, whoever comes next sees that it was.
    record.applying = true;
    state::write_record(&found.directory, &record).map_err(|e| state_failure(&e))?;
    let report = once::bring_back(&plan, &layer, &record).map_err(|e| explain(&e))?;
    record.applying = false;
    once::remember_applied(&mut record, &report);
    let problems = once::problems(&report);
    let brought: Vec<LayerChange> =
        changes.iter().filter(|change| report.applied.iter().any(|applied| applied.path == change.path)).cloned().collect();
    deed.note(|draft| {
        draft.changes = Some(changed(&once::listed(&brought), &once::digests(&brought)));
        draft.violations.clone_from(&problems);
    });
    let left = layer.changes().map_err(|e| Failure::from_error("changes", &e))?;
    if found.alive {
        state::write_record(&found.directory, &record).map_err(|e| state_failure(&e))?;
    } else if left.is_empty() {
        sandboxes(context)?.forget(found).map_err(|e| state_failure(&e))?;
    } else {
        record.kept = Some(once::listed(&left));
        state::write_record(&found.directory, &record).map_err(|e| state_failure(&e))?;
    }
    let _ = std::fs::remove_file(found.directory.join(SHOWN));
    let paths = |items: Vec<String>| items;
    if context.printer.is_json() {
        let path = |p: &std::path::Path| stockade_core::escape::escape(&p.to_string_lossy());
        context.printer.json(&json!({
            "sandbox_id": id,
            "applied": paths(report.applied.iter().map(|a| path(&a.path)).collect()),
            "skipped_protected": paths(report.skipped_protected.iter().map(|s| path(&s.path)).collect()),
            "conflicts": paths(report.conflicts.iter().map(|c| path(&c.path)).collect()),
            "refused": paths(report.refused.iter().map(|r| path(&r.path)).collect()),
            "errors": paths(report.errors.iter().map(|e| path(&e.path)).collect()),
        }))?;
    } else {
        context.printer.note(format!(
            "{} applied",
            if report.applied.len() == 1 { "1 change".into() } else { format!("{} changes", report.applied.len()) }
        ));
    }
    for problem in &problems {
        context.printer.warning(problem.as_str());
    }
    if !report.skipped_protected.is_empty() {
        context.printer.note(format!("protected paths are applied only by name: stockade sandbox apply {id} --accept-protected PATH"));
    }
    let failed = !report.conflicts.is_empty() || !report.refused.is_empty() || !report.errors.is_empty();
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

pub(super) fn discard(args: &OneSandbox, context: &Context) -> Result<ExitCode, Failure> {
    let found = find(&args.sandbox, context)?;
    if found.alive {
        let id = &found.record.id;
        return Err(Failure::new("discard", format!("sandbox {id} is running")).with_hint(format!("stockade sandbox destroy {id}")));
    }
    Book::of(context)?.give_way();
    recorded("sandbox.discard", &[found.record.id.as_str()], Weight::Effect, &found, context, |_| {
        sandboxes(context)?.forget(&found).map_err(|e| state_failure(&e))?;
        context.printer.note(format!("discarded {}", found.record.id));
        Ok(ExitCode::SUCCESS)
    })
}

fn changes(found: &Found) -> Result<(Layer, Vec<LayerChange>), Failure> {
    if found.record.mode != MountMode::Overlay {
        return Err(Failure::new("changes", format!("the workspace of this sandbox is `{}`: nothing is kept apart", found.record.mode)));
    }
    let upper = found.directory.join("layer/upper");
    if !upper.is_dir() {
        return Err(Failure::new("changes", "this sandbox has no overlay on disk"));
    }
    let layer = Layer::new(upper, found.record.workspace_path());
    let changes = layer.changes().map_err(|e| Failure::from_error("changes", &e))?;
    Ok((layer, changes))
}

/// Does something while nothing inside runs; a sandbox that a person paused stays paused.
pub(super) fn while_frozen<T>(found: &Found, context: &Context, act: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    if !found.alive {
        return act();
    }
    let mut remote = connect(found, context)?;
    remote.freeze(true).map_err(|e| file_failure("freezing", &e))?;
    let result = act();
    if !keeper::is_paused(&found.directory) {
        remote.freeze(false).map_err(|e| file_failure("thawing", &e))?;
    }
    result
}
