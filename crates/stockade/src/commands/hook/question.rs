//! What an agent asks, read strictly and within bounds.

use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};
use stockade_policy::shell::lexical;

use crate::failure::Failure;

/// Longer than any question: a file that is written is part of it.
const MAX_QUESTION: u64 = 64 << 20;
/// What stands for other words in a pattern.
const SIGNS: [char; 9] = ['*', '?', '[', '{', '(', '!', '+', '@', '\\'];
/// More links than the system follows: such a path cannot be opened.
const MAX_LINKS: usize = 64;
const STEP: &str = "hook";
/// An agent that is nobody's subagent.
const MAIN: &str = "main";

/// What Claude Code says when it is about to use a tool. What else it says is not needed here.
#[derive(Debug, Deserialize)]
pub(super) struct Question {
    hook_event_name: String,
    pub(super) cwd: PathBuf,
    pub(super) session_id: String,
    tool_name: String,
    tool_input: Map<String, Value>,
    /// A subagent's kind.
    #[serde(default)]
    agent_type: Option<String>,
}

/// What the tool would do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// Run a script.
    Script(String),
    /// Read a file.
    Read(PathBuf),
    /// Look through everything that lies at and beneath a path.
    Search(PathBuf),
    /// Change a file.
    Write(PathBuf),
    /// Fetch something.
    Fetch(Address),
}

/// Where something would be fetched from.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) is_tls: bool,
    pub(super) path: String,
}

impl Question {
    /// Reads standard input.
    pub(super) fn read() -> Result<Self, Failure> {
        let mut text = Vec::new();
        let read = std::io::stdin().lock().take(MAX_QUESTION + 1).read_to_end(&mut text);
        read.map_err(|error| Failure::new(STEP, format!("cannot read the question: {error}")))?;
        if text.len() as u64 > MAX_QUESTION {
            return Err(Failure::new(STEP, format!("the question has more than {MAX_QUESTION} bytes")));
        }
        let question: Self =
            serde_json::from_slice(&text).map_err(|error| Failure::new(STEP, format!("the question is not understood: {error}")))?;
        if question.hook_event_name != "PreToolUse" {
            return Err(Failure::new(STEP, "only questions before a tool is used are answered").with_hint("stockade install claude"));
        }
        if !question.cwd.is_absolute() {
            return Err(Failure::new(STEP, "the question names no directory"));
        }
        Ok(question)
    }

    /// What rules call the agent.
    pub(super) fn name(&self) -> &str {
        self.agent_type.as_deref().unwrap_or(MAIN)
    }

    /// What the tool would do.
    pub(super) fn deed(&self) -> Result<Deed, Failure> {
        match self.tool_name.as_str() {
            "Bash" => Ok(Deed::Script(self.text("command")?.to_owned())),
            "Read" => Ok(Deed::Read(self.path("file_path")?)),
            "Grep" | "LS" => Ok(Deed::Search(self.searched()?)),
            "Glob" => Ok(Deed::Search(self.matched()?)),
            "Write" | "Edit" | "MultiEdit" => Ok(Deed::Write(self.path("file_path")?)),
            "NotebookEdit" => Ok(Deed::Write(self.path("notebook_path")?)),
            "WebFetch" => Ok(Deed::Fetch(Address::parse(self.text("url")?)?)),
            other => {
                let message = format!("nobody here knows what the tool `{}` does", stockade_core::escape::escape(other));
                Err(Failure::new(STEP, message).with_hint("stockade install claude"))
            }
        }
    }

    /// The input of the tool with another command; the rest as it was.
    pub(super) fn with_command(&self, command: String) -> Value {
        let mut input = self.tool_input.clone();
        input.insert("command".to_owned(), Value::String(command));
        Value::Object(input)
    }

    fn text(&self, name: &str) -> Result<&str, Failure> {
        let text = self.tool_input.get(name).and_then(Value::as_str).filter(|text| !text.contains('\0'));
        text.ok_or_else(|| Failure::new(STEP, format!("the tool's `{name}` is missing, or no text")))
    }

