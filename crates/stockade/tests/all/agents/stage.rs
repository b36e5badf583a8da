//! The stage: a scripted model, a repository with a failing test, and ways to run agents there.

use std::io::{BufRead as _, BufReader};
use std::ops::Deref;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::{Value, json};

use crate::Outcome;
use crate::wall::ground::{PATH, finish};
use crate::wall::{Ground, Who};

/// What only the model's server and the caller's environment know.
pub(super) const KEY: &str = "sk-ant-api03-R3alK3yTh4tN0b0dyIns1deM4yEv3rS33-aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6AA";

/// Agents that are on the `PATH`.
const PROGRAMS: [&str; 4] = ["claude", "codex", "gemini", "opencode"];

/// A model, and one user's ground.
pub(super) struct Stage {
    pub(super) ground: Ground,
    pub(super) port: u16,
    log: PathBuf,
    server: Child,
    // Closing it ends the server.
    _input: Option<ChildStdin>,
}

impl Deref for Stage {
    type Target = Ground;
    fn deref(&self) -> &Ground {
        &self.ground
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Stage {
    /// A stage whose model takes these turns.
    #[expect(clippy::disallowed_methods, reason = "the server that agents talk to")]
    pub(super) fn new(who: Who, turns: impl FnOnce(&Path) -> Value) -> Self {
        let ground = Ground::new(who);
        let outside = ground.base.join("outside");
        ground.directory(&outside);
        let (script, log) = (outside.join("script.json"), outside.join("log.jsonl"));
        ground.plant(&script, &turns(&ground.work).to_string(), 0o644);
        let program = outside.join("model.py");
        ground.plant(&program, include_str!("../../../../../tests/agents/model.py"), 0o644);
        let mut server = Command::new("python3")
            .args([&program, &script, &log])
            .uid(who.uid())
            .gid(who.uid())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the model starts");
        let mut line = String::new();
        BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line).expect("the port");
        let input = server.stdin.take();
        Self { ground, port: line.trim().parse().expect("a port"), log, server, _input: input }
    }

    /// A repository with a test that fails, committed.
    pub(super) fn repository(&self) {
        self.file("calc.py", "def add(a, b):\n    return a - b\n");
        self.file("test_calc.py", "import unittest\nfrom calc import add\n\n\nclass Add(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n");
        self.file(".gitignore", "__pycache__/\n");
        self.host("git init -q -b main . && git config user.name host && git config user.email host@example.org && git add -A && git commit -qm first");
    }

    /// `stockade agent run FLAGS -- ARGV`, with a key and the model's address in the caller's environment.
    pub(super) fn command(&self, flags: &[&str], argv: &[&str]) -> Command {
        let words: Vec<&str> = [&["agent", "run"], flags, &["--"], argv].concat();
        let mut command = self.stockade(words);
        command.envs(self.variables());
        command
    }

    /// What is in the environment of whoever runs an agent.
    pub(super) fn variables(&self) -> [(&'static str, String); 4] {
        let programs = PROGRAMS.map(|name| installed(name).join("node_modules/.bin").display().to_string());
        [
            ("PATH", format!("{}:{PATH}", programs.join(":"))),
            ("ANTHROPIC_API_KEY", KEY.to_owned()),
            ("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", self.port)),
            ("MODEL_KEY", KEY.to_owned()),
        ]
    }

    /// Runs an agent to its end.
    pub(super) fn agent(&self, flags: &[&str], argv: &[&str]) -> Outcome {
        finish(&mut self.command(flags, argv))
    }

    /// The same with `--json`; the code and the object.
    pub(super) fn agent_json(&self, flags: &[&str], argv: &[&str]) -> (Option<i32>, Value) {
        let outcome = self.agent(&[&["--json"], flags].concat(), argv);
        let value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
        (outcome.code, value)
    }

    /// `stockade agent` with other words.
    pub(super) fn verb(&self, words: &[&str]) -> Outcome {
        finish(&mut self.stockade([&["agent"], words].concat()))
    }

    /// Codex is told of the model by its own settings.
    pub(super) fn settings_of_codex(&self) {
        let text = format!(
            "model = \"gpt-scripted\"\nmodel_provider = \"scripted\"\n\n[model_providers.scripted]\nname = \"scripted\"\nbase_url = \"http://127.0.0.1:{}/v1\"\n\
             wire_api = \"responses\"\nenv_key = \"MODEL_KEY\"\n",
            self.port
        );
        self.plant(&self.home.join(".codex/config.toml"), &text, 0o600);
        self.plant(&self.home.join(".codex/auth.json"), &json!({"OPENAI_API_KEY": KEY}).to_string(), 0o600);
    }

    /// What reached the model.
    pub(super) fn seen(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// What tools came to, as the agent told the model.
    pub(super) fn results(&self) -> Vec<String> {
        let lists = self.seen();
        let texts = lists.iter().filter_map(|line| line["results"].as_array()).flatten();
        texts.filter_map(|text| text.as_str().map(str::to_owned)).collect()
    }

    /// Every request of an agent had the real key, and nothing that an agent told the model held it.
    pub(super) fn key_was_outside(&self) {
        let seen = self.seen();
        let keys: Vec<&Value> =
            seen.iter().filter(|line| line["tools"].as_array().is_some_and(|tools| !tools.is_empty())).map(|line| &line["keys"]).collect();
        assert!(!keys.is_empty(), "no request: {seen:?}");
        for key in &keys {
            let text = key.to_string();
            assert!(text.contains(KEY), "{text}");
        }
        assert!(self.results().iter().all(|text| !text.contains(KEY)), "{:?}", self.results());
    }
}

/// Where an agent is installed.
#[expect(clippy::disallowed_methods, reason = "where the agents are is the caller's to say")]
pub(super) fn installed(name: &str) -> PathBuf {
    let named = std::env::var_os("STOCKADE_TEST_AGENTS").map(PathBuf::from);
    let path = named.unwrap_or_else(|| panic!("STOCKADE_TEST_AGENTS is not set: `cargo xtask test` installs the agents and sets it"));
    let path = path.join(name);
    assert!(path.is_dir(), "no {}", path.display());
    path
}
