//! The provider of models that an agent's own settings, or its arguments, choose: its address, and the variable with its key.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::Path;

use serde_json::{Map, Value};

use super::profile::Providers;

/// Settings longer than this are not an agent's.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// What was chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Provider {
    /// Its address.
    pub(crate) url: String,
    /// The variable that holds its key, where it has one.
    pub(crate) key: Option<String>,
}

/// The provider that is chosen; `None` where it is one that the agent itself knows.
pub(crate) fn chosen(known: &Providers, directory: &Path, argv: &[OsString]) -> Option<Provider> {
    let mut settings = read(&directory.join(&known.file)).unwrap_or_default();
    for text in overrides(known, argv) {
        merge(&mut settings, assignment(&text));
    }
    let name = settings.get(&known.selected)?.as_str()?;
    let provider = settings.get(&known.table)?.get(name)?;
    let text = |member: &str| provider.get(member).and_then(Value::as_str).map(str::to_owned);
    Some(Provider { url: text(&known.url)?, key: text(&known.key) })
}

/// A TOML file as one value.
fn read(path: &Path) -> Option<Map<String, Value>> {
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    table(&text)
}

fn table(text: &str) -> Option<Map<String, Value>> {
    match json_of(toml::Value::Table(toml::from_str(text).ok()?)) {
        Value::Object(members) => Some(members),
        _ => None,
    }
}

/// TOML as JSON; dates become text.
pub(crate) fn json_of(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(yes) => Value::Bool(yes),
        toml::Value::Datetime(date) => Value::String(date.to_string()),
        toml::Value::Array(items) => Value::Array(items.into_iter().map(json_of).collect()),
        toml::Value::Table(members) => Value::Object(members.into_iter().map(|(name, value)| (name, json_of(value))).collect()),
    }
}

/// The values of the flags that set one member, in order.
fn overrides(known: &Providers, argv: &[OsString]) -> Vec<String> {
    let words: Vec<&str> = argv.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let mut found = Vec::new();
    for (index, word) in words.iter().enumerate() {
        if known.flags.iter().any(|flag| flag == word) {
            found.extend(words.get(index + 1).map(|text| (*text).to_owned()));
        } else if let Some(text) = known.flags.iter().find_map(|flag| word.strip_prefix(flag.as_str())?.strip_prefix('=')) {
            found.push(text.to_owned());
        }
    }
    found
}

/// `a.b=VALUE`, where a value that is no TOML is text.
fn assignment(text: &str) -> Map<String, Value> {
    table(text)
        .or_else(|| {
            let (name, value) = text.split_once('=')?;
            table(&format!("{name}={}", toml::Value::String(value.to_owned())))
        })
        .unwrap_or_default()
}

/// Puts the members of one into the other, level by level.
pub(crate) fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (name, value) in from {
        match (into.get_mut(&name), value) {
            (Some(Value::Object(known)), Value::Object(new)) => merge(known, new),
            (_, value) => drop(into.insert(name, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Providers {
        super::super::profile::choose(Some("codex"), Path::new("codex")).unwrap().providers.unwrap()
    }

    #[test]
    fn settings_and_flags_choose() {
        let directory = tempfile::tempdir().unwrap();
        let chosen = |argv: &[&str]| {
            let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
            chosen(&known(), directory.path(), &argv)
        };
        let provider = |url: &str, key: Option<&str>| Some(Provider { url: url.into(), key: key.map(str::to_owned) });
        assert_eq!(chosen(&["codex", "exec"]), None);
        let text = "model_provider = \"mine\"\n[model_providers.mine]\nbase_url = \"https://a.example/v1\"\nenv_key = \"MY_KEY\"\n[model_providers.other]\nbase_url = \"https://b.example\"\n";
        std::fs::write(directory.path().join("config.toml"), text).unwrap();
        assert_eq!(chosen(&["codex", "exec"]), provider("https://a.example/v1", Some("MY_KEY")));
        assert_eq!(chosen(&["codex", "-c", "model_provider=other", "exec"]), provider("https://b.example", None));
        assert_eq!(chosen(&["codex", "--config=model_provider=\"openai\""]), None);
        let by_flags = [
            "codex",
            "-c",
            "model_provider=x",
            "-c",
            "model_providers.x.base_url=\"http://127.0.0.1:9\"",
            "-c",
            "model_providers.x.env_key=K",
        ];
        assert_eq!(chosen(&by_flags), provider("http://127.0.0.1:9", Some("K")));
        std::fs::write(directory.path().join("config.toml"), "not = [toml").unwrap();
        assert_eq!(chosen(&["codex"]), None);
    }
}
