//! What is known of an agent: which hosts, which keys, which of its files go inside. Data, one file each in `agents/`.
//!
//! A profile names what goes in; what it does not name stays out. It grants nothing by itself: keys become placeholders, and a host is
//! allowed only for a key that is there.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use stockade_core::host::HostPattern;

use crate::failure::Failure;

/// The built-in ones.
const FILES: [&str; 5] = [
    include_str!("../../agents/claude.json"),
    include_str!("../../agents/codex.json"),
    include_str!("../../agents/gemini.json"),
    include_str!("../../agents/opencode.json"),
    include_str!("../../agents/generic.json"),
];
/// The one for programs that no other names.
pub(crate) const GENERIC: &str = "generic";

/// One agent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    /// The word on the command line.
    pub(crate) name: String,
    /// For people.
    pub(crate) title: String,
    /// Names of its program.
    pub(crate) programs: Vec<String>,
    /// Hosts it always needs, without any key.
    #[serde(default)]
    pub(crate) hosts: Vec<HostPattern>,
    /// Keys it may use.
    #[serde(default)]
    pub(crate) keys: Vec<Key>,
    /// Where its own settings name further keys.
    #[serde(default)]
    pub(crate) providers: Option<Providers>,
    /// Variables that go in as the caller has them.
    #[serde(default)]
    pub(crate) pass: Vec<String>,
    /// Variables that are set inside.
    #[serde(default)]
    pub(crate) set: BTreeMap<String, String>,
    /// The directory of its settings and state.
    #[serde(default)]
    pub(crate) directory: Option<Directory>,
    /// What of that directory is copied in.
    #[serde(default)]
    pub(crate) files: Vec<Copied>,
    /// What is put there besides.
    #[serde(default)]
    pub(crate) seeds: Vec<Seed>,
    /// What of that directory is kept from one run to the next, where the agent has a name: its conversations.
    #[serde(default)]
    pub(crate) remembers: Vec<String>,
    /// Files of that directory in which a login is kept.
    #[serde(default)]
    pub(crate) logins: Vec<LoginFile>,
}

/// A login: inside, its file holds placeholders.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoginFile {
    /// In the agent's directory, JSON.
    pub(crate) file: String,
    /// Its tokens.
    pub(crate) tokens: Vec<Token>,
    /// Who renews them.
    pub(crate) renewed_by: Vec<HostPattern>,
    /// At which path.
    pub(crate) renewed_at: String,
    /// Where it says until when they are good, in milliseconds since 1970.
    #[serde(default)]
    pub(crate) expiry: Option<String>,
}

/// One token of a login.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    /// What it is called here.
    pub(crate) secret: String,
    /// Where in the file it stands.
    pub(crate) pointer: String,
    /// What it is called in the answer that renews it.
    pub(crate) member: String,
    /// Where it may go.
    pub(crate) hosts: Vec<HostPattern>,
    /// As with keys.
    #[serde(default)]
    pub(crate) base_url: Option<String>,
}

/// A key, and where it may go.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Key {
    /// The variable, and the secret's name.
    pub(crate) variable: String,
    /// Where it may go.
    pub(crate) hosts: Vec<HostPattern>,
    /// The variable that names another address of the model; then the key goes there and nowhere else.
    #[serde(default)]
    pub(crate) base_url: Option<String>,
}

/// How an agent's own settings name a provider of models.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Providers {
    /// The file, in its directory.
    pub(crate) file: String,
    /// The member that says which provider is used.
    pub(crate) selected: String,
    /// The table of providers.
    pub(crate) table: String,
    /// A provider's address.
    pub(crate) url: String,
    /// The variable that holds its key.
    pub(crate) key: String,
    /// Flags of the agent that set one member: `-c name=value`.
    pub(crate) flags: Vec<String>,
}

/// A directory beneath home.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Directory {
    /// Where it is unless the variable says otherwise, and where it is inside.
    pub(crate) path: String,
    /// The variable that names it. Inside it is always set.
    #[serde(default)]
    pub(crate) variable: Option<String>,
}

/// A file or directory that is copied.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Copied {
    /// In the agent's directory.
    pub(crate) from: String,
    /// Beside the directory rather than in it, where that is in its usual place; inside it is in it.
    #[serde(default)]
    pub(crate) beside: bool,
    /// How credentials are told from the rest.
    #[serde(default)]
    pub(crate) form: Form,
    /// Members that are kept; none named: all that are no credentials.
    #[serde(default)]
    pub(crate) keep: Vec<String>,
}

