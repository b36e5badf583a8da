//! Whether rules about hosts depend on what only a request says: its method, its path, the secret it carries.
//!
//! A sandbox's hosts are known before anything is sent. Where every rule can be answered by host and port, nothing needs to be asked later.

use cedar_policy::Policy;
use serde_json::Value;

use super::compile::Policies;
use super::index::may_match;
use crate::request::Action;

/// What is known of a connection before anything was sent over it.
const BEFORE: [&str; 2] = ["port", "tls"];

impl Policies {
    /// Whether some rule that counts has to be asked about every request.
    pub fn look_at_requests(&self) -> bool {
        let about_hosts = self.rules().iter().filter(|rule| rule.counts() && may_match(&rule.policy.action_constraint(), Action::Connect));
        about_hosts.into_iter().any(|rule| looks_at_requests(&rule.policy))
    }
}

/// What cannot be told is looked at.
fn looks_at_requests(policy: &Policy) -> bool {
    policy.to_json().map_or(true, |json| json.get("conditions").is_some_and(uses_context))
}

/// Whether an expression uses the context for more than what is known before.
fn uses_context(expression: &Value) -> bool {
    let is_context = |value: &Value| value.get("Var").and_then(Value::as_str) == Some("context");
    if is_context(expression) {
        return true;
    }
    match expression {
        Value::Object(members) => members.iter().any(|(operator, operand)| {
            let attribute = (operator == "." && operand.get("left").is_some_and(is_context)).then(|| operand.get("attr")).flatten();
            match attribute.and_then(Value::as_str) {
                Some(name) => !BEFORE.contains(&name),
                None => uses_context(operand),
            }
        }),
        Value::Array(items) => items.iter().any(uses_context),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Checks, Layer, Policies, PolicyFile, Trust};

    #[test]
    fn only_rules_about_requests_are_asked_about_them() {
        for (condition, expected) in [
            ("", false),
            ("when { context.port == 443 && context.tls }", false),
            ("when { principal == Stockade::Human::\"context\" }", false),
            ("when { context.method == \"GET\" }", true),
            ("unless { context.port == 80 || !(context.path like \"/a/*\") }", true),
            ("when { context has secret }", true),
            ("when { if context has secret then false else true }", true),
            ("when { [\"GET\", \"HEAD\"].contains(context[\"method\"]) }", true),
        ] {
            let text = format!("permit (principal, action == Stockade::Action::\"connect\", resource) {condition};");
            let other = "permit (principal, action == Stockade::Action::\"exec\", resource) when { context.subcommand == \"log\" };";
            let file = |text: String| PolicyFile { layer: Layer::User, trust: Trust::Trusted, name: "a".into(), text };
            let policies = Policies::compile(&[file(format!("{text}\n{other}"))], Checks::All).unwrap();
            assert_eq!(policies.look_at_requests(), expected, "{condition}");
            let untrusted = PolicyFile { trust: Trust::Untrusted, ..file(text) };
            assert!(!Policies::compile(&[untrusted], Checks::All).unwrap().look_at_requests(), "{condition}");
        }
    }
}
