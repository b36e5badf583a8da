//! Drafts as Cedar text.
//!
//! A foreign question comes before a foreign permit, while one of our plain permits answers a question of its own layer. So a permit leaves out
//! whatever a question could be about.

use std::fmt::Write as _;

use super::{About, Draft, Fate, Note, Pattern, Wish};
use crate::cedar::{Checks, NAMESPACE, Policies};
use crate::fault::Faults;
use crate::source::{Layer, PolicyFile, Trust};
use crate::suggest::quoted;

/// All rules, in the order in which they were written.
pub(super) fn rules(drafts: &[Draft], origin: &str, notes: &mut Vec<Note>) -> Vec<String> {
    let mut rules = Vec::new();
    for draft in drafts {
        match one(draft, drafts) {
            Ok(body) => {
                let head = head(draft, drafts, &format!("{origin}-{}", rules.len() + 1));
                let rule = format!("{head}{body}");
                match stands(&rule) {
                    Ok(()) => rules.push(rule),
                    Err(why) => notes.push(left(draft, why)),
                }
            }
            Err(why) => notes.push(left(draft, why.to_owned())),
        }
    }
    rules
}

fn left(draft: &Draft, why: String) -> Note {
    Note { fate: Fate::Left, wish: Some(draft.wish), rule: draft.from.clone(), why }
}

/// Whether a rule would load: names that look like others do not.
fn stands(rule: &str) -> Result<(), String> {
    let file = PolicyFile { layer: Layer::User, trust: Trust::Trusted, name: "imported".to_owned(), text: rule.to_owned() };
    Policies::compile(&[file], Checks::All).map(|_| ()).map_err(|Faults(faults)| faults.into_iter().map(|fault| fault.message).collect())
}

/// Comments and annotations.
fn head(draft: &Draft, drafts: &[Draft], id: &str) -> String {
    // One line, whatever is in it: a comment must end where it ends here.
    let from = stockade_core::escape::escape(&draft.from);
    let mut text = format!("// from: {} {from}\n", draft.wish.name());
    if let Some(example) = example(draft, drafts) {
        let _ = writeln!(text, "// {}: {example}", if draft.wish == Wish::Deny { "deny" } else { "allow" });
    }
    let _ = writeln!(text, "@id({})", quoted(id));
    if draft.wish == Wish::Ask {
        text += "@approval(\"required\")\n";
    }
    if draft.wish != Wish::Allow {
        let reason = draft.reason.clone().unwrap_or_else(|| format!("{} `{}`", draft.wish.name(), draft.from));
        let _ = writeln!(text, "@reason({})", quoted(&reason));
    }
    text
}

/// What the rule is for, as an example that is tried on load. A permit that leaves out what is asked about need not hold for it.
fn example<'a>(draft: &'a Draft, drafts: &[Draft]) -> Option<&'a str> {
    match &draft.about {
        About::Exec(pattern) if draft.wish == Wish::Allow && questions(drafts).any(|other| exception(pattern, other).is_some()) => None,
        About::Exec(pattern) => pattern.example.as_deref(),
        About::Other { .. } => None,
    }
}

fn one(draft: &Draft, drafts: &[Draft]) -> Result<String, &'static str> {
    match &draft.about {
        About::Other { actions, resource, conditions } => {
            let action = match actions {
                [action] => format!("action == {}", action_uid(action)),
                actions => format!("action in [{}]", actions.iter().map(|action| action_uid(action)).collect::<Vec<_>>().join(", ")),
            };
            Ok(rule(draft.wish, &action, resource, conditions, &[]))
        }
        About::Exec(pattern) => {
            let resource = pattern.program.as_ref().map_or_else(|| "resource".to_owned(), |name| format!("resource == {}", program(name)));
            let action = format!("action == {}", action_uid("exec"));
            if draft.wish == Wish::Deny {
                return Ok(rule(draft.wish, &action, &resource, &pattern.wide, &[]));
            }
            let conditions = pattern.narrow.as_ref().ok_or("a `*` among the words would let through more than it says")?;
            let mut exceptions = Vec::new();
            if draft.wish == Wish::Allow {
                for question in questions(drafts) {
                    match exception(pattern, question) {
                        Some(Exception::Always) => return Err("another rule always asks about it"),
                        Some(Exception::When(text)) => exceptions.push(text),
                        None => {}
                    }
                }
            }
            Ok(rule(draft.wish, &action, &resource, conditions, &exceptions))
        }
    }
}

fn questions(drafts: &[Draft]) -> impl Iterator<Item = &Pattern> {
    drafts.iter().filter(|draft| draft.wish == Wish::Ask).filter_map(|draft| match &draft.about {
        About::Exec(pattern) => Some(pattern),
        About::Other { .. } => None,
    })
}

enum Exception {
    Always,
    When(String),
}

/// What a permit must leave to a question.
fn exception(permit: &Pattern, question: &Pattern) -> Option<Exception> {
    let mut conditions = question.wide.clone();
    match (&permit.program, &question.program) {
        (Some(one), Some(other)) if one != other => return None,
        (Some(_), Some(_)) if differ(permit.subcommand.as_deref(), question.subcommand.as_deref()) => return None,
        (None, Some(other)) => conditions.insert(0, format!("resource == {}", program(other))),
        (Some(_), Some(_)) | (_, None) => {}
    }
    Some(if conditions.is_empty() { Exception::Always } else { Exception::When(format!("({})", conditions.join(" && "))) })
}

/// A permit for one subcommand says nothing about another, nor about one that is hidden.
fn differ(one: Option<&str>, other: Option<&str>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one != other)
}

fn rule(wish: Wish, action: &str, resource: &str, conditions: &[String], exceptions: &[String]) -> String {
    let effect = if wish == Wish::Deny { "forbid" } else { "permit" };
    let mut text = format!("{effect} (\n  principal is {NAMESPACE}::Agent,\n  {action},\n  {resource}\n)");
    if !conditions.is_empty() {
        let _ = write!(text, " when {{\n  {}\n}}", conditions.join(" &&\n  "));
    }
    if !exceptions.is_empty() {
        let _ = write!(text, " unless {{\n  {}\n}}", exceptions.join(" ||\n  "));
    }
    text + ";"
}

fn action_uid(id: &str) -> String {
    format!("{NAMESPACE}::Action::{}", quoted(id))
}

fn program(name: &str) -> String {
    format!("{NAMESPACE}::Program::{}", quoted(name))
}
