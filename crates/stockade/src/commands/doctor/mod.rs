//! `stockade doctor`: what this machine can enforce, what is missing, and the command that fixes it.
//!
//! ```text
//! [ fix: plan ─▶ shown ─▶ confirmed ─▶ done ] ─▶ checks ─▶ trial ─▶ tables or JSON
//! ```
//!
//! The answer comes from a trial, a real sandbox around nothing; the checks beside it explain why a trial failed, in the words that a
//! refused run uses. Nothing is changed without `--fix`, but that what killed runs left is removed, as any start does.

mod act;
mod change;
mod checks;

use std::process::ExitCode;

use serde_json::json;
use stockade_core::demand::{Demand, Enforcement, Level};
use stockade_sandbox::state::KEEP;
use stockade_sandbox::surroundings::facts::Facts;
use stockade_sandbox::sweep;
use stockade_sandbox::trial::{self, Kind};
use stockade_store::settings::Backend;

use crate::Context;
use crate::assemble;
use crate::cli::DoctorArgs;
use crate::failure::Failure;
use crate::printer::Table;
use crate::text::{Text, Tone};
use checks::{Check, State};

pub(crate) fn run(args: &DoctorArgs, context: &Context) -> Result<ExitCode, Failure> {
    let fixes = if args.fix { Some(act::fix(args.yes, context)?) } else { None };
    let places = context.places()?;
    let facts = Facts::gather();
    let backend = assemble::backend_of(Backend::Auto)?;
    let tried = trial::trial(backend.as_ref(), Kind::Usual, &places.state, &places.home);
    let degraded = match &tried {
        Ok(_) => None,
        Err(_) => Some(trial::trial(backend.as_ref(), Kind::Degraded, &places.state, &places.home)),
    };
    let mut checks = checks::of_machine(&facts, tried.is_ok());
    checks.push(checks::of_state(places));
    checks.push(checks::of_settings(places, context));
    checks.push(checks::of_secrets(places));
    checks.push(checks::of_egress(places, context));
    checks.push(checks::of_daemon(places));
    checks.push(checks::of_servers(context));
    checks.push(checks::of_trial(&tried));
    checks.extend(degraded.as_ref().map(checks::of_degraded));
    crate::daemon::sweep(&places.runtime);
    let swept = sweep::sweep(&places.state, &places.runtime, KEEP, sweep::Extent::Everything);
    let swept = swept.map_err(|e| Failure::from_error("state", &e))?.len();
    checks.push(checks::of_leftovers(swept));
    let (enforcement, steps) = match &tried {
        Ok(found) => (found.enforcement.clone(), found.steps.clone()),
        Err(_) => (Enforcement::default(), Vec::new()),
    };
    let settled = checks.iter().all(|c| ![checks::SETTINGS, checks::DAEMON].contains(&c.name) || c.state == State::Good);
    let held = Demand::ALL.into_iter().filter(|d| d.is_isolation()).all(|d| enforcement.level(d) == Level::Enforced);
    let sound = settled && held && tried.as_ref().is_ok_and(|found| found.ran);
    if context.printer.is_json() {
        let steps: Vec<_> = steps.iter().map(|(step, micros)| json!({ "step": step, "micros": micros })).collect();
        let degraded = degraded.and_then(Result::ok).map(|found| found.enforcement);
        context.printer.json(&json!({
            "ok": sound,
            "backend": backend.kind(),
            "checks": checks,
            "enforcement": enforcement,
            "degraded": degraded,
            "fixes": fixes,
            "steps": steps,
        }))?;
    } else {
        show(&checks, &enforcement, sound, context)?;
    }
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn show(checks: &[Check], enforcement: &Enforcement, sound: bool, context: &Context) -> Result<(), Failure> {
    let mut table = Table::new(["CHECK", "STATE", "DETAIL", "WHAT IT MEANS", "FIX"]);
    for check in checks {
        table.row([check.name, check.state.word(), &check.detail, &check.meaning, &check.fix]);
    }
    context.printer.table(&table)?;
    context.printer.line("")?;
    let mut table = Table::new(["DEMAND", "JAIL", "HOW"]);
    for demand in Demand::ALL {
        let how = enforcement.0.get(&demand).map_or("", |a| a.how.as_str());
        table.row([demand.name(), &enforcement.level(demand).to_string(), how]);
    }
    context.printer.table(&table)?;
    let fixes: Vec<&str> = checks
        .iter()
        .filter(|c| c.state == State::Missing)
        .map(|c| c.fix.as_str())
        .chain(enforcement.0.values().map(|a| a.fix.as_str()))
        .filter(|f| !f.is_empty())
        .collect();
    for (at, fix) in fixes.iter().enumerate() {
        if !fixes.iter().take(at).any(|earlier| earlier == fix) {
            context.printer.line(format!("fix: {fix}"))?;
        }
    }
    context.printer.line("")?;
    context.printer.line(if sound {
        Text::toned(Tone::Good, "ok").then(": every isolation demand is enforced")
    } else {
        Text::toned(Tone::Bad, "not ok").then(": sandboxes refuse to start here until the above is fixed")
    })
}
