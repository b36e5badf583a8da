//! From satisfied rules to a verdict: layers, asking, and whole calls.
//!
//! A forbid of any layer denies. An evaluation error denies. Without a permit there is no permission. A permit that asks is cancelled by a
//! plain permit of its own or a higher layer, so that a repository's rules can never answer for a person's.

use serde::{Deserialize, Serialize};

use crate::cedar::{Asker, Policies, Rule, RuleEffect, Satisfied};
use crate::decision::{Decision, RuleReference, Verdict};
use crate::request::{Principal, Request};
use crate::shell::{Call, Needs, Refusal, Script, helpers};
use crate::suggest;

/// The rule's name where nothing permitted.
const DEFAULT: &str = "default-deny";
/// The rule's name where no policy is asked for a permit.
const NO_POLICY: &str = "no-policy";

/// What holds where no rule permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Floor {
    /// Nothing is permitted but by a rule.
    Deny,
    /// No person or administrator wrote a policy: whatever no rule forbids may happen behind the wall.
    NoPolicy,
}

/// What policy says to a whole call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Judgement {
    /// The strictest verdict, and what decided it.
    pub decision: Decision,
    /// The verdict on each command, in the order of the text; empty where the script was refused.
    pub commands: Vec<(String, Decision)>,
    /// The only programs that may run; `None` where some permit does not say which.
    pub exec_list: Option<Vec<String>>,
}

impl Policies {
    /// What the rules say to one request.
    pub fn decide(&self, principal: &Principal, request: &Request<'_>, floor: Floor) -> Decision {
        decide(&Asker::new(self, principal), principal, request, floor)
    }

    /// What the rules say to a script or an argument list.
    pub fn judge(&self, principal: &Principal, script: &Result<Script, Refusal>, floor: Floor) -> Judgement {
        let script = match script {
            Ok(script) => script,
            Err(refusal) => return Judgement { decision: refused(refusal), commands: Vec::new(), exec_list: None },
        };
        let asker = Asker::new(self, principal);
        let commands: Vec<(String, Decision)> =
            script.calls.iter().map(|call| (call.shown(), decide(&asker, principal, &Request::Exec(call), floor))).collect();
        // The first of the strictest, so that what is shown is what one would mend first.
        let strictest = commands.iter().map(|(_, decision)| decision).rev().max_by_key(|decision| decision.verdict);
        let decision = strictest.cloned().unwrap_or_else(nothing_runs);
        let exec_list = if decision.verdict == Verdict::Deny { None } else { exec_list(&asker, &script.calls, floor) };
        Judgement { decision, commands, exec_list }
    }
}

fn decide(asker: &Asker<'_>, principal: &Principal, request: &Request<'_>, floor: Floor) -> Decision {
    let satisfied = asker.ask(request);
    let is_free = matches!(request, Request::Exec(call) if call.needs == Needs::Nothing);
    if is_free || floor == Floor::NoPolicy {
        let rule = if floor == Floor::NoPolicy { NO_POLICY } else { "no-permit-needed" };
        return without_permit(&satisfied, rule);
    }
    let (verdict, rules) = verdict(&satisfied);
    let reason = match verdict {
        Verdict::Deny => Some(why(&satisfied, request)),
        Verdict::Ask => rules.iter().find_map(|rule| rule.reason.clone()),
        Verdict::Allow => None,
    };
    let is_default = verdict == Verdict::Deny && rules.is_empty();
    let suggest = (is_default && satisfied.errors.is_empty()).then(|| suggest::rule(principal, request));
    let rule = match rules.first() {
        Some(rule) => rule.id.clone(),
        None if !satisfied.errors.is_empty() => "evaluation-error".to_owned(),
        None => DEFAULT.to_owned(),
    };
    Decision { verdict, rule, rules: rules.iter().map(|rule| reference(rule)).collect(), reason, suggest }
}

/// Only forbids and errors count.
fn without_permit(satisfied: &Satisfied<'_>, rule: &str) -> Decision {
    let allowed = Decision { verdict: Verdict::Allow, rule: rule.to_owned(), rules: Vec::new(), reason: None, suggest: None };
    if satisfied.forbids.is_empty() && satisfied.errors.is_empty() {
        return allowed;
    }
    let rule = satisfied.forbids.first().map_or_else(|| "evaluation-error".to_owned(), |rule| rule.id.clone());
    let rules = satisfied.forbids.iter().map(|rule| reference(rule)).collect();
    Decision { verdict: Verdict::Deny, rule, rules, reason: Some(forbidden(satisfied)), suggest: None }
}

