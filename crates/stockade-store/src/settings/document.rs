//! One settings file: read with bounds, parsed strictly, every key and value checked.
//!
//! What the values do to one another is not decided here (see `layers`).

use std::collections::HashSet;
use std::path::Path;

use jsonc_parser::ast::{Object, Value as Ast};
use jsonc_parser::common::Ranged;
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::Value as Json;

use super::error::{Location, Place, SettingsError};
use super::key::{Key, ProjectRule};
use super::nearest::nearest;
use super::source::{Layer, Source};
use super::table;
use super::value::{BadValue, Value, describe, shorten};

/// How deep values may nest.
const MAX_DEPTH: usize = 32;
/// How many characters of a line an error shows.
const MAX_EXCERPT: usize = 48;

/// What a file says, in its own order.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) layer: Layer,
    pub(crate) entries: Vec<Entry>,
}

/// One value of a file.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: &'static Key,
    pub(crate) value: Value,
    pub(crate) at: Box<Location>,
}

impl Entry {
    /// Where the value came from.
    pub(crate) fn source(&self, layer: Layer) -> Source {
        Source::File { layer, path: self.at.path.clone(), line: self.at.line }
    }
}

impl Document {
    /// Parses and checks the bytes of a file.
    pub(crate) fn parse(layer: Layer, path: &Path, bytes: &[u8]) -> Result<Self, SettingsError> {
        let text = check_text(path, bytes)?;
        let root = parse_object(path, text)?;
        let mut reader = Reader { layer, path, text, entries: Vec::new(), seen: HashSet::new() };
        reader.walk(&root, "")?;
        Ok(Self { layer, entries: reader.entries })
    }
}

/// JSON with comments and nothing else: what is loose is more often a slip than a wish.
pub(crate) fn options() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_loose_object_property_names: false,
        allow_trailing_commas: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

/// Text without NUL, and without the byte order mark that some editors write.
pub(crate) fn check_text<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a str, SettingsError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let valid = bytes.get(..error.valid_up_to()).and_then(|start| std::str::from_utf8(start).ok()).unwrap_or_default();
        SettingsError::NotUtf8(locate(path, valid, valid.len()))
    })?;
    if let Some(position) = text.find('\0') {
        return Err(SettingsError::Nul(locate(path, text, position)));
    }
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// The object that a file holds, bounded in depth.
pub(crate) fn parse_object<'a>(path: &Path, text: &'a str) -> Result<Object<'a>, SettingsError> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options()).map_err(|error| {
        let at = locate(path, text, error.range().start);
        match error.kind() {
            ParseErrorKind::NestingDepthExceeded => SettingsError::TooDeep(at),
            kind => SettingsError::Syntax { at, problem: lower_first(&kind.to_string()) },
        }
    })?;
    let root = parsed.value.ok_or_else(|| SettingsError::Empty(path.to_owned()))?;
    if let Some(position) = too_deep(&root, 1) {
        return Err(SettingsError::TooDeep(locate(path, text, position)));
    }
    match root {
        Ast::Object(object) => Ok(object),
        other => Err(SettingsError::NotAnObject { at: locate(path, text, other.start()), found: describe(&to_json(&other)) }),
    }
}

struct Reader<'a> {
    layer: Layer,
    path: &'a Path,
    text: &'a str,
    entries: Vec<Entry>,
    /// Dotted names so far, groups too.
    seen: HashSet<String>,
}

impl Reader<'_> {
    /// `{"sandbox": {"limits": {"pids": 1}}}` and `{"sandbox.limits.pids": 1}` say the same.
    fn walk(&mut self, object: &Object<'_>, prefix: &str) -> Result<(), SettingsError> {
        let mut here = HashSet::new();
        for property in &object.properties {
            let name = format!("{prefix}{}", property.name.as_str());
            let at = locate(self.path, self.text, property.start());
            if !here.insert(name.clone()) {
                return Err(SettingsError::DuplicateKey { at, key: shorten(&name) });
            }
            match (table::find(&name), &property.value) {
                (Some(key), value) => {
                    if !self.seen.insert(name.clone()) {
                        return Err(SettingsError::DuplicateKey { at, key: name });
                    }
                    let value = self.value(key, value, &at)?;
                    self.entries.push(Entry { key, value, at });
                }
                (None, Ast::Object(inner)) if table::is_group(&name) => self.walk(inner, &format!("{name}."))?,
                (None, other) if table::is_group(&name) => {
                    let found = describe(&to_json(other));
                    return Err(SettingsError::WrongType { at: Place::File(at), key: name, expected: "an object".to_owned(), found });
                }
                (None, _) => {
                    let nearest = nearest(&name);
                    return Err(SettingsError::UnknownKey { at: Place::File(at), key: shorten(&name), nearest });
                }
            }
        }
        Ok(())
    }

    fn value(&self, key: &'static Key, value: &Ast<'_>, at: &Location) -> Result<Value, SettingsError> {
        let place = || Place::File(Box::new(at.clone()));
        if self.layer == Layer::Project && key.project == ProjectRule::Never {
            return Err(SettingsError::NotForProjects { at: place(), key: key.name.to_owned() });
        }
        if let Some((position, repeated)) = repeated(value) {
            let at = locate(self.path, self.text, position);
            return Err(SettingsError::DuplicateKey { at, key: format!("{}.{}", key.name, shorten(&repeated)) });
        }
        Value::from_json(key, &to_json(value)).map_err(|bad| bad_value(key, place(), bad))
    }
}

