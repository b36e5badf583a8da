//! The setting `secrets`: where the value of a secret comes from, instead of the store or else the caller's variable of that name;
//! where it may go, and how much of it may be used.
//!
//! ```json
//! "secrets": {
//!   "GITHUB_TOKEN": { "source": "command", "command": ["gh", "auth", "token"], "hosts": ["api.github.com"], "maxUses": 500 }
//! }
//! ```
//!
//! Only what is written is checked here; no value of a secret is ever in a settings file, and nothing is run or read.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};
use stockade_core::escape::escape;
use stockade_core::secret::SecretName;

use super::nearest::closest;
use super::value::{BadValue, describe, shorten};
use stockade_core::host::HostPattern;

/// The most secrets.
pub const MAX_SECRETS: usize = 256;
/// The most words of a command.
const MAX_WORDS: usize = 64;
/// The most hosts of one secret.
const MAX_HOSTS: usize = 64;
/// The longest word of a command, and the longest path.
const MAX_TEXT: usize = 4096;
/// Whole numbers are exact up to here.
const MAX_COUNT: u64 = 1 << 53;
const FIELDS: [&str; 10] = ["source", "variable", "path", "command", "hosts", "places", "onMisuse", "maxUses", "maxBytes", "maxSeconds"];

/// One secret as the settings describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretSetting {
    /// Its name.
    pub name: SecretName,
    /// Where its value is.
    pub source: SecretSource,
    /// The only hosts it may be bound to; empty: any that a command line names.
    pub hosts: Vec<HostPattern>,
    /// Where in a request it is put in, besides header values.
    pub places: Vec<Place>,
    /// What happens when its placeholder is on its way elsewhere.
    pub on_misuse: OnMisuse,
    /// How often one sandbox may use it.
    pub max_uses: Option<u64>,
    /// How many bytes of requests that carry it one sandbox may send.
    pub max_bytes: Option<u64>,
    /// For how long after its start one sandbox may use it.
    pub max_seconds: Option<u64>,
}

/// A part of a request that a placeholder is replaced in only where somebody wrote so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The query of the target.
    Query,
    /// The body.
    Body,
}

impl Place {
    const ALL: [Self; 2] = [Self::Query, Self::Body];

    /// The word in settings.
    pub fn word(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Body => "body",
        }
    }
}

/// What happens when a placeholder is on its way to a host that its secret is not for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnMisuse {
    /// The request is refused.
    #[default]
    Refuse,
    /// And everything in the sandbox is killed.
    End,
}

impl OnMisuse {
    const ALL: [Self; 2] = [Self::Refuse, Self::End];

    /// The word in settings.
    pub fn word(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::End => "end",
        }
    }
}

/// Where the value of a secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// In the secret store, and nowhere else.
    Store,
    /// In a variable of the caller.
    Env {
        /// Which.
        variable: SecretName,
    },
    /// In a file.
    File {
        /// Which; absolute.
        path: PathBuf,
    },
    /// In what a program prints.
    Command {
        /// The program and its arguments; never empty.
        argv: Vec<String>,
    },
}

impl SecretSource {
    /// The word in settings.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Env { .. } => "env",
            Self::File { .. } => "file",
            Self::Command { .. } => "command",
        }
    }
}

/// Checks the whole setting.
pub(super) fn from_json(entries: &Map<String, Json>) -> Result<Vec<SecretSetting>, BadValue> {
    if entries.len() > MAX_SECRETS {
        return Err(BadValue::Content { problem: format!("it has {} secrets; {MAX_SECRETS} is the most", entries.len()) });
    }
    entries.iter().map(|(name, entry)| one(name, entry)).collect()
}

/// The setting as it is written.
pub(super) fn to_json(secrets: &[SecretSetting]) -> Json {
    Json::Object(secrets.iter().map(|secret| (secret.name.to_string(), entry_to_json(secret))).collect())
}

fn entry_to_json(secret: &SecretSetting) -> Json {
    let mut entry = Map::new();
    entry.insert("source".to_owned(), secret.source.word().into());
    match &secret.source {
        SecretSource::Store => {}
        SecretSource::Env { variable } => drop(entry.insert("variable".to_owned(), variable.as_str().into())),
        SecretSource::File { path } => drop(entry.insert("path".to_owned(), path.to_string_lossy().into())),
        SecretSource::Command { argv } => drop(entry.insert("command".to_owned(), argv.clone().into())),
    }
    if !secret.hosts.is_empty() {
        entry.insert("hosts".to_owned(), secret.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().into());
    }
    if !secret.places.is_empty() {
        entry.insert("places".to_owned(), secret.places.iter().map(|place| place.word()).collect::<Vec<_>>().into());
    }
    if secret.on_misuse != OnMisuse::default() {
        entry.insert("onMisuse".to_owned(), secret.on_misuse.word().into());
    }
    for (field, bound) in [("maxUses", secret.max_uses), ("maxBytes", secret.max_bytes), ("maxSeconds", secret.max_seconds)] {
        if let Some(bound) = bound {
            entry.insert(field.to_owned(), bound.into());
        }
    }
    Json::Object(entry)
}

