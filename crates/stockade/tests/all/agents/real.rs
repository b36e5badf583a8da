//! The real agents at normal work: they read, edit, run tests and commit; what they did comes back by `apply`, and nothing else.

use serde_json::{Value, json};

use super::{KEY, Stage};
use crate::wall::Who;

/// What the agents do with their shell.
const WORK: &str = "python3 -m unittest -q 2>&1 && git add -A && git commit -qm 'add adds' && git log --oneline | wc -l";

fn both(test: impl Fn(Who)) {
    for who in [Who::Root, Who::Ordinary] {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(who)));
        assert!(result.is_ok(), "as {who:?}: see above");
    }
}

/// The host's repository before and after, as git has it.
fn history(stage: &Stage) -> String {
    // Looking must not touch the index, which the agent changes too.
    stage.host("git log --format=%s; git --no-optional-locks status --porcelain; cat calc.py")
}

/// Brings the work of the agent named `fix` back and looks at it.
fn comes_back(stage: &Stage) {
    assert_eq!(history(stage), "first\ndef add(a, b):\n    return a - b\n", "nothing came before it was applied");
    let diff = stage.verb(&["diff", "fix"]);
    assert!(diff.code == Some(0) && diff.stdout.contains("+    return a + b"), "{diff:?}");
    let applied = stage.verb(&["apply", "fix"]);
    assert_eq!(applied.code, Some(0), "{applied:?}");
    assert_eq!(history(stage), "add adds\nfirst\ndef add(a, b):\n    return a + b\n");
    stage.host("git fsck --strict && python3 -m unittest -q");
    let again = stage.verb(&["apply", "fix"]);
    assert!(again.code == Some(125) && again.stderr.contains("no changes"), "{again:?}");
}

#[test]
fn claude_code_works_and_its_work_comes_back() {
    both(|who| {
        let stage = Stage::new(who, |work| {
            let file = work.join("calc.py");
            json!([
                {"call": "Bash", "with": {"command": "echo \"key=$ANTHROPIC_API_KEY\"; id -u; cat /proc/self/status | grep -i seccomp:"}},
                {"call": "Read", "with": {"file_path": file}},
                {"call": "Edit", "with": {"file_path": file, "old_string": "a - b", "new_string": "a + b"}},
                {"call": "Bash", "with": {"command": WORK}},
                {"say": "The test passes."},
            ])
        });
        stage.repository();
        stage.plant(&stage.home.join(".claude/.credentials.json"), &json!({"claudeAiOauth": {"accessToken": KEY}}).to_string(), 0o600);
        let argv = ["claude", "-p", "fix the failing test", "--dangerously-skip-permissions", "--output-format", "json"];
        let outcome = stage.agent(&["--name", "fix"], &argv);
        assert_eq!(outcome.code, Some(0), "{outcome:?} {:?}", stage.seen());
        let said: Value = serde_json::from_str(outcome.stdout.trim()).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
        assert_eq!(said["result"], "The test passes.", "{said}");
        let results = stage.results();
        assert!(results[0].contains("key=sk-ant-api03-") && results[0].contains("Seccomp:\t2"), "{results:?}");
        assert!(!results[0].contains("\n0\n"), "not root inside: {results:?}");
        stage.key_was_outside();
        for words in
            ["Claude Code ended with code 0", "tokens: 500 read, 100 written, 35 from cache", "reached 127.0.0.1:", "stockade agent diff"]
        {
            assert!(outcome.stderr.contains(words), "{words}: {}", outcome.stderr);
        }
        assert!(!outcome.stderr.contains("refused"), "{}", outcome.stderr);
        comes_back(&stage);
    });
}

#[test]
fn codex_works_and_its_work_comes_back() {
    both(|who| {
        let call = |command: &str| json!({"call": "exec_command", "with": {"cmd": command}});
        let stage = Stage::new(who, |_| {
            json!([
                call("echo \"key=$MODEL_KEY\"; id -u; cat ~/.codex/auth.json"),
                call("sed -i 's/a - b/a + b/' calc.py && cat calc.py"),
                call(WORK),
                {"say": "The test passes."},
            ])
        });
        stage.repository();
        stage.settings_of_codex();
        let outcome = stage.agent(&["--name", "fix"], &["codex", "exec", "--json", "fix the failing test"]);
        assert_eq!(outcome.code, Some(0), "{outcome:?} {:?}", stage.seen());
        assert!(outcome.stdout.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{outcome:?}");
        assert!(outcome.stdout.contains("The test passes."), "{outcome:?}");
        let results = stage.results();
        assert!(results[0].contains("key=sk-ant-api03-") && results[0].contains("auth.json"), "{results:?}");
        stage.key_was_outside();
        for words in ["Codex ended with code 0", "tokens: 400 read, 80 written, 28 from cache", "reached 127.0.0.1:"] {
            assert!(outcome.stderr.contains(words), "{words}: {}", outcome.stderr);
        }
        comes_back(&stage);
    });
}

#[test]
fn an_agent_with_a_name_goes_on_with_its_conversation() {
    let stage = Stage::new(Who::Ordinary, |_| json!([{"say": "I note the word heron."}, {"say": "It was heron."}]));
    stage.repository();
    stage.settings_of_codex();
    let claude = |name: &str, words: &[&str]| stage.agent(&["--name", name], &[&["claude", "-p"], words].concat());
    let first = claude("talk", &["note the word heron"]);
    assert_eq!((first.code, first.stdout.as_str()), (Some(0), "I note the word heron.\n"), "{first:?}");
    let second = claude("talk", &["--continue", "which word was it?"]);
    assert_eq!((second.code, second.stdout.as_str()), (Some(0), "It was heron.\n"), "{second:?}");
    let said = || {
        let seen = stage.seen();
        let last = seen.iter().rfind(|line| line["tools"].as_array().is_some_and(|tools| !tools.is_empty()));
        last.map(|line| line["said"].to_string()).unwrap_or_default()
    };
    assert!(said().contains("note the word heron") && said().contains("I note the word heron."), "{}", said());
    claude("other", &["--continue", "which word was it?"]);
    assert!(said().contains("which word was it?") && !said().contains("heron"), "another name knows nothing: {}", said());
}