/// The error for a value that its key does not take.
pub(crate) fn bad_value(key: &Key, at: Place, bad: BadValue) -> SettingsError {
    let name = key.name.to_owned();
    match bad {
        BadValue::Type { found } => SettingsError::WrongType { at, key: name, expected: key.kind.expected(), found },
        BadValue::Content { problem } => SettingsError::BadValue { at, key: name, problem },
    }
}

/// The position of the first value nested too deeply.
fn too_deep(value: &Ast<'_>, depth: usize) -> Option<usize> {
    if depth > MAX_DEPTH {
        return Some(value.start());
    }
    match value {
        Ast::Object(object) => object.properties.iter().find_map(|property| too_deep(&property.value, depth + 1)),
        Ast::Array(array) => array.elements.iter().find_map(|element| too_deep(element, depth + 1)),
        Ast::StringLit(_) | Ast::NumberLit(_) | Ast::BooleanLit(_) | Ast::NullKeyword(_) => None,
    }
}

/// The first name that stands twice in an object: only one of the two could count.
fn repeated(value: &Ast<'_>) -> Option<(usize, String)> {
    match value {
        Ast::Object(object) => {
            let mut here = HashSet::new();
            object.properties.iter().find_map(|property| {
                let name = property.name.as_str();
                if here.insert(name.to_owned()) { repeated(&property.value) } else { Some((property.start(), name.to_owned())) }
            })
        }
        Ast::Array(array) => array.elements.iter().find_map(repeated),
        Ast::StringLit(_) | Ast::NumberLit(_) | Ast::BooleanLit(_) | Ast::NullKeyword(_) => None,
    }
}

/// Plain JSON.
fn to_json(value: &Ast<'_>) -> Json {
    match value {
        Ast::NullKeyword(_) => Json::Null,
        Ast::BooleanLit(literal) => Json::Bool(literal.value),
        // A number that does not fit (1e999) stays a number beyond every range, so that no key takes it.
        Ast::NumberLit(literal) => serde_json::from_str(literal.value).unwrap_or_else(|_| Json::from(f64::MAX)),
        Ast::StringLit(literal) => Json::String(literal.value.clone().into_owned()),
        Ast::Array(array) => Json::Array(array.elements.iter().map(to_json).collect()),
        Ast::Object(object) => {
            Json::Object(object.properties.iter().map(|property| (property.name.as_str().to_owned(), to_json(&property.value))).collect())
        }
    }
}

/// Line, column and a short piece of the line at a byte position.
#[expect(clippy::unnecessary_box_returns, reason = "every caller puts it into an error, which must stay small")]
fn locate(path: &Path, text: &str, position: usize) -> Box<Location> {
    let before = text.get(..position).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
    let rest = text.get(before.len()..).unwrap_or_default().lines().next().unwrap_or_default();
    // At the end of a line what went before says more.
    let piece = if rest.trim().is_empty() { before.get(line_start..).unwrap_or_default() } else { rest };
    let excerpt = shorten(&piece.trim().chars().take(MAX_EXCERPT).collect::<String>());
    Box::new(Location { path: path.to_owned(), line, column, excerpt })
}

