//! `stockade sandbox` without a verb, and `sandbox use`: which wall is active and what each holds here.

use std::process::ExitCode;

use serde_json::{Value, json};
use stockade_core::demand::{Demand, Enforcement, Level};
use stockade_core::spec::BackendKind;
use stockade_sandbox::backends::local;
use stockade_sandbox::trial;
use stockade_store::settings::{Backend, Settings, Target, config_set};

use super::super::run::explain;
use crate::Context;
use crate::assemble;
use crate::cli::UseArgs;
use crate::failure::Failure;
use crate::printer::Table;
use crate::receipts::lifecycle;

/// What is known about one wall on this machine.
struct Wall {
    kind: BackendKind,
    enforcement: Option<Enforcement>,
    note: String,
}

pub(super) fn show(context: &Context) -> Result<ExitCode, Failure> {
    let places = context.places()?;
    let settings = Settings::load(places, None).map_err(|e| Failure::from_error("settings", &e))?;
    let chosen = settings.backend();
    let walls: Vec<Wall> = BackendKind::ALL.into_iter().map(|kind| look(kind, context)).collect::<Result<_, _>>()?;
    let active = match chosen.value {
        Backend::Auto => BackendKind::Jail,
        Backend::Wall(kind) => kind,
    };
    if context.printer.is_json() {
        let walls: Vec<Value> = walls
            .iter()
            .map(|w| json!({ "backend": w.kind, "available": w.enforcement.is_some(), "enforcement": w.enforcement, "note": w.note }))
            .collect();
        context.printer.json(&json!({ "active": active, "chosen": chosen.value.name(), "backends": walls }))?;
        return Ok(ExitCode::SUCCESS);
    }
    context.printer.line(format!("active: {active} (sandbox.backend = {})", chosen.value.name()))?;
    let mut table = Table::new(["DEMAND", "JAIL", "LOCAL"]);
    let level = |kind: BackendKind, demand: Demand| {
        let wall = walls.iter().find(|w| w.kind == kind);
        wall.and_then(|w| w.enforcement.as_ref()).map_or(Level::Unavailable, |e| e.level(demand)).to_string()
    };
    for demand in Demand::ALL {
        table.row([demand.name(), &level(BackendKind::Jail, demand), &level(BackendKind::Local, demand)]);
    }
    context.printer.table(&table)?;
    for wall in walls.iter().filter(|w| !w.note.is_empty()) {
        context.printer.line(format!("{}: {}", wall.kind, wall.note))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Tries a wall out, or says why it cannot be tried.
fn look(kind: BackendKind, context: &Context) -> Result<Wall, Failure> {
    let places = context.places()?;
    Ok(match kind {
        BackendKind::Local => Wall { kind, enforcement: Some(local::enforcement()), note: "no isolation; only when chosen by name".into() },
        BackendKind::Jail => match assemble::backend_of(Backend::Wall(kind)) {
            Err(failure) => Wall { kind, enforcement: None, note: failure.message },
            Ok(backend) => match trial::trial(backend.as_ref(), trial::Kind::Usual, &places.state, &places.home) {
                Ok(found) => Wall { kind, enforcement: Some(found.enforcement), note: String::new() },
                Err(error) => {
                    let failure = explain(&error);
                    let hint = failure.hint.map(|h| format!(" ({h})")).unwrap_or_default();
                    Wall { kind, enforcement: None, note: format!("cannot start: {}{hint}", failure.message) }
                }
            },
        },
        BackendKind::Docker
        | BackendKind::Gvisor
        | BackendKind::Microvm
        | BackendKind::Shuru
        | BackendKind::E2b
        | BackendKind::Kubernetes => Wall { kind, enforcement: None, note: "not part of this version".into() },
    })
}

pub(super) fn choose(args: &UseArgs, context: &Context) -> Result<ExitCode, Failure> {
    let places = context.places()?;
    let choice = args.backend.name().parse().map_err(|_| Failure::new("arguments", "unknown backend"))?;
    assemble::backend_of(choice)?;
    lifecycle("sandbox.use", &[args.backend.name()], context, || {
        config_set(places, Target::User, "sandbox.backend", args.backend.name()).map_err(|e| Failure::from_error("settings", &e))
    })?;
    context.printer.note(format!("sandbox.backend = {}", args.backend.name()));
    if args.backend.name() == BackendKind::Local.name() {
        context.printer.banner(local::BANNER);
    }
    Ok(ExitCode::SUCCESS)
}
