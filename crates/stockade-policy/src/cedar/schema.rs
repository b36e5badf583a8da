//! The schema of namespace `Stockade`: what a rule may name. Generated here, printed by `policy check --schema`.
//!
//! A rule that names anything else does not load, so a misspelling can never widen what is allowed.

use std::fmt::Write as _;

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
    }
}

/// What each action is done to.
fn resources(action: Action) -> &'static str {
    match action {
        Action::Exec => "[Program]",
        Action::Connect => "[Host]",
        Action::Read | Action::Write => "[Path]",
        Action::Approve => "[Capability, Program, Host, Path]",
    }
}

/// The whole schema in Cedar's schema language.
pub fn schema_text() -> String {
    let mut text = format!("namespace {NAMESPACE} {{\n{ENTITIES}\n");
    for action in Action::ALL {
        let (id, resources, context) = (action.id(), resources(action), context(action));
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "  action \"{id}\" appliesTo {{\n    principal: [Agent, Human],\n    resource: {resources},\n    context: {{ {context} }}\n  }};\n"
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
        let (_, warnings) = cedar_policy::Schema::from_cedarschema_str(&schema_text()).unwrap();
        assert_eq!(warnings.map(|w| w.to_string()).collect::<Vec<_>>(), Vec::<String>::new());
    }
}