    /// A file, in its plain form.
    fn path(&self, name: &str) -> Result<PathBuf, Failure> {
        let text = self.text(name)?;
        // The tools take blanks around a path away and put the home directory in for `~`; a file that is really called so is not worth the doubt.
        if text.trim() != text || text == "~" || text.starts_with("~/") {
            return Err(Failure::new(STEP, format!("the tool's `{name}` can be read in two ways: write the whole path")));
        }
        Ok(PathBuf::from(lexical(self.directory()?, text)))
    }

    fn directory(&self) -> Result<&str, Failure> {
        self.cwd.to_str().ok_or_else(|| Failure::new(STEP, "the directory's name is not text"))
    }

    /// Where the tool looks: where it was told, else where it is.
    fn searched(&self) -> Result<PathBuf, Failure> {
        match self.tool_input.get("path") {
            None | Some(Value::Null) => Ok(PathBuf::from(lexical(self.directory()?, "."))),
            Some(_) => self.path("path"),
        }
    }

    /// Where a pattern begins to look: the directory before the first sign that stands for others. What follows may not climb out of it.
    fn matched(&self) -> Result<PathBuf, Failure> {
        let (base, pattern) = (self.searched()?, self.text("pattern")?);
        let (plain, rest) = pattern.find(SIGNS).map_or((pattern, ""), |at| pattern.split_at(at));
        if rest.contains("..") || pattern.trim() != pattern || pattern.starts_with('~') {
            return Err(Failure::new(STEP, "it cannot be told where the tool's `pattern` leads"));
        }
        let start = match plain.rsplit_once('/') {
            _ if rest.is_empty() => plain,
            Some(("", _)) => "/",
            Some((directory, _)) => directory,
            None => ".",
        };
        let base = base.to_str().ok_or_else(|| Failure::new(STEP, "the directory's name is not text"))?;
        Ok(PathBuf::from(lexical(base, start)))
    }
}

impl Address {
    fn parse(url: &str) -> Result<Self, Failure> {
        let bad = || Failure::new(STEP, "the tool's `url` is not an address of the web");
        let (is_tls, rest) = match url.split_once("://").ok_or_else(bad)? {
            (scheme, rest) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            // The tool makes it HTTPS, but not every host is one that it can.
            (scheme, rest) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            _ => return Err(bad()),
        };
        let (authority, path) = rest.find(['/', '?', '#']).map_or((rest, ""), |at| rest.split_at(at));
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let path = if path.is_empty() { "/".to_owned() } else { path.to_owned() };
        // What could be read as another host by somebody else is none.
        if authority.contains(['@', '\\']) || authority.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(bad());
        }
        let (host, port) = match authority.rsplit_once(':').filter(|(_, port)| !port.contains(']')) {
            Some((host, port)) => (host, port.parse().map_err(|_| bad())?),
            None => (authority, if is_tls { 443 } else { 80 }),
        };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        if host.is_empty() {
            return Err(bad());
        }
        Ok(Self { host, port, is_tls, path })
    }
}

/// The file that a path leads to, whether it is there or not: a link to what is missing leads there too, because writing it makes it.
pub(super) fn real(path: &Path) -> PathBuf {
    let mut led = PathBuf::new();
    let mut rest: Vec<PathBuf> = parts(path);
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part == Path::new("..") {
            led.pop();
            continue;
        }
        // A part that is the root begins anew.
        led.push(part);
        if links < MAX_LINKS
            && let Ok(target) = std::fs::read_link(&led)
        {
            links += 1;
            led.pop();
            rest.extend(parts(&target));
        }
    }
    led
}

