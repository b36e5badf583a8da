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
use stockade_core::credential::Delivery;
use stockade_core::escape::escape;
use stockade_core::secret::SecretName;

use super::nearest::closest;
use super::providers::Provider;
use super::ssh::{self, Ssh};
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
/// What an entry may say whatever its source is.
const COMMON: [&str; 13] = [
    "source",
    "hosts",
    "places",
    "onMisuse",
    "maxUses",
    "maxBytes",
    "maxSeconds",
    "maxPerMinute",
    "delivery",
    "user",
    "authorities",
    "cache",
    "ssh",
];
/// What belongs to one source each.
const OWN: [&str; 3] = ["variable", "path", "command"];
/// The sources that are no providers.
const PLAIN: [&str; 4] = ["store", "env", "file", "command"];

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
    /// How often all sandboxes together may be given it in a minute.
    pub max_per_minute: Option<u64>,
    /// How it appears inside; empty: as its source usually does.
    pub delivery: Vec<Delivery>,
    /// The user's name that tools send beside it.
    pub user: Option<String>,
    /// A file of authorities that its hosts' certificates may be of, besides the machine's.
    pub authorities: Option<PathBuf>,
    /// For how many calls one value serves.
    pub cache: Cache,
    /// What it may be used for over SSH.
    pub ssh: Option<Ssh>,
}

/// For how many calls one value serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cache {
    /// For one where it is handed in or can be given back, else for all.
    #[default]
    Usual,
    /// For one.
    Call,
    /// For all of one person, until its end.
    Shared,
}

impl Cache {
    /// The word in settings, where there is one.
    fn word(self) -> Option<&'static str> {
        match self {
            Self::Usual => None,
            Self::Call => Some("call"),
            Self::Shared => Some("shared"),
        }
    }
}

impl SecretSetting {
    /// A secret of this source, and nothing else said of it.
    pub fn new(name: SecretName, source: SecretSource) -> Self {
        Self {
            name,
            source,
            hosts: Vec::new(),
            places: Vec::new(),
            on_misuse: OnMisuse::default(),
            max_uses: None,
            max_bytes: None,
            max_seconds: None,
            max_per_minute: None,
            delivery: Vec::new(),
            user: None,
            authorities: None,
            cache: Cache::default(),
            ssh: None,
        }
    }

    /// What it may be used for in git over SSH, or what to write first.
    pub fn git_over_ssh(&self) -> Result<&Ssh, String> {
        let ssh = self.ssh.as_ref().ok_or(
            "the delivery `ssh` needs the field `ssh`: { \"hostKeys\": [\"ssh-ed25519 AAAA…\"], \"repositories\": [\"org/repository\"] }",
        )?;
        ssh.missing().map_or(Ok(ssh), |missing| Err(missing.to_owned()))
    }

    /// How it appears inside.
    pub fn deliveries(&self) -> Vec<Delivery> {
        if !self.delivery.is_empty() {
            return self.delivery.clone();
        }
        match &self.source {
            SecretSource::Provider(provider) => match provider.as_ref() {
                Provider::Aws(_) => vec![Delivery::AwsKeys],
                Provider::Gcp(_) => vec![Delivery::GcpMetadata, Delivery::GcpToken],
                Provider::Kubernetes(_) => vec![Delivery::Kubernetes],
                Provider::Github(_) => vec![Delivery::Variable, Delivery::Git],
                Provider::Keychain(_) | Provider::Onepassword(_) | Provider::Vault(_) | Provider::Infisical(_) | Provider::Oauth(_) => {
                    vec![Delivery::Variable]
                }
            },
            SecretSource::Store | SecretSource::Env { .. } | SecretSource::File { .. } | SecretSource::Command { .. } => {
                vec![Delivery::Variable]
            }
        }
    }
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
    /// A provider gives it.
    Provider(Box<Provider>),
}

impl SecretSource {
    /// The word in settings.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Env { .. } => "env",
            Self::File { .. } => "file",
            Self::Command { .. } => "command",
            Self::Provider(provider) => provider.word(),
        }
    }
}

/// Checks the whole setting.
pub fn from_json(entries: &Map<String, Json>) -> Result<Vec<SecretSetting>, BadValue> {
    if entries.len() > MAX_SECRETS {
        return Err(BadValue::Content { problem: format!("it has {} secrets; {MAX_SECRETS} is the most", entries.len()) });
    }
    entries.iter().map(|(name, entry)| one(name, entry)).collect()
}

/// The setting as it is written.
pub(super) fn to_json(secrets: &[SecretSetting]) -> Json {
    Json::Object(secrets.iter().map(|secret| (secret.name.to_string(), entry_to_json(secret))).collect())
}

