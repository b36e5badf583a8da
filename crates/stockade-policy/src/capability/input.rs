//! What a capability takes: a JSON Schema (2020-12) of one object, with what this program needs to know about each member.
//!
//! The schema crate is known only here. References lead nowhere but into the schema itself, patterns are matched in linear time, and what
//! the schema does not name is refused whatever it says.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value, json};

use super::facts::{InputFact, Presence};

/// How deep a schema may be.
const MAX_DEPTH: usize = 24;
/// How many values a schema may hold.
const MAX_NODES: usize = 4000;
/// Members of an input at most.
const MAX_PROPERTIES: usize = 64;
/// The `format` of a string that names a file of the workspace.
const PATH: &str = "path";

/// What a value is to a rule and to a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`: a Cedar Bool.
    Bool,
    /// A whole number: a Cedar Long.
    Long,
    /// A string: a Cedar String.
    Text,
    /// Any number: its text, as a Cedar String.
    Number,
    /// An array of one type: a Cedar Set.
    Set(Scalar),
    /// Anything else: canonical JSON, as a Cedar String.
    Json,
}

/// What an array holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// `true` or `false`.
    Bool,
    /// Whole numbers.
    Long,
    /// Strings.
    Text,
}

/// One member of the input.
#[derive(Debug, Clone, PartialEq)]
pub struct Property {
    /// What it is.
    pub kind: Kind,
    /// Whether it names files of the workspace.
    pub is_path: bool,
    /// Whether it is always there.
    pub presence: Presence,
    /// What it is for.
    pub description: Option<String>,
}

/// What a capability takes.
#[derive(Debug, Clone)]
pub struct Input {
    schema: Value,
    properties: BTreeMap<String, Property>,
    /// The schema compiled, from the first time that it is needed: most capabilities that are loaded are not called.
    compiled: OnceLock<Validator>,
}

impl PartialEq for Input {
    fn eq(&self, other: &Self) -> bool {
        self.schema == other.schema
    }
}

impl Default for Input {
    /// Nothing at all.
    fn default() -> Self {
        let schema = json!({ "type": "object", "properties": {}, "additionalProperties": false });
        Self { schema, properties: BTreeMap::new(), compiled: OnceLock::new() }
    }
}

impl Input {
    /// Reads a schema. It is not compiled yet: [`Self::check`] does that.
    pub(super) fn new(schema: Value) -> Result<Self, String> {
        let mut nodes = 0;
        refuse_unbounded(&schema, 0, &mut nodes)?;
        let Value::Object(mut schema) = schema else { return Err("it must be a table".to_owned()) };
        if schema.get("type").is_some_and(|kind| kind != "object") {
            return Err("`type` must be \"object\"".to_owned());
        }
        schema.insert("type".to_owned(), json!("object"));
        if schema.get("additionalProperties").is_some_and(|more| more != &Value::Bool(false)) {
            return Err("`additionalProperties` must be false: what is not named is refused".to_owned());
        }
        schema.insert("additionalProperties".to_owned(), Value::Bool(false));
        let required = names(schema.get("required"))?;
        let none = Map::new();
        let members = match schema.get("properties") {
            None => &none,
            Some(Value::Object(members)) => members,
            Some(_) => return Err("`properties` must be a table".to_owned()),
        };
        if members.len() > MAX_PROPERTIES {
            return Err(format!("there are more than {MAX_PROPERTIES} properties"));
        }
        if let Some(unknown) = required.iter().find(|name| !members.contains_key(*name)) {
            return Err(format!("`required` names `{unknown}`, which is not a property"));
        }
        let properties = members
            .iter()
            .map(|(name, member)| Ok((checked_name(name)?, property(name, member, &required)?)))
            .collect::<Result<_, String>>()?;
        Ok(Self { schema: Value::Object(schema), properties, compiled: OnceLock::new() })
    }