fn lower_first(message: &str) -> String {
    let mut characters = message.chars();
    characters.next().map_or_else(String::new, |first| first.to_lowercase().chain(characters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(layer: Layer, bytes: &[u8]) -> Result<Vec<(&'static str, String, usize)>, String> {
        let document = Document::parse(layer, Path::new("/s.json"), bytes).map_err(|error| error.to_string())?;
        Ok(document.entries.into_iter().map(|entry| (entry.key.name, entry.value.to_string(), entry.at.line)).collect())
    }

    #[test]
    fn comments_nesting_and_dotted_names_are_understood() {
        let text = b"// mine\n{\n  \"sandbox\": { /* here */ \"backend\": \"jail\",\n    \"limits\": {\"pids\": 7} },\n  \"daemon.autostart\": true // yes\n}\n";
        let expected =
            vec![("sandbox.backend", "\"jail\"".into(), 3), ("sandbox.limits.pids", "7".into(), 4), ("daemon.autostart", "true".into(), 5)];
        assert_eq!(parse(Layer::User, text), Ok(expected));
        assert_eq!(parse(Layer::User, b"{}"), Ok(vec![]));
        assert_eq!(parse(Layer::User, "\u{feff}{\"sandbox\":{\"limits\":{}}}".as_bytes()), Ok(vec![]));
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (text, message) in [
            ("", "settings file `/s.json` is empty"),
            (" // nothing\n", "settings file `/s.json` is empty"),
            ("[]", "/s.json:1:1 near `[]`: settings must be an object, not a list"),
            (
                "{\n  \"sandbox\": {\n    \"enabled\" true\n  }\n}",
                "/s.json:3:15 near `true`: expected colon after the string or word in object property",
            ),
            ("{\"daemon\":{\"autostart\":true},}", "/s.json:1:29 near `,}`: trailing commas are not allowed"),
            ("{\"daemon\":{\"autostart\":true}", "/s.json:1:1 near `{\"daemon\":{\"autostart\":true}`: unterminated object"),
            ("{daemon:{}}", "/s.json:1:2 near `daemon:{}}`: expected string for object property"),
            ("{} {}", "/s.json:1:4 near `{}`: text cannot contain more than one JSON value"),
            ("{\"sandbox\":{}, \"sandbox\":{}}", "/s.json:1:16 near `\"sandbox\":{}}`: `sandbox` is there twice"),
            (
                "{\"daemon\":{\"autostart\":true}, \"daemon.autostart\":true}",
                "/s.json:1:31 near `\"daemon.autostart\":true}`: `daemon.autostart` is there twice",
            ),
            (
                "{\"sandbox\":{\"bakend\":1}}",
                "/s.json:1:13 near `\"bakend\":1}}`: unknown setting `sandbox.bakend`; the nearest known one is `sandbox.backend`",
            ),
            ("{\"\":1}", "/s.json:1:2 near `\"\":1}`: unknown setting ``; the nearest known one is `approvals.webhook.url`"),
            ("{\"sandbox\":1}", "/s.json:1:2 near `\"sandbox\":1}`: `sandbox` must be an object, not the number 1"),
            (
                "{\"sandbox\":{\"image\":1e999}}",
                "/s.json:1:13 near `\"image\":1e999}}`: `sandbox.image` must be a string, not the number 1.7976931348623157e+308",
            ),
            (
                "{\"sandbox\":{\"limits\":{\"memory\":\"2G\"}}}",
                "/s.json:1:23 near `\"memory\":\"2G\"}}}`: `sandbox.limits.memory` must be a whole number from 1 to 1073741824 or null, not the string `2G`",
            ),
            (
                "{\"sandbox\":{\"allowedHosts\":[\"http://a\"]}}",
                "/s.json:1:13 near `\"allowedHosts\":[\"http://a\"]}}`: the value of `sandbox.allowedHosts` cannot be used: `http://a` is not a host: write the host alone, without scheme or path",
            ),
        ] {
            assert_eq!(parse(Layer::User, text.as_bytes()), Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        assert_eq!(parse(Layer::User, b"{\n \"a\": \"\xff\"}"), Err("/s.json:2:8 near `\"a\": \"`: the file is not UTF-8".into()));
        assert_eq!(parse(Layer::User, b"{\n\0}"), Err("/s.json:2:1 near `\\u{0}}`: the file has a NUL byte in it".into()));
        assert!(parse(Layer::User, br#"{"sandbox":{"image":"a\u0000b"}}"#).unwrap_err().contains("control"));
        assert!(parse(Layer::User, br#"{"sandbox":{"image":"\ud800"}}"#).is_err());
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| format!("{{\"sandbox\":{{\"allowedHosts\":{}{}}}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(Layer::User, nested(30).as_bytes()).unwrap_err().contains("must be a list of hosts"), "30 + 2 is allowed");
        for depth in [31, 600, 500_000] {
            assert!(parse(Layer::User, nested(depth).as_bytes()).unwrap_err().contains("nested more than 32 deep"), "{depth}");
        }
        let unclosed = "{\"a\":".repeat(200_000);
        assert!(parse(Layer::User, unclosed.as_bytes()).unwrap_err().contains("nested more than 32 deep"));
    }

    #[test]
    fn hostile_text_is_short_and_escaped_in_messages() {
        let key = format!("\\u001b[2J{}", "k".repeat(100_000));
        let message = parse(Layer::Project, format!("{{\"{key}\": 1}}").as_bytes()).unwrap_err();
        assert!(message.len() < 400 && !message.contains('\u{1b}'), "{message}");
    }

    #[test]
    fn a_project_may_not_set_what_is_a_persons() {
        for (text, key) in [
            ("{\"sandbox\":{\"backend\":\"local\"}}", "sandbox.backend"),
            ("{\"daemon.autostart\":false}", "daemon.autostart"),
            ("{\"sandbox\":{\"image\":7}}", "sandbox.image"),
            ("{\"sandbox\":{\"persistent\":false}}", "sandbox.persistent"),
            ("{\"receipts\":{\"durability\":\"always\"}}", "receipts.durability"),
        ] {
            let message = parse(Layer::Project, text.as_bytes()).unwrap_err();
            let expected = format!("`{key}` may not be set by a project; only a person's own settings may");
            assert!(message.starts_with("/s.json:1:") && message.ends_with(&expected), "{message}");
        }
    }
}