/// One entry as it is written.
pub(super) fn entry_to_json(secret: &SecretSetting) -> Json {
    let mut entry = Map::new();
    entry.insert("source".to_owned(), secret.source.word().into());
    match &secret.source {
        SecretSource::Store => {}
        SecretSource::Env { variable } => drop(entry.insert("variable".to_owned(), variable.as_str().into())),
        SecretSource::File { path } => drop(entry.insert("path".to_owned(), path.to_string_lossy().into())),
        SecretSource::Command { argv } => drop(entry.insert("command".to_owned(), argv.clone().into())),
        SecretSource::Provider(provider) => {
            // Every field of a provider can be written as JSON.
            if let Ok(Json::Object(own)) = serde_json::to_value(provider) {
                entry.extend(own);
            }
        }
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
    match secret.delivery.as_slice() {
        [] => {}
        [one] => drop(entry.insert("delivery".to_owned(), one.word().into())),
        several => drop(entry.insert("delivery".to_owned(), several.iter().map(|one| one.word()).collect::<Vec<_>>().into())),
    }
    if let Some(user) = &secret.user {
        entry.insert("user".to_owned(), user.as_str().into());
    }
    if let Some(authorities) = &secret.authorities {
        entry.insert("authorities".to_owned(), authorities.to_string_lossy().into());
    }
    if let Some(cache) = secret.cache.word() {
        entry.insert("cache".to_owned(), cache.into());
    }
    if let Some(ssh) = &secret.ssh {
        entry.insert("ssh".to_owned(), ssh.to_json());
    }
    let bounds = [
        ("maxUses", secret.max_uses),
        ("maxBytes", secret.max_bytes),
        ("maxSeconds", secret.max_seconds),
        ("maxPerMinute", secret.max_per_minute),
    ];
    for (field, bound) in bounds {
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
    let word = fields.get("source").and_then(Json::as_str).unwrap_or_default();
    let is_provider = Provider::WORDS.contains(&word);
    let known = |field: &&String| COMMON.contains(&field.as_str()) || OWN.contains(&field.as_str());
    if let Some(unknown) = fields.keys().find(|field| !is_provider && !known(field)) {
        let meant = closest(unknown, &[&COMMON[..], &OWN].concat()).map(|field| format!("; did you mean `{field}`?")).unwrap_or_default();
        return Err(problem(format!("`{name}` has an unknown field `{}`{meant}", shorten(unknown))));
    }
    let source = if is_provider { provider(&name, fields)? } else { source(&name, fields)? };
    let count = |field: &str| match fields.get(field) {
        None => Ok(None),
        Some(Json::Number(number)) if number.as_u64().is_some_and(|n| (1..=MAX_COUNT).contains(&n)) => Ok(number.as_u64()),
        Some(other) => Err(problem(format!("`{name}.{field}` is {}; write a whole number from 1", describe(other)))),
    };
    let secret = SecretSetting {
        source,
        hosts: hosts(&name, fields.get("hosts"))?,
        places: places(&name, fields.get("places"))?,
        on_misuse: on_misuse(&name, fields.get("onMisuse"))?,
        max_uses: count("maxUses")?,
        max_bytes: count("maxBytes")?,
        max_seconds: count("maxSeconds")?,
        max_per_minute: count("maxPerMinute")?,
        delivery: delivery(&name, fields.get("delivery"))?,
        user: user(&name, fields.get("user"))?,
        authorities: authorities(&name, fields.get("authorities"))?,
        cache: cache(&name, fields.get("cache"))?,
        ssh: ssh::read(&name, fields.get("ssh"))?,
        name,
    };
    if secret.delivery.contains(&Delivery::Ssh) {
        secret.git_over_ssh().map_err(|why| problem(format!("`{}`: {why}", secret.name)))?;
    }
    Ok(secret)
}

/// A provider's entry: what is common to all is taken out, the rest is its own.
fn provider(name: &SecretName, fields: &Map<String, Json>) -> Result<SecretSource, BadValue> {
    let own = fields.iter().filter(|(field, _)| field.as_str() == "source" || !COMMON.contains(&field.as_str()));
    let own = Json::Object(own.map(|(field, value)| (field.clone(), value.clone())).collect());
    let provider = Provider::read(own).map_err(|error| problem(format!("`{name}`: {}", escape(&error))))?;
    Ok(SecretSource::Provider(Box::new(provider)))
}

fn delivery(name: &SecretName, written: Option<&Json>) -> Result<Vec<Delivery>, BadValue> {
    let items = match written {
        None => return Ok(Vec::new()),
        Some(Json::Array(items)) if !items.is_empty() => items.as_slice(),
        Some(one) => std::slice::from_ref(one),
    };
    let mut deliveries = Vec::new();
    for item in items {
        let known = item.as_str().and_then(Delivery::of_word).ok_or_else(|| {
            let words = Delivery::ALL.map(Delivery::word).join(", ");
            problem(format!("`{name}.delivery` has {} in it; write one or more of {words}", describe(item)))
        })?;
        if !deliveries.contains(&known) {
            deliveries.push(known);
        }
    }
    Ok(deliveries)
}

fn user(name: &SecretName, written: Option<&Json>) -> Result<Option<String>, BadValue> {
    match written {
        None => Ok(None),
        // It stands before a colon, and on a line of its own.
        Some(Json::String(text)) if !text.contains([':', '\n', '\r']) => check_text(name, "user", text).map(|text| Some(text.to_owned())),
        Some(other) => Err(problem(format!("`{name}.user` is {}; write a user's name, without a colon", describe(other)))),
    }
}

fn authorities(name: &SecretName, written: Option<&Json>) -> Result<Option<PathBuf>, BadValue> {
    match written {
        None => Ok(None),
        Some(Json::String(text)) if text.starts_with('/') => check_text(name, "authorities", text).map(|text| Some(PathBuf::from(text))),
        Some(other) => Err(problem(format!("`{name}.authorities` is {}; write the absolute path of a PEM file", describe(other)))),
    }
}

fn cache(name: &SecretName, written: Option<&Json>) -> Result<Cache, BadValue> {
    let Some(written) = written else { return Ok(Cache::Usual) };
    let known = [Cache::Call, Cache::Shared].into_iter().find(|known| known.word().is_some_and(|word| written == word));
    known.ok_or_else(|| problem(format!("`{name}.cache` is {}; write call or shared", describe(written))))
}

fn source(name: &SecretName, fields: &Map<String, Json>) -> Result<SecretSource, BadValue> {
    let word = match fields.get("source") {
        Some(Json::String(word)) => word.as_str(),
        Some(other) => return Err(problem(format!("`{name}.source` is {}; write {}", describe(other), sources()))),
        None => return Err(problem(format!("`{name}` does not say its `source`: {}", sources()))),
    };
    let own = match word {
        "store" => None,
        "env" => Some("variable"),
        "file" => Some("path"),
        "command" => Some("command"),
        other => return Err(problem(format!("`{name}.source` is `{}`; write {}", shorten(other), sources()))),
    };
    if let Some(stray) = OWN.into_iter().find(|field| Some(*field) != own && fields.contains_key(*field)) {
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

fn sources() -> String {
    PLAIN.into_iter().chain(Provider::WORDS).collect::<Vec<_>>().join(", ")
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
            "F": { "source": "store", "delivery": "ssh", "ssh": {
                "hostKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"], "repositories": ["org/*"],
            } },
        });
        let secrets = read(&written).unwrap();
        assert_eq!(to_json(&secrets), written);
        assert_eq!(
            secrets.iter().map(|secret| secret.source.word()).collect::<Vec<_>>(),
            ["store", "env", "file", "command", "store", "store"]
        );
        let own = read(&json!({ "B": { "source": "env" } })).unwrap();
        assert_eq!(own.first().map(|secret| &secret.source), Some(&SecretSource::Env { variable: "B".parse().unwrap() }));
    }

    /// Every block of settings in the guides is one that can be written so.
    #[test]
    fn the_guides_show_what_can_be_read() {
        let mut seen = Vec::new();
        for guide in [include_str!("../../../../docs/guides/secrets.md"), include_str!("../../../../docs/guides/credentials.md")] {
            for block in guide.split("```json").skip(1) {
                let (_, block) = block.split_once('\n').unwrap();
                let (block, _) = block.split_once("```").unwrap();
                // The guides leave out whose key it is.
                let block = block.replace("AAAA…", "AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl");
                let lines = block.lines().filter(|line| !line.trim_start().starts_with("//"));
                let text: String = lines.collect::<Vec<_>>().join("\n");
                let text = if text.starts_with('{') { text } else { format!("{{ {text} }}") };
                let block: Json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
                let secrets = read(block.get("secrets").unwrap_or(&block)).unwrap_or_else(|error| panic!("{error:?}: {text}"));
                seen.extend(secrets.iter().map(entry_to_json));
            }
        }
        let shows = |pointer: &str, word: &str| seen.iter().any(|entry| entry.pointer(pointer).is_some_and(|found| found == word));
        for grant in ["client-credentials", "refresh-token", "device", "exchange"] {
            assert!(shows("/grant/type", grant), "{grant}");
        }
        assert!(shows("/delivery", "ssh") && shows("/delivery", "ssh-agent") && shows("/source", "aws") && shows("/source", "file"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_field() {
        for (entry, says) in [
            (json!(1), "`T` is the number 1"),
            (json!({}), "does not say its `source`"),
            (json!({ "source": "cellar" }), "`T.source` is `cellar`"),
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
            (json!({ "source": "store", "delivery": "ssh" }), "needs the field `ssh`"),
            (json!({ "source": "store", "delivery": ["variable", "ssh"], "ssh": {} }), "`ssh.hostKeys` is empty"),
            (json!({ "source": "store", "ssh": { "push": 1 } }), "`T.ssh.push`"),
        ] {
            let Err(BadValue::Content { problem }) = read(&json!({ "T": entry })) else { panic!("{entry}") };
            assert!(problem.contains(says), "{entry}: {problem}");
        }
        assert!(read(&json!({ "not a name": { "source": "store" } })).is_err());
    }
}
