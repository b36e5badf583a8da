//! The agent's own settings as they are inside: copied without credentials, with what it would otherwise ask a person about.
//!
//! Only what the profile names is read, without following links, within bounds. What is left out is told. The copies belong to the
//! sandbox: what the agent writes to them goes with it.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use stockade_core::path::SafePath;
use stockade_core::reach::Login;
use stockade_sandbox::once::{Furnish, HomeFile};

use super::profile::{Copied, Form, Profile, Seed};
use super::providers::{MAX_BYTES, json_of, merge};
use super::strip;

/// Files of one agent.
const MAX_FILES: usize = 2000;
/// Bytes of all of them.
const MAX_TOTAL: usize = 32 << 20;
/// Directories in directories.
const MAX_DEPTH: usize = 8;

/// What goes inside.
#[derive(Debug)]
pub(crate) struct Furniture {
    /// The agent's directory inside.
    directory: PathBuf,
    /// In that directory.
    files: Vec<(PathBuf, Vec<u8>, u32)>,
    seeds: Vec<Seed>,
    logins: Vec<LoggedIn>,
    workspace: String,
    /// What was left out, and why.
    pub(crate) left_out: Vec<String>,
    total: usize,
}

/// A login as it is inside: the file without its tokens, and which placeholders stand where they stood.
#[derive(Debug)]
struct LoggedIn {
    path: PathBuf,
    rest: Value,
    tokens: Vec<(String, String)>,
}

impl Furniture {
    /// Reads what the profile names. `outside` is the agent's directory here, `inside` the one in the sandbox.
    pub(crate) fn gather(profile: &Profile, outside: &Path, usual: &Path, inside: &Path, workspace: &Path) -> Self {
        let mut furniture = Self {
            directory: inside.to_owned(),
            files: Vec::new(),
            seeds: profile.seeds.clone(),
            logins: Vec::new(),
            workspace: workspace.to_string_lossy().into_owned(),
            left_out: Vec::new(),
            total: 0,
        };
        for copied in &profile.files {
            let around = if copied.beside && outside == usual { outside.parent().unwrap_or(outside) } else { outside };
            furniture.copy(&around.join(&copied.from), Path::new(&copied.from), copied, 0);
        }
        furniture
    }

    /// Adds the files of logins. Of each only its name counts: it lies in the agent's directory.
    pub(crate) fn with_logins(mut self, logins: &[Login]) -> Self {
        for login in logins {
            let Some(name) = login.file.file_name() else { continue };
            let Some(members) = whole(&login.file).ok().and_then(|bytes| parse(&bytes, Form::Json)) else { continue };
            let tokens = login.tokens.iter().map(|token| (token.pointer.clone(), token.secret.to_string())).collect();
            self.logins.push(LoggedIn { path: name.into(), rest: strip::without_credentials(Value::Object(members)), tokens });
        }
        self
    }

    fn copy(&mut self, from: &Path, to: &Path, how: &Copied, depth: usize) {
        let Ok(found) = std::fs::symlink_metadata(from) else { return };
        if found.is_dir() {
            if depth >= MAX_DEPTH {
                self.leave_out(to, "it lies too deep");
                return;
            }
            let mut names: Vec<OsString> = std::fs::read_dir(from).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
            names.sort();
            for name in names {
                self.copy(&from.join(&name), &to.join(&name), how, depth + 1);
            }
            return;
        }
        if !found.is_file() {
            self.leave_out(to, "it is no plain file");
            return;
        }
        match contents(from, how) {
            Ok(contents) if self.files.len() < MAX_FILES && self.total + contents.len() <= MAX_TOTAL => {
                self.total += contents.len();
                let mode = if found.permissions().mode() & 0o100 == 0 { 0o600 } else { 0o700 };
                self.files.push((to.to_owned(), contents, mode));
            }
            Ok(_) => self.leave_out(to, "there is too much"),
            Err(why) => self.leave_out(to, &why),
        }
    }

    fn leave_out(&mut self, path: &Path, why: &str) {
        self.left_out.push(format!("{}: {why}", stockade_core::escape::escape(&path.to_string_lossy())));
    }