/// The verdict and the rules behind it.
fn verdict<'a>(satisfied: &Satisfied<'a>) -> (Verdict, Vec<&'a Rule>) {
    if !satisfied.forbids.is_empty() || !satisfied.errors.is_empty() {
        return (Verdict::Deny, sorted(satisfied.forbids.clone()));
    }
    let plain = |rule: &&&Rule| rule.effect == RuleEffect::Permit;
    let highest = satisfied.permits.iter().filter(plain).map(|rule| rule.layer).max();
    let asks = satisfied.permits.iter().filter(|rule| rule.effect == RuleEffect::PermitAfterApproval);
    let asks: Vec<&Rule> = asks.filter(|rule| highest.is_none_or(|highest| highest < rule.layer)).copied().collect();
    if !asks.is_empty() {
        return (Verdict::Ask, sorted(asks));
    }
    let permits: Vec<&Rule> = satisfied.permits.iter().filter(plain).copied().collect();
    if permits.is_empty() { (Verdict::Deny, Vec::new()) } else { (Verdict::Allow, sorted(permits)) }
}

/// Highest layer first, then by place, so that the answer does not depend on the order of files.
fn sorted(mut rules: Vec<&Rule>) -> Vec<&Rule> {
    rules.sort_by(|a, b| b.layer.cmp(&a.layer).then_with(|| (&a.file, a.line).cmp(&(&b.file, b.line))));
    rules
}

fn why(satisfied: &Satisfied<'_>, request: &Request<'_>) -> String {
    if !satisfied.forbids.is_empty() || !satisfied.errors.is_empty() {
        return forbidden(satisfied);
    }
    let (_, id) = request.resource();
    let what = match request {
        Request::Exec(call) => call.shown(),
        Request::Connect { .. } | Request::Read { .. } | Request::Write { .. } | Request::Invoke(_) | Request::Approve { .. } => {
            stockade_core::escape::escape(id)
        }
    };
    format!("no rule permits `{what}` ({})", request.action().id())
}

fn forbidden(satisfied: &Satisfied<'_>) -> String {
    let forbids = sorted(satisfied.forbids.clone());
    match (forbids.first(), satisfied.errors.first()) {
        (Some(rule), _) => rule.reason.clone().unwrap_or_else(|| format!("the rule `{}` forbids it", rule.id)),
        (None, Some(error)) => format!("a rule could not be evaluated: {}", stockade_core::escape::escape(error)),
        (None, None) => "no rule permits it".to_owned(),
    }
}

/// A script that was not even put to the rules.
fn refused(refusal: &Refusal) -> Decision {
    Decision {
        verdict: Verdict::Deny,
        rule: refusal.rule().to_owned(),
        rules: Vec::new(),
        reason: Some(refusal.to_string()),
        suggest: None,
    }
}

fn nothing_runs() -> Decision {
    Decision { verdict: Verdict::Allow, rule: "nothing-runs".to_owned(), rules: Vec::new(), reason: None, suggest: None }
}

fn reference(rule: &Rule) -> RuleReference {
    RuleReference { id: rule.id.clone(), file: rule.file.to_string(), line: rule.line, layer: rule.layer, reason: rule.reason.clone() }
}

/// The programs of all calls with what they cannot work without, unless some permit would let any program pass.
fn exec_list(asker: &Asker<'_>, calls: &[Call], floor: Floor) -> Option<Vec<String>> {
    if floor == Floor::NoPolicy {
        return None;
    }
    let mut list = Vec::new();
    for call in calls.iter().filter(|call| call.needs == Needs::Permit) {
        if asker.permits_any(&Request::Exec(call)) {
            return None;
        }
        let helpers = helpers(&call.program).iter().map(|helper| (*helper).to_owned());
        list.extend(std::iter::once(call.program.clone()).chain(helpers));
    }
    list.sort();
    list.dedup();
    Some(list)
}