/// The parts of a path, last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    path.components().rev().filter(|part| *part != Component::CurDir).map(|part| PathBuf::from(part.as_os_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn question(tool: &str, input: &Value) -> Question {
        serde_json::from_value(json!({
            "hook_event_name": "PreToolUse", "cwd": "/w", "session_id": "s", "tool_name": tool, "tool_input": input, "more": 1,
        }))
        .unwrap()
    }

    #[test]
    fn tools_are_known_by_what_they_do() {
        let deed = |tool: &str, input: Value| question(tool, &input).deed().map_err(|failure| failure.message);
        assert_eq!(deed("Bash", json!({ "command": "ls" })), Ok(Deed::Script("ls".into())));
        assert_eq!(deed("Read", json!({ "file_path": "/w/a/../b" })), Ok(Deed::Read("/w/b".into())));
        assert_eq!(deed("Edit", json!({ "file_path": "c" })), Ok(Deed::Write("/w/c".into())));
        assert_eq!(deed("NotebookEdit", json!({ "notebook_path": "/n" })), Ok(Deed::Write("/n".into())));
        for (tool, input) in [
            ("Read", json!({ "file_path": "~/x" })),
            ("Read", json!({ "file_path": " /etc/shadow" })),
            ("Bash", json!({})),
            ("Bash", json!({ "command": 1 })),
            ("Read", json!({ "file_path": "a\0b" })),
            ("New", json!({})),
        ] {
            assert!(deed(tool, input.clone()).is_err(), "{tool} {input}");
        }
    }

    #[test]
    fn searches_are_known_by_where_they_begin() {
        let begins = |tool: &str, input: Value| question(tool, &input).deed().ok();
        let check = |tool: &str, input: Value, at: &str| assert_eq!(begins(tool, input.clone()), Some(Deed::Search(at.into())), "{input}");
        check("Grep", json!({ "pattern": "x" }), "/w");
        check("Grep", json!({ "pattern": "/etc/*", "path": null }), "/w");
        check("Grep", json!({ "pattern": "x", "path": "../y" }), "/y");
        check("LS", json!({ "path": "/etc" }), "/etc");
        for (pattern, at) in [
            ("**/*.rs", "/w/a"),
            ("src/*/x", "/w/a/src"),
            ("src/x", "/w/a/src/x"),
            ("../*", "/w"),
            ("../../etc/sh*", "/etc"),
            ("/etc/s*", "/etc"),
            ("/*", "/"),
            ("/etc/shadow", "/etc/shadow"),
        ] {
            check("Glob", json!({ "pattern": pattern, "path": "a" }), at);
        }
        for pattern in ["*/../../x", "{a,../b}", "~/.ssh/*", " /etc/*"] {
            assert_eq!(begins("Glob", json!({ "pattern": pattern })), None, "{pattern}");
        }
    }

    #[test]
    fn the_rest_of_the_input_stays() {
        let asked = question("Bash", &json!({ "command": "ls", "timeout": 5 }));
        assert_eq!(asked.with_command("x".into()), json!({ "command": "x", "timeout": 5 }));
    }

    #[test]
    fn addresses_are_read_in_one_way() {
        let address = |url: &str| Address::parse(url).map(|a| (a.host, a.port, a.is_tls, a.path)).ok();
        assert_eq!(address("https://A.b./x?y"), Some(("a.b".into(), 443, true, "/x".into())));
        assert_eq!(address("http://a:8080"), Some(("a".into(), 8080, false, "/".into())));
        assert_eq!(address("https://[::1]:1/"), Some(("[::1]".into(), 1, true, "/".into())));
        assert_eq!(address("https://[::1]/"), Some(("[::1]".into(), 443, true, "/".into())));
        for bad in ["file:///etc/passwd", "a", "https://u@h/", "https://", "https://a b/", "https://a:x/", "https://a\\@b/"] {
            assert_eq!(address(bad), None, "{bad}");
        }
    }

    #[test]
    fn links_on_the_way_are_followed() {
        let root = tempfile::tempdir().unwrap();
        let base = root.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("real")).unwrap();
        std::os::unix::fs::symlink(base.join("real"), base.join("link")).unwrap();
        assert_eq!(real(&base.join("link/new/file")), base.join("real/new/file"));
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, base.join(name)).unwrap();
        link("/nowhere/new", "real/dangling");
        link("../gone/./x", "real/relative");
        link("real/relative", "twice");
        link("round", "round");
        for (name, led) in [("link/dangling", "/nowhere/new".into()), ("twice", base.join("gone/x")), ("link/..", base.clone())] {
            assert_eq!(real(&base.join(name)), led, "{name}");
        }
        assert_eq!(real(&base.join("round")), base.join("round"));
    }
}
