//! The setting `sandbox.network.rules`: what may be done at hosts that are allowed. No rule allows a host.
//!
//! ```json
//! "rules": [
//!   { "host": "api.github.com", "methods": ["GET"], "paths": ["/repos/acme/**"] },
//!   { "host": "*.example.org:5432", "tls": "tunnel" }
//! ]
//! ```
//!
//! A file's rules are one set. A project's set holds beside the others, so it can only narrow; it may not pass TLS unopened.

use serde_json::{Map, Value as Json};
use stockade_core::host::HostPattern;
use stockade_core::reach::{HostUse, TlsUse};
use stockade_core::route::{Method, PathPattern};

use super::nearest::closest;
use super::value::{BadValue, describe, shorten};

/// The most rules of one file.
const MAX_RULES: usize = 256;
/// The most methods, and the most paths, of one rule.
const MAX_ITEMS: usize = 64;
const FIELDS: [&str; 4] = ["host", "methods", "paths", "tls"];

/// Checks the whole setting: one set, or none.
pub(super) fn from_json(items: &[Json]) -> Result<Vec<Vec<HostUse>>, BadValue> {
    if items.len() > MAX_RULES {
        return Err(problem(format!("it has {} rules; {MAX_RULES} is the most", items.len())));
    }
    let set = items.iter().enumerate().map(|(index, item)| one(index + 1, item)).collect::<Result<Vec<_>, _>>()?;
    Ok(if set.is_empty() { Vec::new() } else { vec![set] })
}

/// The setting as it is written; sets of several files follow each other.
pub(super) fn to_json(sets: &[Vec<HostUse>]) -> Json {
    Json::Array(sets.iter().flatten().map(rule_to_json).collect())
}

/// Whether rules take away and do nothing else.
pub(super) fn only_narrow(sets: &[Vec<HostUse>]) -> bool {
    sets.iter().flatten().all(|rule| rule.tls == TlsUse::Inspect)
}

fn rule_to_json(rule: &HostUse) -> Json {
    let mut fields = Map::new();
    fields.insert("host".to_owned(), rule.host.to_string().into());
    let methods: Vec<&str> = rule.methods.iter().map(Method::as_str).collect();
    let paths: Vec<&str> = rule.paths.iter().map(PathPattern::as_str).collect();
    for (field, list) in [("methods", methods), ("paths", paths)] {
        if !list.is_empty() {
            fields.insert(field.to_owned(), list.into());
        }
    }
    if rule.tls != TlsUse::default() {
        fields.insert("tls".to_owned(), rule.tls.word().into());
    }
    Json::Object(fields)
}

fn one(number: usize, item: &Json) -> Result<HostUse, BadValue> {
    let Json::Object(fields) = item else {
        return Err(problem(format!("rule {number} is {}; write an object with `host` in it", describe(item))));
    };
    if let Some(unknown) = fields.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        let meant = closest(unknown, &FIELDS).map(|field| format!("; did you mean `{field}`?")).unwrap_or_default();
        return Err(problem(format!("rule {number} has an unknown field `{}`{meant}", shorten(unknown))));
    }
    let host = match fields.get("host") {
        Some(Json::String(text)) => HostPattern::parse(text).map_err(|error| problem(format!("rule {number}: {error}")))?,
        Some(other) => return Err(problem(format!("`host` of rule {number} is {}; write a host", describe(other)))),
        None => return Err(problem(format!("rule {number} names no `host`"))),
    };
    let methods = list(number, "methods", fields, |text| Method::parse(text).map_err(|error| error.to_string()))?;
    let paths = list(number, "paths", fields, |text| PathPattern::parse(text).map_err(|error| error.to_string()))?;
    let tls = match fields.get("tls") {
        None => TlsUse::default(),
        Some(Json::String(text)) => TlsUse::ALL
            .into_iter()
            .find(|tls| tls.word() == text)
            .ok_or_else(|| problem(format!("`tls` of rule {number} is `{}`; write inspect, pass or tunnel", shorten(text))))?,
        Some(other) => return Err(problem(format!("`tls` of rule {number} is {}; write inspect, pass or tunnel", describe(other)))),
    };
    if tls != TlsUse::Inspect && !(methods.is_empty() && paths.is_empty()) {
        return Err(problem(format!("rule {number} has methods or paths, which cannot be seen where `tls` is `{}`", tls.word())));
    }
    Ok(HostUse { host, methods, paths, tls })
}

