//! The schema of namespace `Stockade`: what a rule may name. Generated here, printed by `policy check --schema`.
//!
//! A rule that names anything else does not load, so a misspelling can never widen what is allowed.

use std::fmt::Write as _;

use crate::capability::{CapabilityFacts, InputFact, Kind, Presence, Scalar, Vocabulary};
use crate::request::Action;

/// The namespace of everything.
pub(crate) const NAMESPACE: &str = "Stockade";

/// The context of one action, as Cedar writes it.
fn context(action: Action) -> &'static str {
    match action {
        Action::Exec => {
            "subcommand: String, flags: Set<String>, operands: Set<String>, count: Long, opaque: Bool, reads: Set<String>, writes: Set<String>"
        }
        Action::Connect => "port: Long, tls: Bool, method: String, path: String, secret?: String",
        Action::Read | Action::Write => "workspace: String",
        Action::Approve => "requesterAgent?: Agent, requesterHuman?: Human, effect: String, method: String",
        // Only the capabilities in the group are ever asked about.
        Action::Invoke => "",
    }
}

/// What each action is done to.
fn resources(action: Action) -> &'static str {
    match action {
        Action::Exec => "[Program]",
        Action::Connect => "[Host]",
        Action::Read | Action::Write => "[Path]",
        Action::Approve => "[Capability, Program, Host, Path]",
        Action::Invoke => "[Capability]",
    }
}

/// The context of one capability. Names of inputs are plain words, checked when the manifest was read.
fn capability_context(facts: &CapabilityFacts) -> String {
    let member = |InputFact { name, kind, presence }: &InputFact| {
        let mark = if *presence == Presence::Maybe { "?" } else { "" };
        format!("\"{name}\"{mark}: {}", cedar_type(*kind))
    };
    let args: Vec<String> = facts.inputs.iter().map(member).collect();
    format!("args: {{ {} }}, workspace: String, backend: String, network: Set<String>, time: datetime", args.join(", "))
}

fn cedar_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "Bool",
        Kind::Long => "Long",
        Kind::Set(Scalar::Bool) => "Set<Bool>",
        Kind::Set(Scalar::Long) => "Set<Long>",
        Kind::Set(Scalar::Text) => "Set<String>",
        Kind::Text | Kind::Number | Kind::Json => "String",
    }
}

/// The whole schema in Cedar's schema language, with an action for each capability.
pub fn schema_text(vocabulary: &Vocabulary) -> String {
    let mut text = format!("namespace {NAMESPACE} {{\n{ENTITIES}\n");
    for action in Action::FIXED {
        let (id, resources, context) = (action.id(), resources(action), context(action));
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "  action \"{id}\" appliesTo {{\n    principal: [Agent, Human],\n    resource: {resources},\n    context: {{ {context} }}\n  }};\n"
        );
    }
    for facts in &vocabulary.capabilities {
        let (name, context) = (&facts.name, capability_context(facts));
        let _ = write!(
            text,
            "  action \"{name}\" in [\"invoke\"] appliesTo {{\n    principal: [Agent, Human],\n    resource: [Capability],\n    context: {{ {context} }}\n  }};\n"
        );
    }
    text + "}\n"
}

const ENTITIES: &str = "  entity Tenant;
  entity Agent in [Tenant];
  entity Human in [Tenant];
  entity Pack;
  entity Capability in [Pack] = { effect: String, risk: String };
  entity Program = { path?: String, sha256?: String };
  entity Host in [Host];
  entity Path in [Path];
  action \"invoke\";";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_one() {
        let (_, warnings) = cedar_policy::Schema::from_cedarschema_str(&schema_text(&Vocabulary::default())).unwrap();
        assert_eq!(warnings.map(|w| w.to_string()).collect::<Vec<_>>(), Vec::<String>::new());
    }
}
