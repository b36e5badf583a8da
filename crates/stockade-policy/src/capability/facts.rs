//! What rules may say about capabilities, and one call of one: plain data that Cedar values are made from.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::input::{Kind, Scalar};
use super::manifest::{Effect, Risk};
use crate::pack::{CapabilityName, PackName};

/// Whether an input is always there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Required, or it has a default.
    Always,
    /// A rule must ask with `has` first.
    Maybe,
}

/// One input. Where it is kept between loads it is one text, `name kind` or `name? kind`: there are thousands of them, and each load reads
/// them all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct InputFact {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Whether it is always there.
    pub presence: Presence,
}

/// The kinds, as they are kept.
const KINDS: [(&str, Kind); 8] = [
    ("bool", Kind::Bool),
    ("long", Kind::Long),
    ("text", Kind::Text),
    ("number", Kind::Number),
    ("json", Kind::Json),
    ("bools", Kind::Set(Scalar::Bool)),
    ("longs", Kind::Set(Scalar::Long)),
    ("texts", Kind::Set(Scalar::Text)),
];

impl From<InputFact> for String {
    fn from(fact: InputFact) -> Self {
        let mark = if fact.presence == Presence::Maybe { "?" } else { "" };
        let kind = KINDS.iter().find(|(_, kind)| *kind == fact.kind).map_or("", |(name, _)| name);
        format!("{}{mark} {kind}", fact.name)
    }
}

impl TryFrom<String> for InputFact {
    type Error = &'static str;

    fn try_from(mut text: String) -> Result<Self, &'static str> {
        let (name, kind) = text.split_once(' ').ok_or("an input without a kind")?;
        let kind = KINDS.iter().find(|(known, _)| *known == kind).ok_or("an unknown kind")?.1;
        let plain = name.trim_end_matches('?');
        let presence = if plain.len() < name.len() { Presence::Maybe } else { Presence::Always };
        text.truncate(plain.len());
        Ok(Self { name: text, kind, presence })
    }
}

/// A capability as rules see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapabilityFacts {
    /// Its name: the action's and the resource's id.
    pub name: CapabilityName,
    /// Its pack.
    pub pack: PackName,
    /// What it does to the world.
    pub effect: Effect,
    /// How bad a wrong call would be.
    pub risk: Risk,
    /// Its inputs.
    pub inputs: Vec<InputFact>,
}

/// One call of a capability, as rules are asked about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation<'a> {
    /// The capability.
    pub capability: &'a CapabilityFacts,
    /// Its inputs, checked, with defaults.
    pub values: &'a Map<String, Value>,
    /// The workspace.
    pub workspace: &'a str,
    /// The wall.
    pub backend: &'a str,
    /// The hosts that it could reach.
    pub network: &'a [String],
    /// When, as RFC 3339 in UTC.
    pub time: &'a str,
}

/// The capabilities that rules may name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vocabulary {
    /// Each of them, once.
    pub capabilities: Vec<CapabilityFacts>,
}

impl Vocabulary {
    /// The capability of this name.
    pub fn find(&self, name: &str) -> Option<&CapabilityFacts> {
        self.capabilities.iter().find(|facts| facts.name.as_str() == name)
    }
}

/// JSON with sorted names and no blanks, so that one value has one text.
pub fn canonical(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(members) => {
            let mut members: Vec<(&String, &Value)> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            let members: Vec<String> =
                members.into_iter().map(|(name, member)| format!("{}:{}", Value::String(name.clone()), canonical(member))).collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn inputs_are_kept_as_they_are() {
        for (_, kind) in KINDS {
            for presence in [Presence::Always, Presence::Maybe] {
                let fact = InputFact { name: "max_count".to_owned(), kind, presence };
                assert_eq!(serde_json::from_str::<InputFact>(&serde_json::to_string(&fact).unwrap()).unwrap(), fact);
            }
        }
        for bad in ["\"name\"", "\"name txt\"", "\"name \"", "[]"] {
            assert!(serde_json::from_str::<InputFact>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn one_value_has_one_text() {
        assert_eq!(
            canonical(&json!({ "b": [1, "x\"y", null], "a": { "d": true, "c": 1.5 } })),
            r#"{"a":{"c":1.5,"d":true},"b":[1,"x\"y",null]}"#
        );
    }
}
