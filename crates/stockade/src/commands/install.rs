//! `stockade install`: an agent's own settings name Stockade, so that it asks before it acts; and the way back.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use stockade_store::integrations::{self, Agent, Change, IntegrationError, Variable};
use stockade_store::policy::{PolicyError, PolicyLayers, preset_at, write_preset};

use super::init;
use crate::Context;
use crate::admission;
use crate::approver;
use crate::cli::{AgentChoice, InstallArgs, Preset};
use crate::failure::Failure;
use crate::receipts::{approved, lifecycle};

const STEP: &str = "install";

pub(crate) fn run(args: &InstallArgs, context: &Context) -> Result<ExitCode, Failure> {
    let agent = match args.agent {
        AgentChoice::Claude => Agent::Claude,
        AgentChoice::Codex => Agent::Codex,
    };
    let places = context.places()?;
    let path = agent.settings(&places.home, |name| context.environment.variable(name).map(PathBuf::from));
    let change = if args.uninstall {
        integrations::plan_uninstall(agent, places, &path)
    } else {
        let program = std::env::current_exe().map_err(|error| Failure::new(STEP, format!("where this program lies: {error}")))?;
        Variable::all(|name| context.environment.variable(name).map(PathBuf::from))
            .and_then(|variables| integrations::plan_install(agent, &path, &program, &variables))
    };
    let change = change.map_err(|error| failure(&error))?;
    let policy = if args.uninstall { None } else { missing_policy(context)? };
    show(&change, args, context);
    if args.dry_run {
        show_files(agent, &change, policy.as_deref(), args, context)?;
    }
    if !args.dry_run {
        write(agent, &change, policy.as_ref().map(|_| Preset::Developer), args, context)?;
    }
    if context.printer.is_json() {
        context.printer.json(&json!({
            "agent": agent.name(),
            "path": change.path.to_string_lossy(),
            "changed": !change.is_nothing(),
            "exact": change.is_exact,
            "dry_run": args.dry_run,
            "policy": policy.map(|path| path.to_string_lossy().into_owned()),
        }))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(agent: Agent, change: &Change, policy: Option<Preset>, args: &InstallArgs, context: &Context) -> Result<(), Failure> {
    let places = context.places()?;
    if change.is_nothing() && policy.is_none() {
        return Ok(());
    }
    let verb = if args.uninstall { "uninstall" } else { "install" };
    let act = || {
        if let Some(preset) = policy {
            match write_preset(places, init::text(preset)) {
                Ok(written) => {
                    context.printer.note(format!("wrote {}: agents may do what it says, and nothing else", written.path.display()));
                }
                Err(PolicyError::Exists(_)) => {}
                Err(error) => return Err(admission::failure(&error)),
            }
        }
        let done =
            if args.uninstall { integrations::uninstall(agent, places, change) } else { integrations::install(agent, places, change) };
        done.map_err(|error| failure(&error))
    };
    // What permits agents anything is the approver's to write, where there is one.
    if policy.is_some() {
        let decider = approver::demand("write a policy", context)?;
        return approved(verb, &[agent.name()], &decider, context, act);
    }
    lifecycle(verb, &[agent.name()], context, act)
}

/// Where a policy would be written: without one of a person or of the machine, agents are denied everything.
fn missing_policy(context: &Context) -> Result<Option<PathBuf>, Failure> {
    let places = context.places()?;
    let layers = PolicyLayers::load(places, None).map_err(|error| admission::failure(&error))?;
    Ok(layers.is_empty().then(|| preset_at(places)))
}

/// What else would be written or removed, beside the agent's settings.
fn show_files(agent: Agent, change: &Change, policy: Option<&Path>, args: &InstallArgs, context: &Context) -> Result<(), Failure> {
    if let Some(path) = policy {
        context.printer.note(format!("would write {}: the starter policy `developer`, which says what agents may do", path.display()));
    }
    if !change.is_nothing() {
        let verb = if args.uninstall { "remove" } else { "write" };
        let kept = integrations::kept_at(agent, context.places()?);
        context.printer.note(format!("would {verb} {}: the settings as they were before", kept.display()));
    }
    Ok(())
}

/// What changes, line by line.
fn show(change: &Change, args: &InstallArgs, context: &Context) {
    let shown = change.path.display();
    if change.is_nothing() {
        context.printer.note(format!("{shown}: nothing to change"));
        return;
    }
    let verb = if args.dry_run { "would change" } else { "changes" };
    context.printer.note(format!("{verb} {shown}:"));
    let lines = |text: &Option<String>| text.as_deref().unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>();
    let (before, after) = (lines(&change.before), lines(&change.after));
    let same = before.iter().zip(&after).take_while(|(one, other)| one == other).count();
    let rest = before.len().min(after.len()) - same;
    let tail = before.iter().rev().zip(after.iter().rev()).take(rest).take_while(|(one, other)| one == other).count();
    let middle = |lines: &[String], mark: &str| {
        for line in lines.iter().take(lines.len() - tail).skip(same) {
            context.printer.note(format!("  {mark} {}", stockade_core::escape::escape(line)));
        }
    };
    middle(&before, "-");
    middle(&after, "+");
    if args.uninstall && !change.is_exact {
        context.printer.note("the file was changed since, so only what Stockade put in is taken out");
    }
}

fn failure(error: &IntegrationError) -> Failure {
    let failure = Failure::from_error(STEP, error);
    match error {
        IntegrationError::Settings { .. } => failure.with_hint("mend the file, or move it away, and try again"),
        IntegrationError::Read(..)
        | IntegrationError::Write(..)
        | IntegrationError::Program(_)
        | IntegrationError::Variable(_)
        | IntegrationError::State(_) => failure,
    }
}
