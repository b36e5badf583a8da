//! Claude Code and Codex outside the wall: what they run is behind it all the same.

use serde_json::json;

use super::Stage;
use crate::wall::Who;
use crate::wall::ground::finish;

#[test]
fn claude_code_asks_before_it_acts() {
    for who in [Who::Root, Who::Ordinary] {
        let stage = Stage::new(who, |work| {
            json!([
                {"call": "Bash", "with": {"command": "cat ~/.ssh/id; grep -i seccomp: /proc/self/status; echo done > made"}},
                {"call": "Bash", "with": {"command": "git push origin main"}},
                {"call": "Write", "with": {"file_path": work.join(".git/hooks/pre-commit"), "content": "#!/bin/sh\n"}},
                {"call": "Write", "with": {"file_path": work.join("note.txt"), "content": "hello\n"}},
                {"say": "Done."},
            ])
        });
        stage.repository();
        stage.plant(&stage.home.join(".ssh/id"), "PRIVATE", 0o600);
        let installed = finish(&mut stage.stockade(["install", "claude"]));
        assert_eq!(installed.code, Some(0), "{installed:?}");
        let mut claude = stage.outside("bash");
        claude.envs(stage.variables()).args(["-c", "exec claude -p work --permission-mode acceptEdits --output-format json"]);
        let outcome = finish(&mut claude);
        assert_eq!(outcome.code, Some(0), "{who:?} {outcome:?} {:?}", stage.seen());
        let results = stage.results();
        assert!(results[0].contains("Seccomp:\t2") && !results[0].contains("PRIVATE"), "{who:?} {results:?}");
        assert_eq!(stage.read("made"), "done\n", "{who:?}");
        assert!(results[1].contains("push yourself"), "{who:?} {results:?}");
        assert!(results[2].contains("outside the wall") && !stage.work.join(".git/hooks/pre-commit").exists(), "{who:?} {results:?}");
        assert_eq!(stage.read("note.txt"), "hello\n", "{who:?} {results:?}");
    }
}

#[test]
fn codex_has_no_shell_but_the_one_behind_the_wall() {
    for who in [Who::Root, Who::Ordinary] {
        let shell = |script: &str| json!({"call": "mcp__stockade.shell", "with": {"script": script}});
        let stage = Stage::new(who, |work| {
            let escape = format!("echo out > {}", work.join("escaped").display());
            json!([
                shell("cat ~/.ssh/id; grep -i seccomp: /proc/self/status; echo done > made"),
                shell("cat made"),
                shell("git push origin main"),
                {"call": "exec_command", "with": {"cmd": escape}},
                {"call": "shell", "with": {"command": ["bash", "-c", escape]}},
                {"say": "Done."},
            ])
        });
        stage.repository();
        stage.settings_of_codex();
        stage.plant(&stage.home.join(".ssh/id"), "PRIVATE", 0o600);
        let installed = finish(&mut stage.stockade(["install", "codex"]));
        assert_eq!(installed.code, Some(0), "{installed:?}");
        let mut codex = stage.outside("bash");
        codex.envs(stage.variables()).args(["-c", "exec codex exec --json work < /dev/null"]);
        let outcome = finish(&mut codex);
        assert_eq!(outcome.code, Some(0), "{who:?} {outcome:?} {:?}", stage.seen());
        assert!(outcome.stdout.contains("Done."), "{who:?} {outcome:?}");
        let results = stage.results();
        assert!(results[0].contains("Seccomp:\\t2") && !results[0].contains("PRIVATE"), "{who:?} {results:?}");
        assert!(results[1].contains("done"), "one overlay for all calls: {who:?} {results:?}");
        assert!(results[2].contains("push yourself"), "{who:?} {results:?}");
        assert!(results[3..].iter().all(|result| result.contains("unsupported call")), "{who:?} {results:?}");
        assert!(results.len() == 5 && !stage.work.join("escaped").exists(), "{who:?} {results:?}");
        // It was told nothing else than what is kept for the person.
        let kept = finish(&mut stage.stockade(["--json", "sandbox", "list"]));
        assert!(!stage.work.join("made").exists() && kept.stdout.contains("\"changes\""), "{who:?} {kept:?}");
    }
}
