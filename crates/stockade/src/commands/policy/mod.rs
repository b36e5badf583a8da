//! `stockade policy`: checks, tries and explains the rules, and adds one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use stockade_policy::{Checks, Decision, Faults, Floor, Judgement, Layer, Policies, PolicyFile, Principal, Trust, Verdict, schema_text};
use stockade_sandbox::workspace::locate;
use stockade_store::person;
use stockade_store::policy::{PolicyError, ProjectTrust, add_rule};

use crate::Context;
use crate::admission::{self, Ground, Rules, Wanted};
use crate::cli::{CheckArgs, PolicyArgs, PolicyVerb, QuestionArgs};
use crate::failure::Failure;
use crate::text::{Text, Tone};

const STEP: &str = "policy";
/// Bytes of one file that is checked by name.
const MAX_FILE: u64 = 1 << 20;

pub(crate) fn run(args: &PolicyArgs, context: &Context) -> Result<ExitCode, Failure> {
    match &args.verb {
        PolicyVerb::Check(args) => check(args, context),
        PolicyVerb::Test(_) => test(context),
        PolicyVerb::Explain(args) => explain(args, context),
        PolicyVerb::Allow(args) => allow(args, context),
    }
}

fn check(args: &CheckArgs, context: &Context) -> Result<ExitCode, Failure> {
    if args.schema {
        context.printer.bytes(schema_text().as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let files =
        if args.files.is_empty() { in_force(context)? } else { args.files.iter().map(|path| named(path)).collect::<Result<_, _>>()? };
    match Policies::compile(&files, Checks::All) {
        Ok(policies) => {
            if context.printer.is_json() {
                context.printer.json(&json!({ "faults": [], "files": files.len(), "rules": policies.rules().len() }))?;
            } else {
                context.printer.note(format!("{} rules in {} files stand", policies.rules().len(), files.len()));
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(faults) => {
            tell_faults(&faults, context)?;
            Ok(ExitCode::from(125))
        }
    }
}

fn tell_faults(Faults(faults): &Faults, context: &Context) -> Result<(), Failure> {
    if context.printer.is_json() {
        let faults = faults.iter().map(
            |fault| json!({ "file": fault.file, "line": fault.line, "column": fault.column, "message": fault.message, "hint": fault.hint }),
        );
        return context.printer.json(&json!({ "faults": faults.collect::<Vec<_>>() }));
    }
    for fault in faults {
        // The text is escaped where it was put together.
        context.printer.page_aside(&format!("{fault}\n"));
    }
    Ok(())
}

/// Examples are tried whenever rules are checked; this says how many there are.
fn test(context: &Context) -> Result<ExitCode, Failure> {
    let files = in_force(context)?;
    let policies = match Policies::compile(&files, Checks::All) {
        Ok(policies) => policies,
        Err(faults) => {
            tell_faults(&faults, context)?;
            return Ok(ExitCode::from(125));
        }
    };
    let (examples, rules) = (policies.examples(), policies.rules().len());
    if context.printer.is_json() {
        context.printer.json(&json!({ "examples": examples, "rules": rules, "failed": [] }))?;
    } else {
        context.printer.note(format!("{examples} examples above {rules} rules hold"));
    }
    Ok(ExitCode::SUCCESS)
}

fn explain(args: &QuestionArgs, context: &Context) -> Result<ExitCode, Failure> {
    let (rules, judgement) = judged(args, context)?;
    let Some(judgement) = judgement else {
        if context.printer.is_json() {
            context
                .printer
                .json(&json!({ "decision": stockade_core::result::Decision::no_policy(), "commands": [], "exec_list": null }))?;
        } else {
            context.printer.line("allow  no-policy: there are no rules; `stockade init` writes some")?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    if context.printer.is_json() {
        let commands =
            judgement.commands.iter().map(|(command, decision)| json!({ "command": command, "decision": admission::told(decision) }));
        let value = json!({
            "decision": admission::told(&judgement.decision),
            "commands": commands.collect::<Vec<_>>(),
            "exec_list": judgement.exec_list,
        });
        context.printer.json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    if judgement.commands.is_empty() {
        context.printer.line(line("the script", &judgement.decision))?;
    }
    for (command, decision) in &judgement.commands {
        context.printer.line(line(command, decision))?;
        for rule in &decision.rules {
            context.printer.line(format!("       {} ({}, {} layer)", rule.id, rule.source(), rule.layer.name()))?;
        }
        for text in decision.suggest.iter().flat_map(|rule| rule.lines()) {
            context.printer.line(format!("       | {text}"))?;
        }
    }
    match &judgement.exec_list {
        Some(list) => context.printer.line(format!("only these programs could run: {}", list.join(" ")))?,
        None if judgement.decision.verdict != Verdict::Deny => {
            context.printer.line("any program could run: a permit does not say which")?
        }
        None => {}
    }
    if matches!(rules.layers().project, ProjectTrust::Unknown | ProjectTrust::Changed) {
        context.printer.note("permits of this project do not count: stockade trust project");
    }
    Ok(ExitCode::SUCCESS)
}

fn line(command: &str, decision: &Decision) -> Text {
    let tone = match decision.verdict {
        Verdict::Allow => Tone::Good,
        Verdict::Ask => Tone::Caution,
        Verdict::Deny => Tone::Bad,
    };
    let reason = decision.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
    Text::toned(tone, format!("{:<5}", decision.verdict.name())).then(format!("  {command}  {}{reason}", decision.rule))
}

fn allow(args: &QuestionArgs, context: &Context) -> Result<ExitCode, Failure> {
    let (rules, judgement) = judged(args, context)?;
    let floor = rules.layers().floor;
    let Some(judgement) = judgement.filter(|_| floor == Floor::Deny) else {
        return Err(Failure::new(STEP, "there are no rules yet, and a first rule would forbid everything else").with_hint("stockade init"));
    };
    if judgement.decision.verdict == Verdict::Allow {
        context.printer.note(format!("it is allowed already ({})", judgement.decision.rule));
        return Ok(ExitCode::SUCCESS);
    }
    let denied = || judgement.commands.iter().map(|(_, decision)| decision).filter(|decision| decision.verdict == Verdict::Deny);
    if judgement.commands.is_empty() || denied().any(|decision| decision.suggest.is_none()) {
        let decision = denied().find(|decision| decision.suggest.is_none()).unwrap_or(&judgement.decision);
        let reason = decision.reason.clone().unwrap_or_default();
        return Err(Failure::new(STEP, format!("no rule can allow it: {reason} ({})", decision.rule)));
    }
    let mut suggestions: Vec<&String> = denied().filter_map(|decision| decision.suggest.as_ref()).collect();
    suggestions.dedup();
    if suggestions.is_empty() {
        return Err(Failure::new(STEP, "the rules want a person to approve it each time"));
    }
    let mut written = Vec::new();
    for rule in suggestions {
        let place = add_rule(context.places()?, rule).map_err(|error| admission::failure(&error))?;
        context.printer.note(format!("added at {}:{}", place.path.display(), place.line));
        if context.printer.is_json() {
            written.push(json!({ "file": place.path.to_string_lossy(), "line": place.line, "rule": rule }));
        } else {
            rule.lines().try_for_each(|text| context.printer.line(text))?;
        }
    }
    if context.printer.is_json() {
        context.printer.json(&json!({ "rules": written }))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Puts a command to the rules without running it; no judgement where there are no rules.
fn judged(args: &QuestionArgs, context: &Context) -> Result<(Rules, Option<Judgement>), Failure> {
    let workspace = workspace(args.workspace.as_ref(), context)?;
    let rules = Rules::load(context.places()?, &workspace)?;
    let path: Vec<PathBuf> = context.environment.variable("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    let ground = Ground { path: &path, current: context.environment.current_dir()?, writable: vec![workspace] };
    let wanted = match &args.shell {
        Some(script) => Wanted::Shell(script.as_ref()),
        None => Wanted::Program(&args.program),
    };
    let principal = args.agent.as_ref().map_or_else(|| Principal::human(person::name()), Principal::agent);
    let script = admission::classify(wanted, &ground.programs());
    let judgement = rules.policies().map(|policies| policies.judge(&principal, &script, rules.layers().floor));
    Ok((rules, judgement))
}

/// The files of all layers; none is an error, because somebody believes that there are some.
fn in_force(context: &Context) -> Result<Vec<PolicyFile>, Failure> {
    let workspace = workspace(None, context)?;
    let layers =
        stockade_store::policy::PolicyLayers::load(context.places()?, Some(&workspace)).map_err(|error| admission::failure(&error))?;
    if layers.is_empty() {
        return Err(Failure::new(STEP, "there are no rules to check").with_hint("stockade init"));
    }
    Ok(layers.files)
}

/// A file that was named: checked as if it were one of the person's own.
fn named(path: &Path) -> Result<PolicyFile, Failure> {
    use std::io::Read;

    let failed = |error: std::io::Error| Failure::from_error(STEP, &PolicyError::Read(path.to_owned(), error));
    let mut bytes = Vec::new();
    std::fs::File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(Failure::from_error(STEP, &PolicyError::TooLarge(path.to_owned())));
    }
    let text = String::from_utf8(bytes).map_err(|_| Failure::from_error(STEP, &PolicyError::NotText(path.to_owned())))?;
    Ok(PolicyFile { layer: Layer::User, trust: Trust::Trusted, name: path.display().to_string(), text })
}

pub(super) fn workspace(asked: Option<&PathBuf>, context: &Context) -> Result<PathBuf, Failure> {
    let located = locate::locate(context.environment.current_dir()?, asked.map(PathBuf::as_path), &context.places()?.home);
    match located {
        Ok(located) => Ok(located.path.as_path().to_owned()),
        // Rules of a person and a machine hold in any directory.
        Err(_) if asked.is_none() => Ok(context.environment.current_dir()?.to_owned()),
        Err(error) => Err(Failure::from_error("workspace", &error)),
    }
}
