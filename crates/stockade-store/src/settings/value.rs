//! The value of a setting, and the ways to it: from JSON in a file, from text on the command line.

use std::borrow::Cow;

use serde_json::Value as Json;
use stockade_core::escape::escape;

use super::key::{Key, Kind, Range};
use super::prices::{self, Price};
use super::rules;
use super::secrets::{self, SecretSetting};
use stockade_core::host::HostPattern;
use stockade_core::reach::HostUse;

/// The most hosts in one list.
pub const MAX_HOSTS: usize = 1024;
/// The longest text, in bytes.
pub const MAX_TEXT: usize = 4096;
/// How much of a wrong value is shown.
const MAX_SHOWN: usize = 60;

/// A value that was checked against its key.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing said.
    Null,
    /// A switch.
    Bool(bool),
    /// A number; whole ones are exact.
    Number(f64),
    /// A word or text.
    Text(Cow<'static, str>),
    /// Host patterns.
    List(Vec<HostPattern>),
    /// Secrets by name.
    Secrets(Vec<SecretSetting>),
    /// Prices of models.
    Prices(Vec<Price>),
    /// What may be done at hosts: a set from each file that counts.
    Rules(Vec<Vec<HostUse>>),
}

/// Why something is not a value of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadValue {
    /// Another type.
    Type {
        /// What it is, in words.
        found: String,
    },
    /// The right type, but not usable.
    Content {
        /// Why, in words.
        problem: String,
    },
}

impl Value {
    /// A word known at compile time.
    pub const fn word(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    /// Checks what a file says.
    pub fn from_json(key: &Key, json: &Json) -> Result<Self, BadValue> {
        let wrong_type = || BadValue::Type { found: describe(json) };
        match (key.kind, json) {
            (kind, Json::Null) if kind.takes_null() => Ok(Self::Null),
            (Kind::Bool, Json::Bool(value)) => Ok(Self::Bool(*value)),
            (Kind::Choice(words), Json::String(text)) => match words.iter().find(|word| *word == text) {
                Some(word) => Ok(Self::word(word)),
                None => Err(wrong_type()),
            },
            (Kind::Text(_), Json::String(text)) => check_text(text).map(|()| Self::Text(Cow::Owned(text.clone()))),
            (Kind::Integer(range, _), Json::Number(number)) => match in_range(number, range) {
                Some(value) if value.fract() == 0.0 => Ok(Self::Number(value)),
                Some(_) | None => Err(wrong_type()),
            },
            (Kind::Number(range, _), Json::Number(number)) => in_range(number, range).map(Self::Number).ok_or_else(wrong_type),
            (Kind::Hosts, Json::Array(items)) => check_hosts(items).map(Self::List),
            (Kind::Secrets, Json::Object(entries)) => secrets::from_json(entries).map(Self::Secrets),
            (Kind::Prices, Json::Object(entries)) => prices::from_json(entries).map(Self::Prices),
            (Kind::Rules, Json::Array(items)) => rules::from_json(items).map(Self::Rules),
            (
                Kind::Bool
                | Kind::Choice(_)
                | Kind::Text(_)
                | Kind::Integer(..)
                | Kind::Number(..)
                | Kind::Hosts
                | Kind::Secrets
                | Kind::Prices
                | Kind::Rules,
                _,
            ) => Err(wrong_type()),
        }
    }

    /// Checks what a person typed: `true`, `4`, `null`, `jail`, `a.com,b.com`, `["a.com"]`.
    pub fn from_text(key: &Key, text: &str) -> Result<Self, BadValue> {
        let text = text.trim();
        let as_json = || serde_json::from_str::<Json>(text).ok();
        let json = match key.kind {
            kind if kind.takes_null() && text == "null" => Json::Null,
            Kind::Bool | Kind::Integer(..) | Kind::Number(..) => as_json().unwrap_or_else(|| Json::String(text.to_owned())),
            Kind::Choice(_) | Kind::Text(_) if text.starts_with('"') => as_json().unwrap_or_else(|| Json::String(text.to_owned())),
            Kind::Choice(_) | Kind::Text(_) => Json::String(text.to_owned()),
            Kind::Hosts if text.starts_with('[') && text.ends_with(']') && !is_bracketed_address(text) => {
                as_json().ok_or_else(|| BadValue::Content { problem: "it is not a JSON array".to_owned() })?
            }
            Kind::Secrets | Kind::Prices => as_json().ok_or_else(|| BadValue::Content { problem: "it is not a JSON object".to_owned() })?,
            Kind::Rules => as_json().ok_or_else(|| BadValue::Content { problem: "it is not a JSON array".to_owned() })?,
            Kind::Hosts if text.is_empty() => Json::Array(Vec::new()),
            Kind::Hosts => Json::Array(text.split(',').map(|host| Json::String(host.trim().to_owned())).collect()),
        };
        Self::from_json(key, &json)
    }

    /// The value as JSON; whole numbers have no point.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Null => Json::Null,
            Self::Bool(value) => Json::Bool(*value),
            // Every whole number of the table is within 2^53, so nothing is lost.
            Self::Number(value) if value.fract() == 0.0 => Json::from(*value as u64),
            Self::Number(value) => Json::from(*value),
            Self::Text(text) => Json::String(text.clone().into_owned()),
            Self::Secrets(secrets) => secrets::to_json(secrets),
            Self::Prices(prices) => prices::to_json(prices),
            Self::Rules(sets) => rules::to_json(sets),
            Self::List(hosts) => Json::Array(hosts.iter().map(|host| Json::String(host.to_string())).collect()),
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.to_json())
    }
}