    /// The schema, as agents are shown it.
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// The members.
    pub fn properties(&self) -> &BTreeMap<String, Property> {
        &self.properties
    }

    /// Whether the schema stands, and its defaults fit it.
    pub fn check(&self) -> Result<(), String> {
        let validator = self.validator()?;
        for (name, property) in &self.properties {
            let Some(default) = self.default_of(name) else { continue };
            if property.presence == Presence::Always {
                let alone = json!({ name: default });
                let wrong = validator.iter_errors(&alone).find(|error| error.instance_path().as_str().starts_with(&format!("/{name}")));
                if let Some(error) = wrong {
                    return Err(format!("the default of `{name}` does not fit: {error}"));
                }
            }
        }
        Ok(())
    }

    /// Fills defaults in and validates. What comes back fits the schema; whole numbers are written as such.
    pub(super) fn accept(&self, given: Map<String, Value>) -> Result<Map<String, Value>, String> {
        if let Some(unknown) = given.keys().find(|name| !self.properties.contains_key(*name)) {
            let known: Vec<&str> = self.properties.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "it takes none".to_owned() } else { format!("it takes {}", known.join(", ")) };
            return Err(format!("there is no input `{unknown}`: {known}"));
        }
        let mut value = Value::Object(given);
        fill(&self.schema, &mut value, 0);
        if let Some(error) = self.validator()?.iter_errors(&value).next() {
            let place = error.instance_path().to_string();
            let place = place.trim_start_matches('/').replace('/', ".");
            return Err(if place.is_empty() { error.to_string() } else { format!("`{place}`: {error}") });
        }
        let Value::Object(mut values) = value else { return Err("the input must be an object".to_owned()) };
        for (name, property) in &self.properties {
            if let Some(value) = values.get_mut(name) {
                settle(value, property.kind).map_err(|why| format!("`{name}`: {why}"))?;
            }
        }
        Ok(values)
    }

    /// What rules may say about the members.
    pub(super) fn facts(&self) -> Vec<InputFact> {
        let fact =
            |(name, property): (&String, &Property)| InputFact { name: name.clone(), kind: property.kind, presence: property.presence };
        self.properties.iter().map(fact).collect()
    }

    fn default_of(&self, name: &str) -> Option<&Value> {
        self.schema.get("properties")?.get(name)?.get("default")
    }

    fn validator(&self) -> Result<&Validator, String> {
        if let Some(validator) = self.compiled.get() {
            return Ok(validator);
        }
        let options = jsonschema::options().with_draft(Draft::Draft202012).with_pattern_options(PatternOptions::regex());
        let validator = options.build(&self.schema).map_err(|error| error.to_string())?;
        Ok(self.compiled.get_or_init(|| validator))
    }
}

/// The members of a list of names.
fn names(list: Option<&Value>) -> Result<Vec<String>, String> {
    let bad = || "`required` must be a list of names".to_owned();
    let Some(list) = list else { return Ok(Vec::new()) };
    list.as_array().ok_or_else(bad)?.iter().map(|name| name.as_str().map(str::to_owned).ok_or_else(bad)).collect()
}

/// Names are those of variables, so that rules and templates can write them plainly.
fn checked_name(name: &str) -> Result<String, String> {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    let fits = name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if first && fits && name != "item" {
        return Ok(name.to_owned());
    }
    Err(format!(
        "the property `{}` must be named with lower-case letters, digits and `_`, and not `item`",
        stockade_core::escape::escape(name)
    ))
}

