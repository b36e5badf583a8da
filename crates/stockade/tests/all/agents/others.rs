//! The real Gemini CLI and the real OpenCode at work: that their profiles are right. What holds agents is tested with the others.

use serde_json::{Value, json};

use super::{KEY, Stage};
use crate::Outcome;
use crate::wall::Who;
use crate::wall::ground::finish_within;

const WORK: &str = "echo key=$GEMINI_API_KEY$ANTHROPIC_API_KEY; sed -i 's/a - b/a + b/' calc.py && python3 -B -m unittest -q 2>&1";

fn came_to(stage: &Stage, outcome: &Outcome, title: &str, tokens: &str) {
    assert!(outcome.code == Some(0) && outcome.stdout.contains("The test passes."), "{outcome:?} {:?}", stage.seen());
    let results = stage.results();
    assert!(results[0].contains("key=") && results[0].contains("OK") && !results[0].contains(KEY), "{results:?}");
    stage.key_was_outside();
    for words in [&format!("{title} ended with code 0"), tokens, "reached 127.0.0.1:"] {
        assert!(outcome.stderr.contains(words), "{words}: {}", outcome.stderr);
    }
    let applied = stage.verb(&["apply", "fix"]);
    assert_eq!((applied.code, stage.read("calc.py").as_str()), (Some(0), "def add(a, b):\n    return a + b\n"), "{applied:?}");
}

#[test]
fn gemini_works_and_its_work_comes_back() {
    let stage =
        Stage::new(Who::Ordinary, |_| json!([{"call": "run_shell_command", "with": {"command": WORK}}, {"say": "The test passes."}]));
    stage.repository();
    let argv = ["gemini", "--yolo", "-m", "gemini-2.5-flash", "-p", "fix the failing test"];
    let mut command = stage.command(&["--name", "fix"], &argv);
    command.env("GEMINI_API_KEY", KEY).env("GOOGLE_GEMINI_BASE_URL", format!("http://127.0.0.1:{}", stage.port));
    let outcome = finish_within(&mut command, std::time::Duration::from_mins(2));
    assert!(!outcome.stderr.contains("refused"), "it wants more than its profile gives: {}", outcome.stderr);
    came_to(&stage, &outcome, "Gemini CLI", "tokens: 200 read, 40 written, 14 from cache");
}

#[test]
fn opencode_works_and_its_work_comes_back() {
    let call = json!({"call": "bash", "with": {"command": WORK, "description": "mends the test"}});
    let stage = Stage::new(Who::Ordinary, |_| json!([call, {"say": "The test passes."}]));
    stage.repository();
    let settings: Value = json!({
        "model": "anthropic/claude-sonnet-4-5",
        "provider": {"anthropic": {"options": {"baseURL": format!("http://127.0.0.1:{}/v1", stage.port)}}},
    });
    stage.plant(&stage.home.join(".config/opencode/opencode.json"), &settings.to_string(), 0o600);
    let bound = format!("ANTHROPIC_API_KEY@127.0.0.1:{}", stage.port);
    let mut command = stage.command(&["--name", "fix", "--secret", &bound], &["opencode", "run", "fix the failing test"]);
    let outcome = finish_within(&mut command, std::time::Duration::from_mins(2));
    // It also has a title made. It looks for plugins at the package registry and does without.
    came_to(&stage, &outcome, "OpenCode", "tokens: 300 read, 60 written, 21 from cache");
}