/// A list that is left out means anything; one that is empty would mean nothing, and is more likely a mistake.
fn list<T>(number: usize, field: &str, fields: &Map<String, Json>, parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, BadValue> {
    let items = match fields.get(field) {
        None => return Ok(Vec::new()),
        Some(Json::Array(items)) if (1..=MAX_ITEMS).contains(&items.len()) => items,
        Some(Json::Array(items)) => {
            return Err(problem(format!(
                "`{field}` of rule {number} has {} entries; write 1 to {MAX_ITEMS}, or leave it out",
                items.len()
            )));
        }
        Some(other) => return Err(problem(format!("`{field}` of rule {number} is {}; write a list", describe(other)))),
    };
    let read = |item: &Json| match item {
        Json::String(text) => parse(text).map_err(|error| problem(format!("rule {number}: {error}"))),
        other => Err(problem(format!("`{field}` of rule {number} has {} in it", describe(other)))),
    };
    items.iter().map(read).collect()
}

fn problem(problem: String) -> BadValue {
    BadValue::Content { problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(json: &Json) -> Result<Vec<Vec<HostUse>>, BadValue> {
        from_json(json.as_array().unwrap())
    }

    #[test]
    fn rules_are_read_and_written() {
        let written = json!([
            { "host": "api.github.com", "methods": ["GET", "POST"], "paths": ["/repos/acme/**"] },
            { "host": "*.example.org:5432", "tls": "tunnel" },
            { "host": "a.com" },
        ]);
        let sets = read(&written).unwrap();
        assert_eq!((to_json(&sets), sets.len()), (written, 1));
        assert!(!only_narrow(&sets) && only_narrow(&read(&json!([{ "host": "a.com" }])).unwrap()));
        assert_eq!(read(&json!([])), Ok(Vec::new()));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_rule() {
        for (rule, says) in [
            (json!("a.com"), "rule 1 is the string"),
            (json!({}), "rule 1 names no `host`"),
            (json!({ "host": "https://a.com" }), "rule 1: `https://a.com`"),
            (json!({ "host": ["a.com"] }), "`host` of rule 1 is a list"),
            (json!({ "host": "a.com", "method": ["GET"] }), "did you mean `methods`"),
            (json!({ "host": "a.com", "methods": "GET" }), "`methods` of rule 1 is the string"),
            (json!({ "host": "a.com", "methods": [] }), "leave it out"),
            (json!({ "host": "a.com", "methods": ["get"] }), "in capitals"),
            (json!({ "host": "a.com", "methods": [1] }), "the number 1 in it"),
            (json!({ "host": "a.com", "paths": ["repos"] }), "not a path pattern"),
            (json!({ "host": "a.com", "paths": vec!["/"; MAX_ITEMS + 1] }), "65 entries"),
            (json!({ "host": "a.com", "tls": "open" }), "inspect, pass or tunnel"),
            (json!({ "host": "a.com", "tls": true }), "`tls` of rule 1 is true"),
            (json!({ "host": "a.com", "tls": "pass", "paths": ["/a"] }), "cannot be seen"),
        ] {
            let Err(BadValue::Content { problem }) = read(&json!([rule])) else { panic!("{rule}") };
            assert!(problem.contains(says), "{rule}: {problem}");
        }
        assert!(read(&Json::Array(vec![json!({ "host": "a.com" }); MAX_RULES + 1])).is_err());
    }
}