/// `[::1]:80` begins like a JSON array and is none.
fn is_bracketed_address(text: &str) -> bool {
    text.split(',').all(|host| HostPattern::parse(host.trim()).is_ok())
}

fn in_range(number: &serde_json::Number, range: Range) -> Option<f64> {
    number.as_f64().filter(|value| (range.least..=range.most).contains(value))
}

fn check_text(text: &str) -> Result<(), BadValue> {
    let problem = if text.is_empty() {
        "it is empty"
    } else if text.len() > MAX_TEXT {
        "it is longer than 4096 bytes"
    } else if escape(text) != text {
        "it has control or invisible characters in it"
    } else {
        return Ok(());
    };
    Err(BadValue::Content { problem: problem.to_owned() })
}

fn check_hosts(items: &[Json]) -> Result<Vec<HostPattern>, BadValue> {
    if items.len() > MAX_HOSTS {
        return Err(BadValue::Content { problem: format!("it has {} hosts; {MAX_HOSTS} is the most", items.len()) });
    }
    let mut hosts = Vec::with_capacity(items.len());
    for item in items {
        let Json::String(text) = item else {
            return Err(BadValue::Type { found: format!("a list with {} in it", describe(item)) });
        };
        let host = HostPattern::parse(text).map_err(|error| BadValue::Content { problem: error.to_string() })?;
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    Ok(hosts)
}

/// What a JSON value is, in words, short and safe to show.
pub fn describe(json: &Json) -> String {
    match json {
        Json::Null => "null".to_owned(),
        Json::Bool(value) => value.to_string(),
        Json::Number(number) => format!("the number {number}"),
        Json::String(text) => format!("the string `{}`", shorten(text)),
        Json::Array(_) => "a list".to_owned(),
        Json::Object(_) => "an object".to_owned(),
    }
}

/// The beginning of a text, escaped.
pub fn shorten(text: &str) -> String {
    let mut shown = escape(&text.chars().take(MAX_SHOWN).collect::<String>());
    if text.chars().nth(MAX_SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::super::table::find;
    use super::*;
    use serde_json::json;

    #[test]
    fn json_is_checked_against_the_key() {
        for (name, good) in [
            ("sandbox.enabled", json!(false)),
            ("sandbox.backend", json!("jail")),
            ("sandbox.image", json!("my/image:1")),
            ("sandbox.docker.runtime", json!(null)),
            ("sandbox.docker.runtime", json!("runsc")),
            ("sandbox.timeoutSeconds", json!(1.5)),
            ("sandbox.timeoutSeconds", json!(null)),
            ("sandbox.limits.memory", json!(512)),
            ("sandbox.limits.cpus", json!(0.5)),
            ("sandbox.allowedHosts", json!(["a.com", "*.b.com:8443"])),
            ("sandbox.allowedHosts", json!([])),
        ] {
            assert_eq!(Value::from_json(find(name).unwrap(), &good).map(|v| v.to_json()), Ok(good), "{name}");
        }
        for (name, bad, found) in [
            ("sandbox.enabled", json!("true"), "the string `true`"),
            ("sandbox.enabled", json!(1), "the number 1"),
            ("sandbox.backend", json!("Jail"), "the string `Jail`"),
            ("sandbox.backend", json!(null), "null"),
            ("sandbox.image", json!(null), "null"),
            ("sandbox.limits.pids", json!(null), "null"),
            ("sandbox.limits.memory", json!(0), "the number 0"),
            ("sandbox.limits.memory", json!(-1), "the number -1"),
            ("sandbox.limits.memory", json!(1.5), "the number 1.5"),
            ("sandbox.limits.memory", json!("512M"), "the string `512M`"),
            ("sandbox.limits.memory", json!(1u64 << 53), "the number 9007199254740992"),
            ("sandbox.limits.cpus", json!(0), "the number 0"),
            ("sandbox.allowedHosts", json!("a.com"), "the string `a.com`"),
            ("sandbox.allowedHosts", json!([1]), "a list with the number 1 in it"),
            ("sandbox.allowedHosts", json!({}), "an object"),
        ] {
            let expected = Err(BadValue::Type { found: found.to_owned() });
            assert_eq!(Value::from_json(find(name).unwrap(), &bad), expected, "{name} {bad}");
        }
        for (name, bad) in [
            ("sandbox.image", json!("")),
            ("sandbox.image", json!("a\u{0}b")),
            ("sandbox.image", json!("a\u{202e}b")),
            ("sandbox.image", json!("x".repeat(MAX_TEXT + 1))),
            ("sandbox.allowedHosts", json!(["https://a.com"])),
            ("sandbox.allowedHosts", json!(vec!["a.com"; MAX_HOSTS + 1])),
        ] {
            let result = Value::from_json(find(name).unwrap(), &bad);
            assert!(matches!(result, Err(BadValue::Content { .. })), "{name} {result:?}");
        }
    }

    #[test]
    fn text_is_read_by_the_keys_type() {
        for (name, text, value) in [
            ("sandbox.enabled", " false ", json!(false)),
            ("sandbox.backend", "jail", json!("jail")),
            ("sandbox.backend", "\"jail\"", json!("jail")),
            ("sandbox.image", "null", json!("null")),
            ("sandbox.docker.runtime", "null", json!(null)),
            ("sandbox.docker.runtime", "true", json!("true")),
            ("sandbox.limits.pids", "100", json!(100)),
            ("sandbox.limits.pids", "1e2", json!(100)),
            ("sandbox.timeoutSeconds", "null", json!(null)),
            ("sandbox.allowedHosts", "a.com, B.com:8080", json!(["a.com", "b.com:8080"])),
            ("sandbox.allowedHosts", "[\"a.com\"]", json!(["a.com"])),
            ("sandbox.allowedHosts", "[::1]:80", json!(["[::1]:80"])),
            ("sandbox.allowedHosts", "[::1]", json!(["[::1]"])),
            ("sandbox.allowedHosts", "[]", json!([])),
            ("sandbox.allowedHosts", "", json!([])),
            ("sandbox.allowedHosts", "a.com,a.com", json!(["a.com"])),
        ] {
            assert_eq!(Value::from_text(find(name).unwrap(), text).map(|v| v.to_json()), Ok(value), "{name} {text}");
        }
        for (name, text) in [
            ("sandbox.enabled", "yes"),
            ("sandbox.enabled", ""),
            ("sandbox.enabled", "1"),
            ("sandbox.limits.memory", "512M"),
            ("sandbox.limits.memory", "NaN"),
            ("sandbox.limits.memory", "1e999"),
            ("sandbox.image", ""),
            ("sandbox.allowedHosts", "[\"a.com\""),
            ("sandbox.allowedHosts", "[1]"),
            ("sandbox.allowedHosts", "a.com,,b.com"),
        ] {
            assert!(Value::from_text(find(name).unwrap(), text).is_err(), "{name} {text:?}");
        }
    }
}