fn one(text: &str, entry: &Json) -> Result<SecretSetting, BadValue> {
    let name: SecretName = text.parse().map_err(|error| problem(format!("`{}` is no name: {error}", shorten(text))))?;
    let Json::Object(fields) = entry else {
        return Err(problem(format!("`{name}` is {}; write an object with `source` in it", describe(entry))));
    };
    if let Some(unknown) = fields.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        let meant = closest(unknown, &FIELDS).map(|field| format!("; did you mean `{field}`?")).unwrap_or_default();
        return Err(problem(format!("`{name}` has an unknown field `{}`{meant}", shorten(unknown))));
    }
    let source = source(&name, fields)?;
    let count = |field: &str| match fields.get(field) {
        None => Ok(None),
        Some(Json::Number(number)) if number.as_u64().is_some_and(|n| (1..=MAX_COUNT).contains(&n)) => Ok(number.as_u64()),
        Some(other) => Err(problem(format!("`{name}.{field}` is {}; write a whole number from 1", describe(other)))),
    };
    Ok(SecretSetting {
        source,
        hosts: hosts(&name, fields.get("hosts"))?,
        places: places(&name, fields.get("places"))?,
        on_misuse: on_misuse(&name, fields.get("onMisuse"))?,
        max_uses: count("maxUses")?,
        max_bytes: count("maxBytes")?,
        max_seconds: count("maxSeconds")?,
        name,
    })
}

fn source(name: &SecretName, fields: &Map<String, Json>) -> Result<SecretSource, BadValue> {
    let word = match fields.get("source") {
        Some(Json::String(word)) => word.as_str(),
        Some(other) => return Err(problem(format!("`{name}.source` is {}; write store, env, file or command", describe(other)))),
        None => return Err(problem(format!("`{name}` does not say its `source`: store, env, file or command"))),
    };
    let own = match word {
        "store" => None,
        "env" => Some("variable"),
        "file" => Some("path"),
        "command" => Some("command"),
        other => return Err(problem(format!("`{name}.source` is `{}`; write store, env, file or command", shorten(other)))),
    };
    if let Some(stray) = ["variable", "path", "command"].into_iter().find(|field| Some(*field) != own && fields.contains_key(*field)) {
        return Err(problem(format!("`{name}.{stray}` means nothing where the source is `{word}`")));
    }
    match (own, own.and_then(|field| fields.get(field))) {
        (None, _) => Ok(SecretSource::Store),
        (Some("variable"), None) => Ok(SecretSource::Env { variable: name.clone() }),
        (Some("variable"), Some(Json::String(text))) => {
            let variable = text.parse().map_err(|_| problem(format!("`{name}.variable` is not the name of a variable")))?;
            Ok(SecretSource::Env { variable })
        }
        (Some("path"), Some(Json::String(text))) => {
            let path = check_text(name, "path", text).map(PathBuf::from)?;
            if Path::new(&path).is_absolute() {
                Ok(SecretSource::File { path })
            } else {
                Err(problem(format!("`{name}.path` must be an absolute path")))
            }
        }
        (Some("command"), Some(Json::Array(words))) => command(name, words).map(|argv| SecretSource::Command { argv }),
        (Some("command"), Some(Json::String(_))) => {
            Err(problem(format!("`{name}.command` is text; write a list, the program and its arguments: [\"gh\", \"auth\", \"token\"]")))
        }
        (Some(field), None) => Err(problem(format!("`{name}` has the source `{word}` and no `{field}`"))),
        (Some(field), Some(other)) => Err(problem(format!("`{name}.{field}` is {}", describe(other)))),
    }
}

fn command(name: &SecretName, words: &[Json]) -> Result<Vec<String>, BadValue> {
    if words.is_empty() || words.len() > MAX_WORDS {
        return Err(problem(format!(
            "`{name}.command` has {} words; write the program and its arguments, {MAX_WORDS} at most",
            words.len()
        )));
    }
    let argv: Vec<String> = words
        .iter()
        .map(|word| match word {
            Json::String(text) => check_text(name, "command", text).map(str::to_owned),
            other => Err(problem(format!("`{name}.command` has {} in it; every word is text", describe(other)))),
        })
        .collect::<Result<_, _>>()?;
    // A path that depends on where one stands could be planted by a repository.
    match argv.first() {
        Some(program) if program.contains('/') && !program.starts_with('/') => {
            Err(problem(format!("`{name}.command` begins with a relative path; write an absolute one, or a name that PATH leads to")))
        }
        _ => Ok(argv),
    }
}

