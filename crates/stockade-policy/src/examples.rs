//! Examples above a rule: `// allow: …` and `// deny: …`, each tried on that rule alone.
//!
//! `allow` above a permit must satisfy it and `deny` must not; above a forbid the other way around. So an example says what its own rule
//! means, whatever else there is. What an example looks like depends on the rule's action: a command line, `HOST[:PORT]`, a path, or a
//! capability with `NAME=VALUE` for each input.

use cedar_policy::{ActionConstraint, EntityUid, PrincipalConstraint};
use serde_json::{Map, Value};

use crate::capability::{CapabilityFacts, Invocation, Kind, Scalar, Vocabulary};
use crate::cedar::{Names, Rule, RuleEffect, satisfies};
use crate::fault::{Fault, FaultKind};
use crate::request::{Action, Principal, PrincipalKind, Request};
use crate::shell::{ByName, Needs, classify};
use crate::source::{Piece, PolicyFile};

/// Where the programs of examples stand.
const WORKSPACE: &str = "/workspace";

/// What an example claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    Allow,
    Deny,
}

/// Tries the examples above one rule.
pub(crate) fn check(rule: &Rule, file: &PolicyFile, piece: &Piece<'_>, known: (&Names, &Vocabulary), faults: &mut Vec<Fault>) {
    for (offset, comment) in &piece.comments {
        let Some((claim, text)) = example(comment) else { continue };
        let wanted = (claim == Claim::Allow) == (rule.effect != RuleEffect::Forbid);
        if matches(rule, known, text) != wanted {
            let says = match (wanted, rule.effect) {
                (true, RuleEffect::Forbid) => "does not forbid",
                (false, RuleEffect::Forbid) => "forbids",
                (true, _) => "does not permit",
                (false, _) => "permits",
            };
            let message = format!("the rule `{}` {says} its example `{text}`", rule.id);
            faults.push(Fault::at(FaultKind::Example, &file.name, &file.text, (*offset, comment.len() + 1), message));
        }
    }
}

/// How many examples stand above a rule.
pub(crate) fn count(piece: &Piece<'_>) -> usize {
    piece.comments.iter().filter(|(_, comment)| example(comment).is_some()).count()
}

fn example(comment: &str) -> Option<(Claim, &str)> {
    let claims = [("allow:", Claim::Allow), ("deny:", Claim::Deny)];
    claims.iter().find_map(|(word, claim)| Some((*claim, comment.strip_prefix(word)?.trim())))
}

/// Whether an example satisfies the rule, for any principal that the rule could be about.
fn matches(rule: &Rule, (names, vocabulary): (&Names, &Vocabulary), text: &str) -> bool {
    let ask = |request: &Request<'_>| {
        let principals = principals(rule);
        principals.iter().any(|principal| satisfies(&rule.policy, names, principal, request).unwrap_or(false))
    };
    match action(rule) {
        Action::Exec => {
            let Ok(script) = classify(text, &ByName { directory: WORKSPACE }) else { return false };
            let mut calls = script.calls.iter().filter(|call| call.needs == Needs::Permit).peekable();
            // A forbid needs one command to hold it up, a permit needs all.
            match rule.effect {
                RuleEffect::Forbid => script.calls.iter().any(|call| ask(&Request::Exec(call))),
                RuleEffect::Permit | RuleEffect::PermitAfterApproval => {
                    calls.peek().is_some() && calls.all(|call| ask(&Request::Exec(call)))
                }
            }
        }
        Action::Connect => {
            let (method, target) = text.split_once(' ').unwrap_or(("", text));
            let (authority, path) = target.find('/').map_or((target, ""), |at| target.split_at(at));
            let (host, port) = authority.rsplit_once(':').map_or((authority, Ok(443)), |(host, port)| (host, port.parse::<u16>()));
            let Ok(port) = port else { return false };
            ask(&Request::Connect { host, port, tls: port != 80, method, path, secret: None })
        }
        Action::Read => ask(&Request::Read { path: text, workspace: WORKSPACE }),
        Action::Write => ask(&Request::Write { path: text, workspace: WORKSPACE }),
        Action::Invoke => {
            let mut words = text.split_whitespace();
            let Some(facts) = words.next().and_then(|name| vocabulary.find(name)) else { return false };
            let Some(values) = values(facts, words) else { return false };
            let (workspace, backend, time) = (WORKSPACE, "jail", "2026-01-01T12:00:00Z");
            ask(&Request::Invoke(&Invocation { capability: facts, values: &values, workspace, backend, network: &[], time }))
        }
        Action::Approve => false,
    }
}

/// The inputs of an example, each as its capability has it; a list takes its name again for each member.
fn values<'a>(facts: &CapabilityFacts, words: impl Iterator<Item = &'a str>) -> Option<Map<String, Value>> {
    let mut values = Map::new();
    for word in words {
        let (name, text) = word.split_once('=')?;
        let fact = facts.inputs.iter().find(|fact| fact.name == name)?;
        let string = || Some(Value::String(text.to_owned()));
        let parsed = || serde_json::from_str::<Value>(text).ok();
        match fact.kind {
            Kind::Text => drop(values.insert(name.to_owned(), string()?)),
            Kind::Bool | Kind::Long | Kind::Number | Kind::Json => drop(values.insert(name.to_owned(), parsed()?)),
            Kind::Set(scalar) => {
                let item = if scalar == Scalar::Text { string()? } else { parsed()? };
                values.entry(name.to_owned()).or_insert_with(|| Value::Array(Vec::new())).as_array_mut()?.push(item);
            }
        }
    }
    Some(values)
}

/// The action that a rule's examples are about: the one that its scope names, else running programs.
fn action(rule: &Rule) -> Action {
    let of = |uid: &EntityUid| {
        let id = AsRef::<str>::as_ref(uid.id());
        // Whatever is not one of ours is a capability, or their group.
        Some(Action::FIXED.into_iter().find(|action| action.id() == id).unwrap_or(Action::Invoke))
    };
    let named = match rule.policy.action_constraint() {
        ActionConstraint::Any => None,
        ActionConstraint::Eq(uid) => of(&uid),
        ActionConstraint::In(uids) => uids.iter().find_map(of),
    };
    named.unwrap_or(Action::Exec)
}

/// Principals that a rule could be about.
fn principals(rule: &Rule) -> Vec<Principal> {
    let named = |kind, uid: &EntityUid| Principal { kind, id: AsRef::<str>::as_ref(uid.id()).to_owned(), tenant: None };
    let usual = || vec![Principal::agent("example/agent"), Principal::human("example")];
    match rule.policy.principal_constraint() {
        PrincipalConstraint::Eq(uid) => vec![named(PrincipalKind::Agent, &uid), named(PrincipalKind::Human, &uid)],
        PrincipalConstraint::In(uid) | PrincipalConstraint::IsIn(_, uid) => {
            let tenant = AsRef::<str>::as_ref(uid.id()).to_owned();
            usual().into_iter().map(|principal| Principal { tenant: Some(tenant.clone()), ..principal }).collect()
        }
        PrincipalConstraint::Any | PrincipalConstraint::Is(_) => usual(),
    }
}
