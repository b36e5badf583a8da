//! Agents that people write: the scripts of `examples/agent-sdk`, with the real Claude Agent SDK for Python and for TypeScript. The whole script
//! is behind the wall: the SDK, the Claude Code that it starts, and the tools that the script itself brings along.

use serde_json::json;

use super::stage::installed;
use super::{KEY, Stage};
use crate::Outcome;
use crate::wall::Who;
use crate::wall::ground::finish;

const PYTHON: &str = include_str!("../../../../../examples/agent-sdk/fix.py");
const TYPESCRIPT: &str = include_str!("../../../../../examples/agent-sdk/fix.mjs");

/// A model that uses a tool of the script's own, then mends the test.
fn stage(who: Who) -> Stage {
    let stage = Stage::new(who, |work| {
        let file = work.join("calc.py");
        json!([
            {"call": "mcp__own__shout", "with": {"word": "quiet"}},
            {"call": "Bash", "with": {"command": "echo \"key=$ANTHROPIC_API_KEY\"; cat ~/.ssh/id /proc/*/environ 2>&1 | tr '\\0' '\\n'"}},
            {"call": "Read", "with": {"file_path": file}},
            {"call": "Edit", "with": {"file_path": file, "old_string": "a - b", "new_string": "a + b"}},
            {"call": "Bash", "with": {"command": "python3 -B -m unittest -q 2>&1"}},
            {"say": "The test passes."},
        ])
    });
    stage.plant(&stage.home.join(".ssh/id"), KEY, 0o600);
    stage.repository();
    stage
}

/// What must have come of it.
fn came_to(stage: &Stage, outcome: &Outcome) {
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "The test passes.\n"), "{outcome:?} {:?}", stage.seen());
    let results = stage.results();
    assert!(results[0].contains("QUIET"), "{results:?}");
    assert!(results[1].contains("key=sk-ant-api03-") && results[4].contains("OK"), "{results:?}");
    stage.key_was_outside();
    assert!(outcome.stderr.contains("Claude Code ended with code 0") && !outcome.stderr.contains("refused"), "{}", outcome.stderr);
    assert!(stage.read("calc.py").contains("a - b"), "nothing came before it was applied");
    let applied = stage.verb(&["apply", "fix"]);
    assert_eq!((applied.code, stage.read("calc.py").as_str()), (Some(0), "def add(a, b):\n    return a + b\n"), "{applied:?}");
}

#[test]
fn a_script_with_the_agent_sdk_for_python_runs_whole_behind_the_wall() {
    let stage = stage(Who::Ordinary);
    stage.file("fix.py", PYTHON);
    // An environment outside the workspace, by its interpreter alone.
    let python = installed("python-claude-agent-sdk").join("bin/python");
    let argv = [python.to_str().expect("a path"), "fix.py", "fix the failing test"];
    let outcome = stage.agent(&["--profile", "claude", "--name", "fix", "--env", "ENABLE_TOOL_SEARCH=false"], &argv);
    came_to(&stage, &outcome);
}

#[test]
fn a_script_with_the_agent_sdk_for_typescript_runs_whole_behind_the_wall() {
    let stage = stage(Who::Root);
    stage.file("fix.mjs", TYPESCRIPT);
    // As if it had been installed in the workspace, without hundreds of megabytes there.
    let modules = installed("claude-agent-sdk").join("node_modules");
    std::os::unix::fs::symlink(&modules, stage.work.join("node_modules")).expect("linked");
    let mount = format!("{0}:{0}:ro", modules.display());
    let flags = ["--profile", "claude", "--name", "fix", "--mount", &mount, "--env", "ENABLE_TOOL_SEARCH=false"];
    let outcome = finish(&mut stage.command(&flags, &["node", "fix.mjs", "fix the failing test"]));
    came_to(&stage, &outcome);
}

#[test]
fn the_guide_shows_the_scripts_that_are_tested() {
    let guide = include_str!("../../../../../docs/guides/agents.md");
    for script in [PYTHON, TYPESCRIPT] {
        // Without its heading: how to run it is said around it.
        let body = script.split_once("\nimport ").map_or_else(|| script.to_owned(), |(_, rest)| format!("import {rest}"));
        assert!(guide.contains(&body), "docs/guides/agents.md does not show:\n{body}");
    }
}
