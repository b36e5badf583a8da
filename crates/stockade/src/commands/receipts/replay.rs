//! `receipts replay`: what another policy would have made of a call. Nothing runs.
//!
//! The call is taken from its receipt: who asked, the words, the directory. Programs are known by name only, as the receipt has them, so that the
//! answer does not depend on what is installed today.

use std::io::Read as _;
use std::path::Path;

use serde_json::json;
use stockade_core::escape::escape;
use stockade_ledger::receipt::{Draft, Kind};
use stockade_policy::shell::{self, ByName};
use stockade_policy::{Checks, Floor, Layer, Policies, PolicyFile, Principal, Trust};
use stockade_store::person;

use super::existing;
use crate::Context;
use crate::admission;
use crate::cli::ReplayArgs;
use crate::failure::Failure;
use crate::receipts::book;

const STEP: &str = "replay";
/// Bytes of one policy file.
const MAX_FILE: u64 = 1 << 20;
/// Files of one policy.
const MAX_FILES: usize = 200;

pub(super) fn replay(args: &ReplayArgs, context: &Context) -> Result<(), Failure> {
    let entries = existing(context)?.show(&args.id).map_err(|error| book::failure(&error).with_hint("stockade receipts list"))?;
    let receipts = entries.iter().map(|entry| entry.receipt().map_err(|error| book::failure(&error))).collect::<Result<Vec<_>, _>>()?;
    let call = receipts.into_iter().map(|receipt| receipt.content).find(|call| matches!(call.kind, Kind::Intent | Kind::Denied));
    let call = call.ok_or_else(|| Failure::new(STEP, "nothing was asked for in this call that rules could be asked about"))?;
    let files = files(&args.policy)?;
    let policies = Policies::compile(&files, Checks::All).map_err(|faults| {
        let first = faults.0.first().map_or_else(String::new, stockade_policy::Fault::headline);
        Failure::new("policy", first).with_hint("stockade policy check FILE")
    })?;
    let principal = principal_of(&call);
    let script = script_of(&call)?;
    let judgement = policies.judge(&principal, &script, Floor::Deny);
    let now = admission::told(&judgement.decision);
    let then = call.policy.as_ref();
    if context.printer.is_json() {
        let commands =
            judgement.commands.iter().map(|(command, decision)| json!({ "command": command, "decision": admission::told(decision) }));
        let value = json!({
            "receipt_id": args.id.to_string(), "then": then, "now": now, "commands": commands.collect::<Vec<_>>(),
            "changed": then.is_none_or(|then| then.verdict != now.verdict),
        });
        return context.printer.json(&value);
    }
    let reason = |reason: Option<&str>| reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    if let Some(then) = then {
        context.printer.line(format!("then: {} ({}){}", then.verdict, then.rule, reason(then.reasons.first().map(String::as_str))))?;
    }
    context.printer.line(format!("now:  {} ({}){}", now.verdict, now.rule, reason(now.reason.as_deref())))?;
    for (command, decision) in &judgement.commands {
        context.printer.line(format!("      {:<5}  {command}  {}", decision.verdict.name(), decision.rule))?;
    }
    Ok(())
}

fn principal_of(call: &Draft) -> Principal {
    let asked = call.principal.as_ref();
    match asked.and_then(|asked| asked.agent.as_ref()) {
        Some(agent) => Principal::agent(agent),
        None => Principal::human(asked.and_then(|asked| asked.human.clone()).unwrap_or_else(person::name)),
    }
}

/// What was asked for, as the rules read it.
fn script_of(call: &Draft) -> Result<Result<shell::Script, shell::Refusal>, Failure> {
    if call.capability.is_some() {
        return Err(Failure::new(STEP, "it is not a program that was run; rules about programs do not concern it"));
    }
    if call.argv_cut.is_some() {
        return Err(Failure::new(STEP, "its arguments were too long to be kept, so it cannot be judged again"));
    }
    let argv = call.argv.as_deref().unwrap_or_default();
    let directory = call.cwd.as_deref().filter(|cwd| cwd.starts_with('/')).unwrap_or("/");
    let programs = ByName { directory };
    Ok(match argv {
        [flag, script] if flag == "--shell" => shell::classify(script, &programs),
        argv => shell::classify_argv(&argv.iter().map(|word| Some(word.as_str())).collect::<Vec<_>>(), &programs),
    })
}

/// The policy files of a directory, in the order of their names.
fn files(directory: &Path) -> Result<Vec<PolicyFile>, Failure> {
    let shown = |path: &Path| escape(&path.to_string_lossy());
    let failed = |path: &Path, error: std::io::Error| Failure::new("policy", format!("`{}`: {error}", shown(path)));
    let listed = std::fs::read_dir(directory).map_err(|error| failed(directory, error))?;
    let mut paths =
        listed.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>().map_err(|error| failed(directory, error))?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "cedar"));
    paths.sort();
    if paths.is_empty() {
        return Err(Failure::new("policy", format!("`{}` holds no *.cedar file", shown(directory))));
    }
    if paths.len() > MAX_FILES {
        return Err(Failure::new("policy", format!("`{}` holds more than {MAX_FILES} policy files", shown(directory))));
    }
    let read = |path: &std::path::PathBuf| {
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(|error| failed(path, error))?;
        file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(|error| failed(path, error))?;
        if text.len() as u64 > MAX_FILE {
            return Err(Failure::new("policy", format!("`{}` has more than {MAX_FILE} bytes", shown(path))));
        }
        Ok(PolicyFile { layer: Layer::User, trust: Trust::Trusted, name: shown(path), text })
    };
    paths.iter().map(read).collect()
}
