//! `stockade doctor`: what this machine can enforce, what is missing, and the command that fixes it.
//!
//! The answer comes from a trial, a real sandbox around nothing; the checks beside it explain why a trial failed.

use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;
use stockade_core::demand::{Demand, Enforcement, Level};
use stockade_sandbox::state::KEEP;
use stockade_sandbox::workspace::locate::locate;
use stockade_sandbox::{once, trial};
use stockade_store::settings::{Backend, Settings};

use super::run::explain;
use crate::Context;
use crate::assemble;
use crate::cli::DoctorArgs;
use crate::failure::Failure;
use crate::printer::Table;
use crate::text::{Text, Tone};

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Good,
    Missing,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    detail: String,
    /// The command that fixes it; empty when nothing is wrong.
    fix: String,
}

/// A switch of the kernel that ordinary users need.
struct Switch {
    name: &'static str,
    path: &'static str,
    is_good: fn(u64) -> bool,
    good: &'static str,
    fix: &'static str,
}

const SWITCHES: [Switch; 4] = [
    Switch {
        name: "user namespaces",
        path: "/proc/sys/user/max_user_namespaces",
        is_good: |n| n > 0,
        good: "15000",
        fix: "sysctl -w user.max_user_namespaces=15000",
    },
    Switch {
        name: "unprivileged user namespaces",
        path: "/proc/sys/kernel/unprivileged_userns_clone",
        is_good: |n| n == 1,
        good: "1",
        fix: "sysctl -w kernel.unprivileged_userns_clone=1",
    },
    Switch {
        name: "AppArmor's restriction of user namespaces",
        path: "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        is_good: |n| n == 0,
        good: "0",
        fix: "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    },
    Switch {
        name: "executable memory files",
        path: "/proc/sys/vm/memfd_noexec",
        is_good: |n| n < 2,
        good: "1",
        fix: "sysctl -w vm.memfd_noexec=1",
    },
];

pub(crate) fn run(args: &DoctorArgs, context: &Context) -> Result<ExitCode, Failure> {
    let places = context.places()?;
    let mut checks = vec![kernel()];
    for switch in &SWITCHES {
        checks.extend(look(switch, args.fix));
    }
    checks.push(settings(places, context));
    let backend = assemble::backend_of(Backend::Auto)?;
    let tried = trial::trial(backend.as_ref(), trial::Kind::Usual, &places.state, &places.home);
    let (enforcement, steps) = match &tried {
        Ok(found) => (found.enforcement.clone(), found.steps.clone()),
        Err(_) => (Enforcement::default(), Vec::new()),
    };
    checks.push(match &tried {
        Ok(found) if found.ran => {
            Check { name: "trial", state: State::Good, detail: "a sandbox started and ran a program".into(), fix: String::new() }
        }
        Ok(_) => {
            Check { name: "trial", state: State::Missing, detail: "a sandbox started but no program runs in it".into(), fix: String::new() }
        }
        Err(error) => {
            let failure = explain(error);
            Check {
                name: "trial",
                state: State::Missing,
                detail: format!("{}: {}", failure.step, failure.message),
                fix: failure.hint.unwrap_or_default(),
            }
        }
    });
    let swept = once::sweep(&places.state, &places.runtime, KEEP).map_err(|e| Failure::from_error("state", &e))?.len();
    let detail = if swept == 0 { "none".to_owned() } else { format!("{swept} removed") };
    checks.push(Check { name: "left-overs of killed runs", state: State::Good, detail, fix: String::new() });
    let settled = checks.iter().all(|c| c.name != "settings" || c.state == State::Good);
    let sound =
        settled && tried.is_ok() && Demand::ALL.into_iter().filter(|d| d.is_isolation()).all(|d| enforcement.level(d) == Level::Enforced);
    if context.printer.is_json() {
        let steps: Vec<_> = steps.iter().map(|(step, micros)| json!({ "step": step, "micros": micros })).collect();
        context
            .printer
            .json(&json!({ "ok": sound, "backend": backend.kind(), "checks": checks, "enforcement": enforcement, "steps": steps }))?;
    } else {
        show(&checks, &enforcement, sound, context)?;
    }
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn show(checks: &[Check], enforcement: &Enforcement, sound: bool, context: &Context) -> Result<(), Failure> {
    let mut table = Table::new(["CHECK", "STATE", "DETAIL"]);
    for check in checks {
        table.row([check.name, if check.state == State::Good { "good" } else { "missing" }, &check.detail]);
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

/// Whether `run` would accept the settings that are in force here.
fn settings(places: &stockade_store::places::Places, context: &Context) -> Check {
    let check = |state, detail: String, fix: String| Check { name: "settings", state, detail, fix };
    let here = context.environment.current_dir().ok().and_then(|cwd| locate(cwd, None, &places.home).ok());
    match Settings::load(places, here.as_ref().map(|l| l.path.as_path())) {
        Err(error) => check(State::Missing, error.to_string(), error.hint().unwrap_or_default()),
        Ok(settings) if !settings.enabled().value => {
            check(State::Missing, "sandbox.enabled is false".into(), "stockade config set sandbox.enabled true".into())
        }
        Ok(settings) => match assemble::backend_of(settings.backend().value) {
            Ok(backend) => check(State::Good, format!("backend {}", backend.kind()), String::new()),
            Err(failure) => check(State::Missing, failure.message, failure.hint.unwrap_or_default()),
        },
    }
}

fn kernel() -> Check {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|p| p.parse::<u32>().ok());
    let new_enough = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (5, 13);
    Check {
        name: "kernel",
        state: if new_enough { State::Good } else { State::Missing },
        detail: release,
        fix: if new_enough { String::new() } else { "use Linux 5.13 or newer".into() },
    }
}

/// Looks at a switch, and turns it when asked to and allowed to. One that this kernel does not have is not mentioned.
fn look(switch: &Switch, fix: bool) -> Option<Check> {
    let read = || std::fs::read_to_string(switch.path).ok().and_then(|t| t.trim().parse::<u64>().ok());
    let mut value = read()?;
    if fix && !(switch.is_good)(value) && std::fs::write(switch.path, switch.good).is_ok() {
        value = read()?;
    }
    let good = (switch.is_good)(value);
    Some(Check {
        name: switch.name,
        state: if good { State::Good } else { State::Missing },
        detail: format!("{} = {value}", switch.path),
        fix: if good { String::new() } else { format!("sudo {}", switch.fix) },
    })
}
