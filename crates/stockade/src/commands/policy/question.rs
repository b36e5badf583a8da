//! `policy explain` and `policy allow`: what the rules make of a command, a host or a capability, and the rule that lets it through.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use stockade_core::host::HostPattern;
use stockade_policy::{Decision, Floor, Judgement, Policies, Principal, Verdict};
use stockade_store::person;
use stockade_store::policy::{ProjectTrust, add_rules, proposal, withdraw};

use super::{STEP, workspace};
use crate::Context;
use crate::admission::{self, Ground, Rules, Wanted};
use crate::approver;
use crate::cli::{AllowArgs, QuestionArgs};
use crate::failure::Failure;
use crate::receipts::approved;
use crate::text::{Text, Tone};

/// What the rules say to a question.
pub(super) struct Answered {
    pub(super) rules: Rules,
    pub(super) principal: Principal,
    /// `None` where there are no rules.
    pub(super) judgement: Option<Judgement>,
}

pub(super) fn explain(args: &QuestionArgs, context: &Context) -> Result<ExitCode, Failure> {
    let Answered { rules, judgement, .. } = ask(args, context)?;
    // Forbids of a project alone leave agents where they are without any rules.
    let judgement = judgement.filter(|_| args.agent.is_none() || rules.layers().floor != Floor::NoPolicy);
    let Some(judgement) = judgement else {
        let decision = if args.agent.is_some() { admission::no_agents() } else { stockade_core::result::Decision::no_policy() };
        if context.printer.is_json() {
            context.printer.json(&json!({ "decision": decision, "commands": [], "exec_list": null }))?;
        } else {
            let why = decision.reason.unwrap_or_else(|| "there are no rules".to_owned());
            context.printer.line(format!("{:<5}  no-policy: {why}; `stockade init` writes some", decision.verdict))?;
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
        None if judgement.decision.verdict != Verdict::Deny && args.host.is_none() => {
            context.printer.line("any program could run: a permit does not say which")?;
        }
        None => {}
    }
    if matches!(rules.layers().project, ProjectTrust::Unknown | ProjectTrust::Changed) {
        context.printer.note("permits of this project do not count: stockade trust project");
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn allow(args: &AllowArgs, context: &Context) -> Result<ExitCode, Failure> {
    let places = context.places()?;
    if let Some(id) = &args.proposal {
        let proposal = proposal(places, id).map_err(|error| admission::failure(&error).with_hint("stockade policy proposals"))?;
        context.printer.note(format!("{} asked for: {}", proposal.principal, proposal.asked));
        add(&proposal.rules, context)?;
        withdraw(places, id).map_err(|error| admission::failure(&error))?;
        return Ok(ExitCode::SUCCESS);
    }
    let answered = ask(&args.question, context)?;
    match missing(&answered)? {
        Some(rules) => add(&rules, context)?,
        None => context.printer.note("it is allowed already"),
    }
    Ok(ExitCode::SUCCESS)
}

/// The rules that would let it through; `None` where it is let through already.
pub(super) fn missing(answered: &Answered) -> Result<Option<Vec<String>>, Failure> {
    let floor = answered.rules.layers().floor;
    let Some(judgement) = answered.judgement.as_ref().filter(|_| floor == Floor::Deny) else {
        return Err(Failure::new(STEP, "there are no rules yet, and a first rule would forbid everything else").with_hint("stockade init"));
    };
    if judgement.decision.verdict == Verdict::Allow {
        return Ok(None);
    }
    let denied = || judgement.commands.iter().map(|(_, decision)| decision).filter(|decision| decision.verdict == Verdict::Deny);
    let hopeless =
        if judgement.commands.is_empty() { Some(&judgement.decision) } else { denied().find(|decision| decision.suggest.is_none()) };
    if let Some(decision) = hopeless {
        let reason = decision.reason.clone().unwrap_or_default();
        return Err(Failure::new(STEP, format!("no rule can allow it: {reason} ({})", decision.rule)));
    }
    let mut rules: Vec<String> = Vec::new();
    for rule in denied().filter_map(|decision| decision.suggest.clone()) {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    if rules.is_empty() {
        return Err(Failure::new(STEP, "the rules want a person to approve it each time"));
    }
    Ok(Some(rules))
}

fn add(rules: &[String], context: &Context) -> Result<(), Failure> {
    let texts: Vec<&str> = rules.iter().map(String::as_str).collect();
    let places = context.places()?;
    let decider = approver::demand("add a rule", context)?;
    let write = || add_rules(places, &texts).map_err(|error| admission::failure(&error));
    let place = approved("policy.allow", &texts, &decider, context, write)?;
    context.printer.note(format!("added at {}:{}", place.path.display(), place.line));
    if context.printer.is_json() {
        return context.printer.json(&json!({ "file": place.path.to_string_lossy(), "line": place.line, "rules": rules }));
    }
    rules.iter().flat_map(|rule| rule.lines()).try_for_each(|text| context.printer.line(text))
}

/// Puts a command, a host or a capability to the rules; nothing runs.
pub(super) fn ask(args: &QuestionArgs, context: &Context) -> Result<Answered, Failure> {
    let principal = args.agent.as_ref().map_or_else(|| Principal::human(person::name()), Principal::agent);
    if let Some(name) = &args.cap {
        let (rules, judgement) = super::super::cap::judged(name, args, &principal, context)?;
        return Ok(Answered { rules, principal, judgement: Some(judgement) });
    }
    let workspace = workspace(args.workspace.as_ref(), context)?;
    let rules = Rules::load(context.places()?, &workspace)?;
    let floor = rules.layers().floor;
    if let Some(host) = &args.host {
        let judgement = rules.policies()?.map(|policies| reached(policies, &principal, host, floor));
        return Ok(Answered { rules, principal, judgement });
    }
    let path: Vec<PathBuf> = context.environment.variable("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    let ground = Ground { path: &path, current: context.environment.current_dir()?, writable: vec![workspace] };
    let script = admission::classify(wanted(args), &ground.programs());
    let judgement = rules.policies()?.map(|policies| policies.judge(&principal, &script, floor));
    Ok(Answered { rules, principal, judgement })
}

/// What is asked about, where it is no host.
pub(super) fn wanted(args: &QuestionArgs) -> Wanted<'_> {
    match &args.shell {
        Some(script) => Wanted::Shell(script.as_ref()),
        None => Wanted::Program(&args.program),
    }
}

/// What the rules say to each port of a host.
fn reached(policies: &Policies, principal: &Principal, host: &HostPattern, floor: Floor) -> Judgement {
    let name = host.without_port();
    let ports = host.ports().iter();
    let commands: Vec<(String, Decision)> =
        ports.map(|port| (format!("{name}:{port}"), policies.decide(principal, &admission::connect(&name, *port), floor))).collect();
    let strictest = commands.iter().map(|(_, decision)| decision).max_by_key(|decision| decision.verdict).cloned();
    let decision = strictest.unwrap_or_else(|| policies.decide(principal, &admission::connect(&name, 443), floor));
    Judgement { decision, commands, exec_list: None }
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