fn property(name: &str, member: &Value, required: &[String]) -> Result<Property, String> {
    let object = member.as_object().ok_or_else(|| format!("the property `{name}` must be a table"))?;
    let kind = kind(object);
    let is_always = required.iter().any(|one| one == name) || object.contains_key("default");
    let format = |schema: &Map<String, Value>| schema.get("format").and_then(Value::as_str) == Some(PATH);
    let is_path = match kind {
        Kind::Text => format(object),
        Kind::Set(Scalar::Text) => object.get("items").and_then(Value::as_object).is_some_and(format),
        Kind::Bool | Kind::Long | Kind::Number | Kind::Set(Scalar::Bool | Scalar::Long) | Kind::Json => false,
    };
    Ok(Property {
        kind,
        is_path,
        presence: if is_always { Presence::Always } else { Presence::Maybe },
        description: object.get("description").and_then(Value::as_str).map(str::to_owned),
    })
}

/// What a value of this schema is to a rule.
pub(super) fn kind(schema: &Map<String, Value>) -> Kind {
    match schema.get("type").and_then(Value::as_str) {
        Some("boolean") => Kind::Bool,
        Some("integer") => Kind::Long,
        Some("string") => Kind::Text,
        Some("number") => Kind::Number,
        Some("array") if !schema.contains_key("prefixItems") => match schema.get("items").and_then(Value::as_object).map(kind) {
            Some(Kind::Bool) => Kind::Set(Scalar::Bool),
            Some(Kind::Long) => Kind::Set(Scalar::Long),
            Some(Kind::Text) => Kind::Set(Scalar::Text),
            Some(Kind::Number | Kind::Set(_) | Kind::Json) | None => Kind::Json,
        },
        Some(_) | None => Kind::Json,
    }
}