    /// A seed with its words filled in.
    fn filled(&self, value: &Value, way_out: &[(String, OsString)]) -> Value {
        let placeholder = |name: &str| way_out.iter().find(|(known, _)| known == name).and_then(|(_, value)| value.to_str());
        let text = |text: &str| {
            if let Some(name) = text.strip_prefix("$TAIL20:") {
                let placeholder = placeholder(name)?;
                return Some(placeholder.get(placeholder.len().checked_sub(20)?..)?.to_owned());
            }
            if let Some((name, word)) = text.strip_prefix("$IF:").and_then(|rest| rest.split_once(':')) {
                return placeholder(name).map(|_| word.to_owned());
            }
            Some(text.replace("$WORKSPACE", &self.workspace))
        };
        match value {
            Value::String(word) => text(word).map_or(Value::Null, Value::String),
            Value::Array(items) => {
                Value::Array(items.iter().map(|item| self.filled(item, way_out)).filter(|item| !item.is_null()).collect())
            }
            Value::Object(members) => {
                let filled = members.iter().filter_map(|(name, value)| Some((text(name)?, self.filled(value, way_out))));
                Value::Object(filled.filter(|(_, value)| !value.is_null()).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn sow(&self, seed: &Seed, files: &mut Vec<(PathBuf, Vec<u8>, u32)>, way_out: &[(String, OsString)]) {
        let path = Path::new(&seed.to);
        let known = files.iter().position(|(known, _, _)| known == path);
        let before = known.and_then(|at| files.get(at)).and_then(|(_, contents, _)| parse(contents, seed.form)).unwrap_or_default();
        let mut members = before;
        if let Value::Object(seeds) = self.filled(&seed.merge, way_out) {
            merge(&mut members, seeds);
        }
        let Some(contents) = render(members, seed.form) else { return };
        files.retain(|(known, _, _)| known != path);
        files.push((path.to_owned(), contents, 0o600));
    }
}

impl Furnish for Furniture {
    fn files(&self, way_out: &[(String, OsString)]) -> Vec<HomeFile> {
        let mut files = self.files.clone();
        self.seeds.iter().for_each(|seed| self.sow(seed, &mut files, way_out));
        for LoggedIn { path, rest, tokens } in &self.logins {
            let mut value = rest.clone();
            for (pointer, secret) in tokens {
                let placeholder = way_out.iter().find(|(name, _)| name == secret).and_then(|(_, value)| value.to_str());
                set(&mut value, pointer, placeholder.unwrap_or_default());
            }
            files.extend(serde_json::to_vec(&value).map(|contents| (path.clone(), contents, 0o600)));
        }
        let placed = files
            .into_iter()
            .filter_map(|(path, contents, mode)| Some(HomeFile { path: SafePath::new(self.directory.join(path)).ok()?, contents, mode }));
        placed.collect()
    }
}

/// Sets a member, level by level.
fn set(value: &mut Value, pointer: &str, text: &str) {
    let mut place = value;
    for name in pointer.split('/').skip(1) {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let Value::Object(members) = place else { return };
        place = members.entry(name).or_insert(Value::Null);
    }
    *place = Value::String(text.to_owned());
}

/// A file without credentials, or why it stays outside.
fn contents(path: &Path, how: &Copied) -> Result<Vec<u8>, String> {
    let bytes = whole(path)?;
    if how.form == Form::Text {
        let text = String::from_utf8_lossy(&bytes);
        return if strip::has_token(&text) { Err("there is something like a token in it".into()) } else { Ok(bytes) };
    }
    let mut members = parse(&bytes, how.form).ok_or("it cannot be read, so credentials cannot be told from the rest")?;
    if !how.keep.is_empty() {
        members.retain(|name, _| how.keep.contains(name));
    }
    match strip::without_credentials(Value::Object(members)) {
        Value::Object(members) => render(members, how.form).ok_or_else(|| "it cannot be written".into()),
        _ => Err("it cannot be written".into()),
    }
}

/// All of a file that is not too large.
fn whole(path: &Path) -> Result<Vec<u8>, String> {
    // Not waiting: what was a file a moment ago may be something else now.
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path);
    let mut bytes = Vec::new();
    let read = file.and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err("it is too large".into());
    }
    Ok(bytes)
}

fn parse(bytes: &[u8], form: Form) -> Option<Map<String, Value>> {
    let value = match form {
        Form::Json => serde_json::from_slice(bytes).ok()?,
        Form::Toml => json_of(toml::Value::Table(toml::from_str(std::str::from_utf8(bytes).ok()?).ok()?)),
        Form::Text => return None,
    };
    match value {
        Value::Object(members) => Some(members),
        _ => None,
    }
}

fn render(members: Map<String, Value>, form: Form) -> Option<Vec<u8>> {
    match form {
        Form::Json => serde_json::to_vec_pretty(&Value::Object(members)).ok(),
        Form::Toml => toml::Table::try_from(Value::Object(members)).ok().map(|table| table.to_string().into_bytes()),
        Form::Text => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: &[HomeFile]) -> Vec<String> {
        files.iter().map(|file| file.path.to_string()).collect()
    }

    fn text(files: &[HomeFile], name: &str) -> String {
        let file = files.iter().find(|file| file.path.to_string().ends_with(name)).unwrap();
        String::from_utf8(file.contents.clone()).unwrap()
    }

    #[test]
    fn claude_finds_its_settings_and_no_credentials() {
        let home = tempfile::tempdir().unwrap();
        let outside = home.path().join(".claude");
        std::fs::create_dir_all(outside.join("commands/deep")).unwrap();
        let put = |path: &str, text: &str| std::fs::write(home.path().join(path), text).unwrap();
        put(".claude/settings.json", r#"{"model":"opus","env":{"A":"1","API_KEY":"x"},"apiKeyHelper":"y"}"#);
        put(".claude/.credentials.json", r#"{"claudeAiOauth":{"accessToken":"sk-ant-oat01-secretsecretsecret"}}"#);
        put(".claude/commands/deep/a.md", "do this");
        put(".claude/commands/b.md", "with ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6");
        put(".claude.json", r#"{"theme":"dark","oauthAccount":{"emailAddress":"a@b"},"userID":"u"}"#);
        std::os::unix::fs::symlink("/etc/passwd", outside.join("CLAUDE.md")).unwrap();
        let profile = super::super::profile::choose(Some("claude"), Path::new("claude")).unwrap();
        let furniture = Furniture::gather(&profile, &outside, &outside, Path::new("/home/u/.claude"), Path::new("/w/x"));
        let way_out = [("ANTHROPIC_API_KEY".to_owned(), OsString::from("sk-ant-api03-0123456789abcdefghij"))];
        let files = furniture.files(&way_out);
        let expected = ["settings.json", "commands/deep/a.md", ".claude.json"].map(|name| format!("/home/u/.claude/{name}"));
        assert_eq!(names(&files), expected);
        assert_eq!(
            serde_json::from_str::<Value>(&text(&files, "settings.json")).unwrap(),
            serde_json::json!({"model": "opus", "env": {"A": "1"}})
        );
        let state: Value = serde_json::from_str(&text(&files, ".claude.json")).unwrap();
        assert_eq!(state.pointer("/theme"), Some(&"dark".into()));
        assert_eq!(state.pointer("/oauthAccount"), None);
        assert_eq!(state.pointer("/customApiKeyResponses/approved/0"), Some(&"0123456789abcdefghij".into()));
        assert_eq!(state.pointer("/projects/~1w~1x/hasTrustDialogAccepted"), Some(&true.into()));
        assert_eq!(furniture.left_out.len(), 2, "{:?}", furniture.left_out);
        // Without a key nothing is approved.
        let files = furniture.files(&[]);
        let state: Value = serde_json::from_str(&text(&files, ".claude.json")).unwrap();
        assert_eq!(state.pointer("/customApiKeyResponses/approved"), Some(&serde_json::json!([])));
    }

    #[test]
    fn codex_keeps_its_providers() {
        let home = tempfile::tempdir().unwrap();
        let settings = "model = \"m\"\n[model_providers.x]\nbase_url = \"http://127.0.0.1:9/v1\"\nenv_key = \"MY_KEY\"\n[mcp_servers.a.env]\nTOKEN = \"t\"\n";
        std::fs::write(home.path().join("config.toml"), settings).unwrap();
        let profile = super::super::profile::choose(Some("codex"), Path::new("codex")).unwrap();
        let furniture = Furniture::gather(&profile, home.path(), home.path(), Path::new("/home/u/.codex"), Path::new("/w/x"));
        let text = text(&furniture.files(&[]), "config.toml");
        let value: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(value["model_providers"]["x"]["env_key"].as_str(), Some("MY_KEY"));
        assert_eq!(value["sandbox_mode"].as_str(), Some("danger-full-access"));
        assert_eq!(value["projects"]["/w/x"]["trust_level"].as_str(), Some("trusted"));
        assert!(!text.contains("TOKEN"), "{text}");
    }

    #[test]
    fn gemini_is_told_of_a_key_only_where_there_is_one() {
        let home = tempfile::tempdir().unwrap();
        let profile = super::super::profile::choose(Some("gemini"), Path::new("gemini")).unwrap();
        let furniture = Furniture::gather(&profile, home.path(), home.path(), Path::new("/home/u/.gemini"), Path::new("/w/x"));
        let chosen = |way_out: &[(String, OsString)]| {
            let settings: Value = serde_json::from_str(&text(&furniture.files(way_out), "settings.json")).unwrap();
            settings.pointer("/security/auth/selectedType").cloned()
        };
        assert_eq!(chosen(&[("GEMINI_API_KEY".into(), "AIza0".into())]), Some("gemini-api-key".into()));
        assert_eq!(chosen(&[]), None);
    }
}
