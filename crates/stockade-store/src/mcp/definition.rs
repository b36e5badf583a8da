//! What a tool says of itself, and whom it comes from.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use stockade_core::escape::escape;
use stockade_policy::capability::{CapabilityFacts, Effect, canonical};
use stockade_policy::pack::{ServerName, ToolName};

use crate::packs::file::hex;

/// Bytes of one definition at most.
pub const MOST_BYTES: usize = 64 << 10;

/// Why a tool is none that anybody could accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Longer than a person would read.
    #[error("its definition has more than {MOST_BYTES} bytes")]
    Long,
    /// A name of something it takes or gives is not what it looks like.
    #[error("its schema has a name with hidden characters: `{0}`")]
    Hidden(String),
}

/// What a tool says of itself, and whom it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// What is started, or asked, to have it.
    source: Vec<String>,
    /// The whole of it, as the server gave it.
    tool: Value,
}

impl Definition {
    /// Of what a server gave.
    pub fn new(source: &[String], tool: Value) -> Result<Self, Unfit> {
        if canonical(&tool).len() > MOST_BYTES {
            return Err(Unfit::Long);
        }
        refuse_hidden_names(&tool)?;
        Ok(Self { source: source.to_vec(), tool })
    }

    /// Whom it comes from.
    pub fn source(&self) -> &[String] {
        &self.source
    }

    /// The whole of it, as the server gave it.
    pub fn tool(&self) -> &Value {
        &self.tool
    }

    /// What stands for all of it.
    pub fn sha256(&self) -> String {
        hex(&Sha256::digest(canonical(&json!({ "source": self.source, "tool": self.tool }))))
    }

    /// As agents are given it: the same but for characters that would not be seen.
    pub fn revealed(&self) -> Value {
        revealed(&self.tool)
    }

    /// What it takes: names of its inputs.
    pub fn takes(&self, input: &str) -> bool {
        self.schema().is_some_and(|schema| schema.get("properties").is_some_and(|members| members.get(input).is_some()))
    }

    /// As rules see it.
    pub fn facts(&self, server: &ServerName, tool: &ToolName, effect: Effect) -> CapabilityFacts {
        let none = Map::new();
        CapabilityFacts::of_tool(server, tool, effect, self.schema().unwrap_or(&none))
    }

    fn schema(&self) -> Option<&Map<String, Value>> {
        self.tool.get("inputSchema")?.as_object()
    }
}

/// Names cannot be written otherwise without becoming others; so what hides in one is refused.
fn refuse_hidden_names(value: &Value) -> Result<(), Unfit> {
    match value {
        Value::Array(items) => items.iter().try_for_each(refuse_hidden_names),
        Value::Object(members) => members.iter().try_for_each(|(name, member)| {
            let seen = escape(name);
            if seen == *name { refuse_hidden_names(member) } else { Err(Unfit::Hidden(seen)) }
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn revealed(value: &Value) -> Value {
    match value {
        // Line by line: a description may have several.
        Value::String(text) => Value::String(text.split('\n').map(escape).collect::<Vec<_>>().join("\n")),
        Value::Array(items) => items.iter().map(revealed).collect(),
        Value::Object(members) => members.iter().map(|(name, member)| (name.clone(), revealed(member))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_its_words_its_schemas_and_its_source() {
        let of = |source: &str, tool: Value| Definition::new(&[source.to_owned()], tool).unwrap().sha256();
        let base = of("a", json!({ "name": "t", "description": "d", "inputSchema": { "x": 1, "y": 2 } }));
        assert_eq!(base, of("a", json!({ "inputSchema": { "y": 2, "x": 1 }, "description": "d", "name": "t" })), "order means nothing");
        for (source, tool) in [
            ("b", json!({ "name": "t", "description": "d", "inputSchema": { "x": 1, "y": 2 } })),
            ("a", json!({ "name": "t", "description": "d ", "inputSchema": { "x": 1, "y": 2 } })),
            ("a", json!({ "name": "t", "description": "d", "inputSchema": { "x": 1, "y": 3 } })),
            ("a", json!({ "name": "t", "description": "d", "inputSchema": { "x": 1, "y": 2 }, "annotations": { "readOnlyHint": true } })),
        ] {
            assert_ne!(base, of(source, tool.clone()), "{source} {tool}");
        }
    }

    #[test]
    fn nothing_hides_in_one() {
        let tool = json!({ "name": "t", "description": "add\n\u{e0041}\u{202e}two", "inputSchema": { "properties": { "x": { "title": "\u{200b}" } } } });
        let definition = Definition::new(&[], tool).unwrap();
        let seen = definition.revealed();
        assert_eq!(seen["description"], "add\n\\u{e0041}\\u{202e}two");
        assert_eq!(seen["inputSchema"]["properties"]["x"]["title"], "\\u{200b}");
        assert!(definition.takes("x") && !definition.takes("y"));
        let hidden = json!({ "inputSchema": { "properties": { "pa\u{200b}th": {} } } });
        assert_eq!(Definition::new(&[], hidden), Err(Unfit::Hidden("pa\\u{200b}th".to_owned())));
        assert_eq!(Definition::new(&[], json!({ "description": "x".repeat(MOST_BYTES) })), Err(Unfit::Long));
    }
}
