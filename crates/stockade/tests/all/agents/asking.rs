//! Claude Code outside the wall, asking before it acts: what it runs is behind the wall all the same.

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
