//! A tool of an MCP server, as rules see it: a capability whose definition is the server's own word.
//!
//! Its schema is hostile. Only what a rule can write plainly is taken from it; the effect is what a person said.

use serde_json::{Map, Value};

use super::facts::{CapabilityFacts, InputFact, Presence};
use super::input::{Kind, kind};
use super::manifest::Effect;
use crate::pack::{CapabilityName, PackName, ServerName, ToolName};

/// Inputs that rules may name at most.
const MAX_INPUTS: usize = 64;
/// The longest name of one.
const MAX_NAME: usize = 64;

impl CapabilityFacts {
    /// Of a tool that takes this. An input with a name that a rule cannot write plainly is not seen by rules.
    pub fn of_tool(server: &ServerName, tool: &ToolName, effect: Effect, schema: &Map<String, Value>) -> Self {
        let required = schema.get("required").and_then(Value::as_array);
        let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|one| one == name));
        let members = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let fact = |(name, member): (&String, &Value)| InputFact {
            name: name.clone(),
            kind: member.as_object().map_or(Kind::Json, kind),
            presence: if is_required(name) { Presence::Always } else { Presence::Maybe },
        };
        let mut inputs: Vec<InputFact> = members.filter(|(name, _)| is_plain(name)).map(fact).collect();
        // By name, whatever order a server has: what is beyond the bound is always the same.
        inputs.sort_by(|one, other| one.name.cmp(&other.name));
        inputs.truncate(MAX_INPUTS);
        Self { name: CapabilityName::of_tool(server, tool), pack: PackName::of_server(server), effect, risk: effect.usual_risk(), inputs }
    }
}

/// Whether a name is one that a rule writes after a dot.
fn is_plain(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && name.len() <= MAX_NAME && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::capability::Vocabulary;
    use crate::schema_text;

    #[test]
    fn what_a_schema_says_cannot_reach_into_the_rules() {
        let schema = json!({
            "type": "object",
            "required": ["path", 7],
            "properties": {
                "path": { "type": "string" }, "maxCount": { "type": "integer" }, "free": true,
                "a\": Long }, x: { \"": { "type": "string" }, "x-y": { "type": "string" }, "": {},
            },
        });
        let (server, tool) = ("files".parse().unwrap(), "Read.me".parse().unwrap());
        let facts = CapabilityFacts::of_tool(&server, &tool, Effect::Write, schema.as_object().unwrap());
        let seen: Vec<(&str, Kind, Presence)> = facts.inputs.iter().map(|one| (one.name.as_str(), one.kind, one.presence)).collect();
        let expected =
            [("free", Kind::Json, Presence::Maybe), ("maxCount", Kind::Long, Presence::Maybe), ("path", Kind::Text, Presence::Always)];
        assert_eq!(seen, expected);
        let text = schema_text(&Vocabulary { capabilities: vec![facts] });
        assert!(text.contains("action \"mcp.files.Read.me\" in [\"invoke\"]"), "{text}");
        assert!(cedar_policy::Schema::from_cedarschema_str(&text).is_ok(), "{text}");
        let odd = json!({ "properties": [], "required": "x" });
        assert!(CapabilityFacts::of_tool(&server, &tool, Effect::Read, odd.as_object().unwrap()).inputs.is_empty());
    }
}