/// Refuses what could make a schema cost more than it says, or lead out of itself.
fn refuse_unbounded(value: &Value, depth: usize, nodes: &mut usize) -> Result<(), String> {
    *nodes += 1;
    if depth > MAX_DEPTH || *nodes > MAX_NODES {
        return Err(format!("it is deeper than {MAX_DEPTH} levels or holds more than {MAX_NODES} values"));
    }
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| refuse_unbounded(item, depth + 1, nodes)),
        Value::Object(members) => {
            for (name, member) in members {
                match name.as_str() {
                    "$ref" | "$dynamicRef" if !member.as_str().is_some_and(|target| target.starts_with('#')) => {
                        return Err(format!("`{name}` must begin with `#`: nothing outside the schema is read"));
                    }
                    "$id" | "$anchor" | "$dynamicAnchor" | "$vocabulary" => return Err(format!("`{name}` is not taken here")),
                    "$schema" if member != "https://json-schema.org/draft/2020-12/schema" => {
                        return Err("`$schema` must be that of 2020-12".to_owned());
                    }
                    _ => refuse_unbounded(member, depth + 1, nodes)?,
                }
            }
            Ok(())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// Puts defaults where members are missing, in nested objects too.
fn fill(schema: &Value, value: &mut Value, depth: usize) {
    let (Some(members), Value::Object(object)) = (schema.get("properties").and_then(Value::as_object), value) else { return };
    if depth > MAX_DEPTH {
        return;
    }
    for (name, member) in members {
        if let (false, Some(default)) = (object.contains_key(name), member.get("default")) {
            object.insert(name.clone(), default.clone());
        }
        if let Some(inner) = object.get_mut(name) {
            fill(member, inner, depth + 1);
        }
    }
}

/// JSON Schema takes `5.0` for a whole number; rules and programs do not.
fn settle(value: &mut Value, kind: Kind) -> Result<(), String> {
    match kind {
        Kind::Long => *value = json!(whole(value).ok_or("the number is too large")?),
        Kind::Set(Scalar::Long) => {
            for item in value.as_array_mut().into_iter().flatten() {
                *item = json!(whole(item).ok_or("a number is too large")?);
            }
        }
        Kind::Bool | Kind::Text | Kind::Number | Kind::Set(Scalar::Bool | Scalar::Text) | Kind::Json => {}
    }
    Ok(())
}

fn whole(value: &Value) -> Option<i64> {
    /// Every whole number up to here has a form of its own as a double.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    value.as_i64().or_else(|| value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() <= EXACT).map(|number| number as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(schema: Value) -> Input {
        let input = Input::new(schema).unwrap();
        input.check().unwrap();
        input
    }

    fn accept(input: &Input, given: Value) -> Result<Value, String> {
        let Value::Object(given) = given else { panic!("not an object") };
        input.accept(given).map(Value::Object)
    }

    #[test]
    fn defaults_are_applied_and_whole_numbers_settled() {
        let input = input(json!({
            "required": ["path"],
            "properties": {
                "path": { "type": "string", "format": "path" },
                "count": { "type": "integer", "default": 5, "maximum": 9 },
                "deep": { "type": "object", "default": {}, "properties": { "x": { "default": true } } },
            },
        }));
        assert_eq!(accept(&input, json!({ "path": "a" })), Ok(json!({ "path": "a", "count": 5, "deep": { "x": true } })));
        assert_eq!(accept(&input, json!({ "path": "a", "count": 7.0 })).unwrap()["count"], json!(7));
        for bad in [json!({}), json!({ "path": 1 }), json!({ "path": "a", "count": 10 }), json!({ "path": "a", "count": 1.5 })] {
            assert!(accept(&input, bad.clone()).is_err(), "{bad}");
        }
        assert_eq!(accept(&input, json!({ "pth": 1 })), Err("there is no input `pth`: it takes count, deep, path".to_owned()));
        assert!(accept(&input, json!({ "path": "a", "count": 10 })).unwrap_err().starts_with("`count`: "));
    }

    #[test]
    fn kinds_follow_the_types() {
        let kinds = |schema: Value| kind(schema.as_object().unwrap());
        for (schema, expected) in [
            (json!({ "type": "integer" }), Kind::Long),
            (json!({ "type": "boolean" }), Kind::Bool),
            (json!({ "type": "string" }), Kind::Text),
            (json!({ "type": "number" }), Kind::Number),
            (json!({ "type": "array", "items": { "type": "string" } }), Kind::Set(Scalar::Text)),
            (json!({ "type": "array", "items": { "type": "number" } }), Kind::Json),
            (json!({ "type": "array", "items": {}, "prefixItems": [] }), Kind::Json),
            (json!({ "type": ["string", "null"] }), Kind::Json),
            (json!({ "enum": ["a"] }), Kind::Json),
            (json!({ "type": "object" }), Kind::Json),
        ] {
            assert_eq!(kinds(schema.clone()), expected, "{schema}");
        }
    }

    #[test]
    fn a_schema_that_leads_out_or_costs_too_much_is_refused() {
        let mut deep = json!({});
        for _ in 0..40 {
            deep = json!({ "not": deep });
        }
        for bad in [
            json!([]),
            json!({ "type": "array" }),
            json!({ "additionalProperties": true }),
            json!({ "required": ["x"] }),
            json!({ "properties": { "x": { "$ref": "http://127.0.0.1/schema" } } }),
            json!({ "properties": { "x": { "$ref": "file:///etc/passwd" } } }),
            json!({ "$id": "http://x/" }),
            json!({ "$schema": "http://json-schema.org/draft-07/schema#" }),
            json!({ "properties": { "X": {} } }),
            json!({ "properties": { "a\"b": {} } }),
            json!({ "properties": { "item": {} } }),
            json!({ "properties": { "x": 1 } }),
            deep,
        ] {
            assert!(Input::new(bad.clone()).is_err(), "{bad}");
        }
        for bad in [
            json!({ "properties": { "x": { "type": "strin" } } }),
            json!({ "properties": { "x": { "type": "string", "pattern": "(" } } }),
            json!({ "properties": { "x": { "type": "string", "pattern": "(a)\\1" } } }),
            json!({ "properties": { "x": { "type": "integer", "default": "five" } } }),
            json!({ "properties": { "x": { "$ref": "#/$defs/none" } } }),
        ] {
            assert!(Input::new(bad.clone()).unwrap().check().is_err(), "{bad}");
        }
    }
}
