//! `stockade cap run`: one capability in a fresh sandbox, or only what the rules say to it.

use std::io::Read;
use std::process::ExitCode;

use serde_json::{Value, json};
use stockade_core::result::Decision as Told;
use stockade_policy::{Decision, Principal, Verdict};
use stockade_store::packs::Packs;
use stockade_store::person;

use super::super::pack::failure;
use super::super::run::{DENIED, launch};
use crate::Context;
use crate::admission::told;
use crate::assemble::Assembled;
use crate::cli::CapRunArgs;
use crate::engine::Subject;
use crate::engine::asker::Asker;
use crate::engine::capability::{Apply, Called, Inputs, Wish};
use crate::failure::Failure;

/// Bytes of inputs at most.
const MAX_INPUT: u64 = 1 << 20;

pub(super) fn run(args: &CapRunArgs, context: &Context) -> Result<ExitCode, Failure> {
    let packs = Packs::load(context.places()?).map_err(|error| failure(&error))?;
    let (called, assembled) = assemble(args, &packs, context)?;
    if args.dry_run {
        let decision = called.decide(&Principal::human(person::name()), &assembled, &packs, context)?;
        return dry_run(&called, &assembled, &decision, context);
    }
    launch(assembled, Subject::Capability(&called, &packs), context)
}

/// Puts the call together that a person typed.
pub(super) fn assemble(args: &CapRunArgs, packs: &Packs, context: &Context) -> Result<(Called, Assembled), Failure> {
    let typed = args.input_json.as_deref().filter(|json| *json == "-").map(|_| standard_input()).transpose()?;
    let inputs = match typed.as_ref().or(args.input_json.as_ref()) {
        Some(text) => Inputs::Json(text),
        None => Inputs::Words(&args.inputs),
    };
    let apply = if args.apply { Apply::OnSuccess } else { Apply::Later };
    let wish = Wish { name: &args.name, inputs, workspace: args.workspace.clone(), apply, asker: Asker::Person };
    Called::assemble(wish, packs, context)
}

fn standard_input() -> Result<String, Failure> {
    let failed = |why: String| Failure::new("capability", why);
    let mut text = String::new();
    let read = std::io::stdin().take(MAX_INPUT + 1).read_to_string(&mut text);
    read.map_err(|error| failed(format!("cannot read standard input: {error}")))?;
    if text.len() as u64 > MAX_INPUT {
        return Err(failed(format!("the input has more than {MAX_INPUT} bytes")));
    }
    Ok(text)
}

/// Says what would happen. The exit code is that of a run that is denied, where it would be.
fn dry_run(called: &Called, assembled: &Assembled, decision: &Decision, context: &Context) -> Result<ExitCode, Failure> {
    if context.printer.is_json() {
        context.printer.json(&previewed(called, assembled, &told(decision)))?;
    } else {
        let hosts = hosts(assembled);
        let argv = argv(called);
        let reason = decision.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        context.printer.line(format!("{}  {}  {}{reason}", decision.verdict.name(), called.shown(), decision.rule))?;
        context.printer.line(format!("would run {argv:?} with the workspace {}", assembled.spec.workspace.mode))?;
        if !hosts.is_empty() {
            context.printer.line(format!("could reach {}", hosts.join(", ")))?;
        }
        for text in decision.suggest.iter().flat_map(|rule| rule.lines()) {
            context.printer.line(format!("  | {text}"))?;
        }
    }
    Ok(if decision.verdict == Verdict::Allow { ExitCode::SUCCESS } else { ExitCode::from(DENIED) })
}

/// The same with `--json`.
pub(crate) fn previewed(called: &Called, assembled: &Assembled, told: &Told) -> Value {
    let spec = &assembled.spec;
    let interpreter = called.program.interpreter.as_ref().map(|(path, sha256)| json!({ "path": path.to_string_lossy(), "sha256": sha256 }));
    json!({
        "decision": told, "capability": called.facts.name.as_str(), "pack": called.facts.pack.as_str(), "standing": called.standing.name(),
        "inputs": called.prepared.values, "argv": argv(called),
        "program": { "path": called.program.path.to_string_lossy(), "sha256": called.program.sha256, "interpreter": interpreter },
        "sandbox": { "workspace_mode": spec.workspace.mode, "hosts": hosts(assembled), "exec_list": spec.exec_list },
    })
}

fn hosts(assembled: &Assembled) -> Vec<String> {
    assembled.reach.hosts.iter().map(ToString::to_string).collect()
}

fn argv(called: &Called) -> Vec<String> {
    called.argv().iter().map(|word| word.to_string_lossy().into_owned()).collect()
}
