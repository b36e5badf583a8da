//! `policy propose` and `policy proposals`: rules that wait for a person.

use std::process::ExitCode;

use jiff::Timestamp;
use serde_json::json;
use stockade_policy::Principal;
use stockade_store::policy::{self, Proposal, ProposalDraft};

use super::STEP;
use super::question::{ask, missing, wanted};
use crate::Context;
use crate::admission;
use crate::cli::{ProposalsArgs, ProposeArgs, QuestionArgs};
use crate::failure::Failure;
use crate::receipts::lifecycle;

pub(super) fn propose(args: &ProposeArgs, context: &Context) -> Result<ExitCode, Failure> {
    let answered = ask(&args.question, context)?;
    let Some(rules) = missing(&answered)? else {
        context.printer.note("it is allowed already");
        return Ok(ExitCode::SUCCESS);
    };
    let draft = ProposalDraft { principal: shown(&answered.principal), asked: asked(&args.question), reason: args.reason.clone(), rules };
    let (places, question) = (context.places()?, draft.asked.clone());
    let proposal = lifecycle("policy.propose", &[&question], context, || {
        policy::propose(places, draft).map_err(|error| admission::failure(&error).with_hint("stockade policy proposals"))
    })?;
    if context.printer.is_json() {
        context.printer.json(&value(&proposal))?;
    } else {
        context.printer.line(proposal.id.as_str())?;
        context.printer.note(format!("a person may now say: stockade policy allow {}", proposal.id));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn proposals(args: &ProposalsArgs, context: &Context) -> Result<ExitCode, Failure> {
    let places = context.places()?;
    if let Some(id) = &args.remove {
        if !policy::withdraw(places, id).map_err(|error| admission::failure(&error))? {
            return Err(Failure::new(STEP, format!("there is no proposal `{id}`")).with_hint("stockade policy proposals"));
        }
        context.printer.note(format!("the proposal {id} is gone"));
        return Ok(ExitCode::SUCCESS);
    }
    let found = policy::proposals(places).map_err(|error| admission::failure(&error))?;
    if context.printer.is_json() {
        context.printer.json(&json!({ "proposals": found.iter().map(value).collect::<Vec<_>>() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for proposal in &found {
        context.printer.line(format!("{}  {}  {}", proposal.id, time(proposal), proposal.principal))?;
        proposal.asked.lines().try_for_each(|line| context.printer.line(format!("  asked for: {line}")))?;
        if let Some(reason) = &proposal.reason {
            context.printer.line(format!("  because:   {reason}"))?;
        }
        proposal.rules.iter().flat_map(|rule| rule.lines()).try_for_each(|line| context.printer.line(format!("  | {line}")))?;
    }
    if found.is_empty() {
        context.printer.note("nothing is proposed");
    } else {
        context.printer.note("stockade policy allow ID adds the rules; stockade policy proposals --remove ID takes a proposal away");
    }
    Ok(ExitCode::SUCCESS)
}

fn value(proposal: &Proposal) -> serde_json::Value {
    let Proposal { id, principal, asked, reason, rules, .. } = proposal;
    json!({ "id": id, "time": time(proposal), "principal": principal, "asked": asked, "reason": reason, "rules": rules })
}

fn time(proposal: &Proposal) -> String {
    Timestamp::from_second(proposal.time).map(|time| time.to_string()).unwrap_or_default()
}

fn shown(principal: &Principal) -> String {
    format!("{}::{:?}", principal.kind.name(), principal.id)
}

/// What was asked for, in words.
fn asked(args: &QuestionArgs) -> String {
    match (&args.host, &args.cap) {
        (Some(host), _) => host.to_string(),
        (None, Some(cap)) => std::iter::once(cap).chain(&args.inputs).map(String::as_str).collect::<Vec<_>>().join(" "),
        (None, None) => admission::shown(wanted(args)).join(if args.shell.is_some() { "\n" } else { " " }),
    }
}