/// How a file is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Form {
    /// Text: copied whole, or not at all where a token is in it.
    #[default]
    Text,
    /// Members that hold credentials are left out.
    Json,
    /// The same.
    Toml,
}

/// Members that are set in a file inside.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Seed {
    /// In the agent's directory.
    pub(crate) to: String,
    /// The file's form.
    pub(crate) form: Form,
    /// What is set. `$WORKSPACE` stands for the workspace, `$TAIL20:NAME` for the end of a placeholder; `$IF:NAME:WORD` is that word where there
    /// is a placeholder of that name.
    pub(crate) merge: Value,
}

/// All profiles.
pub(crate) fn all() -> Result<Vec<Profile>, Failure> {
    FILES.iter().map(|text| serde_json::from_str(text).map_err(|error| Failure::from_error("profiles", &error))).collect()
}

/// The profile of that name or in that file, or the one for a program.
pub(crate) fn choose(name: Option<&str>, program: &Path) -> Result<Profile, Failure> {
    if let Some(path) = name.filter(|name| name.contains('/')) {
        return of_file(Path::new(path));
    }
    let all = all()?;
    let file = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let named = |profile: &&Profile| match name {
        Some(name) => profile.name == name,
        None => profile.programs.iter().any(|known| known == file),
    };
    let known: Vec<&str> = all.iter().map(|profile| profile.name.as_str()).collect();
    match (all.iter().find(named), name) {
        (Some(profile), _) => Ok(profile.clone()),
        (None, Some(name)) => Err(Failure::new("arguments", format!("there is no profile `{}`", stockade_core::escape::escape(name)))
            .with_hint(format!("known: {}", known.join(" ")))),
        (None, None) => {
            let generic = all.iter().find(|profile| profile.name == GENERIC);
            generic.cloned().ok_or_else(|| Failure::new("profiles", "the generic profile is missing"))
        }
    }
}

/// A profile that a person wrote. Of their own, so it may name what it likes.
fn of_file(path: &Path) -> Result<Profile, Failure> {
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(super::providers::MAX_BYTES).read_to_string(&mut text));
    let failed = |why: String| Failure::new("profile", format!("`{}`: {why}", stockade_core::escape::escape(&path.to_string_lossy())));
    read.map_err(|error| failed(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_whole() {
        let all = all().unwrap();
        assert_eq!(all.iter().map(|profile| profile.name.as_str()).collect::<Vec<_>>(), ["claude", "codex", "gemini", "opencode", GENERIC]);
        for profile in &all {
            assert!(profile.keys.iter().all(|key| !key.hosts.is_empty() && key.variable.parse::<stockade_broker::SecretName>().is_ok()));
            // A variable that holds a placeholder is never passed as it is.
            assert!(profile.pass.iter().all(|name| profile.keys.iter().all(|key| key.variable != *name)), "{}", profile.name);
            assert!(profile.directory.is_some() || (profile.files.is_empty() && profile.seeds.is_empty()));
            assert!(profile.files.iter().all(|file| file.keep.is_empty() || file.form == Form::Json));
            // What is remembered was written inside, so it is never what is copied from outside, or grants anything.
            let theirs = profile.files.iter().map(|file| &file.from).chain(profile.seeds.iter().map(|seed| &seed.to));
            let taken: Vec<&String> = theirs.chain(profile.logins.iter().map(|login| &login.file)).collect();
            assert!(profile.remembers.iter().all(|name| !taken.contains(&name) && !name.contains('/')), "{}", profile.name);
        }
    }

    #[test]
    fn a_program_has_its_profile() {
        let chosen = |name: Option<&str>, program: &str| choose(name, Path::new(program)).map(|profile| profile.name);
        assert_eq!(chosen(None, "/usr/bin/claude").as_deref(), Ok("claude"));
        assert_eq!(chosen(None, "codex").as_deref(), Ok("codex"));
        assert_eq!(chosen(None, "./agent.py").as_deref(), Ok(GENERIC));
        assert_eq!(chosen(Some("claude"), "python3").as_deref(), Ok("claude"));
        assert!(chosen(Some("clod"), "python3").unwrap_err().hint.unwrap().contains("claude codex"));
    }
}
