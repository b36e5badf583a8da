//! The official Inspector's two command lines, in both eras: the CLI, which lints the schemas of tools, and `mcpdo`, which holds a connection and
//! answers when the server asks.

use std::process::Command;

use serde_json::{Value, json};

use super::real::installed;
use super::{ASKS, DEVELOPER, OWN_WORD, receipts, rules, verified};
use crate::Outcome;
use crate::wall::ground::finish;
use crate::wall::{Ground, Who};

/// Who runs it in which era.
const ERAS: [(Who, &str); 2] = [(Who::Ordinary, "legacy"), (Who::Root, "modern")];

/// A program of the Inspector's, as this user, with a Node that is young enough.
fn program(ground: &Ground, path: &str) -> Command {
    let mut command = ground.outside(installed("node").join("node_modules/node/bin/node"));
    command.arg(installed("inspector").join("node_modules/@modelcontextprotocol/inspector").join(path));
    // No keychain of anybody's is asked.
    command.env("MCP_INSPECTOR_SECRET_STORE", "file");
    command
}

/// The Inspector's CLI, with a server of its own.
fn inspector(ground: &Ground, era: &str, words: &[&str]) -> Outcome {
    let mut command = program(ground, "clients/launcher/build/index.js");
    command.args(["--cli", "--quiet", "--format", "json", "--protocol-era", era]).args(words);
    for (name, value) in [("HOME", &ground.home), ("XDG_STATE_HOME", &ground.state)] {
        command.arg("-e").arg(format!("{name}={}", value.display()));
    }
    finish(command.arg("--").arg(&ground.binary).arg("mcp"))
}

/// `mcpdo`, and its daemon until the value goes.
struct Mcpdo<'a> {
    ground: &'a Ground,
    era: &'static str,
}

impl<'a> Mcpdo<'a> {
    fn connected(ground: &'a Ground, era: &'static str) -> Self {
        let env = json!({"HOME": ground.home, "XDG_STATE_HOME": ground.state});
        let server = json!({"command": ground.binary, "args": ["mcp"], "env": env, "protocolEra": era});
        let config = ground.base.join("servers.json");
        ground.plant(&config, &json!({"mcpServers": {era: server}}).to_string(), 0o644);
        let mcpdo = Self { ground, era };
        let (code, said) = mcpdo.say(&["connect", era, "--config", config.to_str().expect("text")]);
        assert_eq!((code, &said["protocolEra"]), (Some(0), &json!(era)), "{said}");
        mcpdo
    }

    fn say(&self, words: &[&str]) -> (Option<i32>, Value) {
        let outcome = finish(program(self.ground, "clients/mcpdo/build/mcp-bin.js").args(words).args(["--format", "json"]));
        let said = serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{words:?}: {error}: {outcome:?}"));
        (outcome.code, said)
    }

    /// A script that somebody is asked about: the question, which must be one.
    fn asked(&self, script: &str) -> Value {
        let (code, said) = self.say(&[&format!("@{}", self.era), "tools/call", "shell", &format!("script:={}", json!(script))]);
        let pending = said["elicitationPending"].clone();
        assert!(code == Some(0) && pending["message"].as_str().is_some_and(|text| text.contains(script)), "{code:?} {said}");
        pending
    }

    fn answers(&self, question: &Value, how: &str) -> (Option<i32>, Value) {
        self.say(&["elicitation/respond", question["elicitationId"].as_str().expect("an id"), how])
    }
}

impl Drop for Mcpdo<'_> {
    fn drop(&mut self) {
        // One that never started has nothing to stop.
        let _ = finish(program(self.ground, "clients/mcpdo/build/mcp-bin.js").args(["daemon", "stop"]));
    }
}

#[test]
fn the_inspector_lists_calls_and_finds_no_error_in_any_schema() {
    for (who, era) in ERAS {
        let ground = Ground::new(who);
        rules(&ground, DEVELOPER);
        let listed = inspector(&ground, era, &["--strict", "--method", "tools/list"]);
        assert_eq!(listed.code, Some(0), "{era}: {listed:?}");
        let value: Value = serde_json::from_str(&listed.stdout).unwrap_or_else(|error| panic!("{era}: {error}: {listed:?}"));
        let names: Vec<&str> =
            value["result"]["tools"].as_array().expect("tools").iter().filter_map(|tool| tool["name"].as_str()).collect();
        assert!(names.starts_with(&["shell", "shell_read_only", "read_file"]), "{era}: {names:?}");
        let called =
            inspector(&ground, era, &["--method", "tools/call", "--tool-name", "shell", "--tool-arg", "script=echo hi > f; cat f"]);
        let value: Value = serde_json::from_str(&called.stdout).unwrap_or_else(|error| panic!("{era}: {error}: {called:?}"));
        let result = &value["result"]["structuredContent"];
        assert_eq!((called.code, &result["stdout"], &result["exit_code"]), (Some(0), &json!("hi\n"), &json!(0)), "{era}: {called:?}");
        // What is denied is a result that says so, and the CLI's own code for one.
        let denied = inspector(&ground, era, &["--method", "tools/call", "--tool-name", "shell", "--tool-arg", "script=git push"]);
        assert!(denied.code == Some(5) && denied.stdout.contains("agents-do-not-push"), "{era}: {denied:?}");
        verified(&ground);
    }
}

#[test]
fn mcpdo_is_asked_and_its_yes_and_its_no_count() {
    for (who, era) in ERAS {
        let ground = Ground::new(who);
        rules(&ground, &format!("{ASKS}{OWN_WORD}"));
        let mcpdo = Mcpdo::connected(&ground, era);
        let question = mcpdo.asked("touch yes");
        let expected = if era == "modern" { "input-required" } else { "server-request" };
        assert_eq!(question["origin"], expected, "{era}: {question}");
        let (code, ran) = mcpdo.answers(&question, "approve:=true");
        let result = &ran["structuredContent"];
        assert_eq!((code, &result["exit_code"]), (Some(0), &json!(0)), "{era}: {ran}");
        assert_eq!(result["changes"], json!([{"path": "yes", "kind": "added"}]), "{era}: {ran}");
        for (script, how) in [("touch no", "--decline"), ("touch never", "approve:=false")] {
            let (code, refused) = mcpdo.answers(&mcpdo.asked(script), how);
            let approval = &refused["structuredContent"]["approval"];
            assert_eq!(
                (code, &approval["state"], &approval["method"]),
                (Some(5), &json!("denied"), &json!("elicitation")),
                "{era}: {refused}"
            );
        }
        let (_, files) = mcpdo.say(&[&format!("@{era}"), "tools/call", "list_dir", "path:=\".\""]);
        assert_eq!(files["structuredContent"]["entries"].as_array().map(Vec::len), Some(1), "{era}: {files}");
        drop(mcpdo);
        let ran: Vec<Value> = receipts(&ground).into_iter().filter(|one| one["kind"] == "outcome" && one["approval"].is_object()).collect();
        assert!(ran.len() == 1 && ran[0]["approval"]["method"] == "elicitation", "{era}: {ran:#?}");
        verified(&ground);
    }
}