fn hosts(name: &SecretName, written: Option<&Json>) -> Result<Vec<HostPattern>, BadValue> {
    let items = match written {
        None => return Ok(Vec::new()),
        Some(Json::Array(items)) if items.len() <= MAX_HOSTS => items,
        Some(Json::Array(_)) => return Err(problem(format!("`{name}.hosts` has more than {MAX_HOSTS} hosts"))),
        Some(other) => return Err(problem(format!("`{name}.hosts` is {}; write a list", describe(other)))),
    };
    let mut hosts = Vec::with_capacity(items.len());
    for item in items {
        let Json::String(text) = item else { return Err(problem(format!("`{name}.hosts` has {} in it", describe(item)))) };
        let host = HostPattern::parse(text).map_err(|error| problem(format!("`{name}.hosts`: {error}")))?;
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    Ok(hosts)
}

fn places(name: &SecretName, written: Option<&Json>) -> Result<Vec<Place>, BadValue> {
    let items = match written {
        None => return Ok(Vec::new()),
        Some(Json::Array(items)) => items,
        Some(other) => return Err(problem(format!("`{name}.places` is {}; write a list", describe(other)))),
    };
    let mut places = Vec::new();
    for item in items {
        let place = Place::ALL.into_iter().find(|place| item == place.word());
        let place = place.ok_or_else(|| problem(format!("`{name}.places` has {} in it; write query or body", describe(item))))?;
        if !places.contains(&place) {
            places.push(place);
        }
    }
    Ok(places)
}

fn on_misuse(name: &SecretName, written: Option<&Json>) -> Result<OnMisuse, BadValue> {
    let Some(written) = written else { return Ok(OnMisuse::default()) };
    let known = OnMisuse::ALL.into_iter().find(|known| written == known.word());
    known.ok_or_else(|| problem(format!("`{name}.onMisuse` is {}; write refuse or end", describe(written))))
}

fn check_text<'a>(name: &SecretName, field: &str, text: &'a str) -> Result<&'a str, BadValue> {
    if text.is_empty() || text.len() > MAX_TEXT || escape(text) != text {
        return Err(problem(format!(
            "`{name}.{field}` is empty, longer than {MAX_TEXT} bytes, or has control or invisible characters in it"
        )));
    }
    Ok(text)
}

fn problem(problem: String) -> BadValue {
    BadValue::Content { problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(json: &Json) -> Result<Vec<SecretSetting>, BadValue> {
        from_json(json.as_object().unwrap())
    }

    #[test]
    fn every_source_is_read_and_written() {
        let written = json!({
            "A": { "source": "store" },
            "B": { "source": "env", "variable": "OTHER" },
            "C": { "source": "file", "path": "/run/secrets/c", "maxSeconds": 60 },
            "D": { "source": "command", "command": ["gh", "auth", "token"], "hosts": ["api.github.com", "*.x.org:8443"], "maxUses": 5, "maxBytes": 9 },
            "E": { "source": "store", "places": ["query", "body"], "onMisuse": "end" },
        });
        let secrets = read(&written).unwrap();
        assert_eq!(to_json(&secrets), written);
        assert_eq!(secrets.iter().map(|secret| secret.source.word()).collect::<Vec<_>>(), ["store", "env", "file", "command", "store"]);
        let own = read(&json!({ "B": { "source": "env" } })).unwrap();
        assert_eq!(own.first().map(|secret| &secret.source), Some(&SecretSource::Env { variable: "B".parse().unwrap() }));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_field() {
        for (entry, says) in [
            (json!(1), "`T` is the number 1"),
            (json!({}), "does not say its `source`"),
            (json!({ "source": "vault" }), "`T.source` is `vault`"),
            (json!({ "source": 1 }), "`T.source` is the number 1"),
            (json!({ "source": "store", "value": "x" }), "unknown field `value`"),
            (json!({ "source": "store", "host": [] }), "did you mean `hosts`"),
            (json!({ "source": "store", "path": "/x" }), "`T.path` means nothing"),
            (json!({ "source": "file" }), "no `path`"),
            (json!({ "source": "file", "path": "x" }), "absolute"),
            (json!({ "source": "file", "path": "/a\u{0}b" }), "`T.path` is empty"),
            (json!({ "source": "env", "variable": "A B" }), "`T.variable`"),
            (json!({ "source": "command", "command": "gh auth token" }), "write a list"),
            (json!({ "source": "command", "command": [] }), "0 words"),
            (json!({ "source": "command", "command": ["gh", 1] }), "the number 1 in it"),
            (json!({ "source": "command", "command": ["./gh"] }), "relative path"),
            (json!({ "source": "store", "hosts": ["https://a"] }), "`T.hosts`"),
            (json!({ "source": "store", "hosts": "a.com" }), "`T.hosts` is the string"),
            (json!({ "source": "store", "places": "body" }), "`T.places` is the string"),
            (json!({ "source": "store", "places": ["cookie"] }), "write query or body"),
            (json!({ "source": "store", "onMisuse": "kill" }), "write refuse or end"),
            (json!({ "source": "store", "maxUses": 0 }), "`T.maxUses` is the number 0"),
            (json!({ "source": "store", "maxBytes": 1.5 }), "`T.maxBytes`"),
            (json!({ "source": "store", "maxSeconds": "1h" }), "`T.maxSeconds`"),
        ] {
            let Err(BadValue::Content { problem }) = read(&json!({ "T": entry })) else { panic!("{entry}") };
            assert!(problem.contains(says), "{entry}: {problem}");
        }
        assert!(read(&json!({ "not a name": { "source": "store" } })).is_err());
    }
}
