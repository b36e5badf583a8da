//! What attackers try: text that hides, files that are written by hand, and the store from inside.

use serde_json::json;

use super::{PASSPHRASE, ask_for, json, request_of, set_credential, tell, with_passphrase};
use crate::wall::as_both;
use crate::wall::ground::finish;

/// I09: what is shown is whole and has no character that hides another.
#[test]
fn hostile_words_are_shown_whole_and_escaped() {
    as_both(|ground| {
        ask_for(ground, "echo");
        let hostile = format!("a\u{1b}[2K\rharmless\nwho         root\u{202e}\u{200b}\t{}; rm -rf /", " ".repeat(20_000));
        let refused = ground.run(&[], &["echo", &hostile]);
        assert_eq!(refused.code, Some(126), "{refused:?}");
        let id = request_of(&refused.stderr);
        let shown = tell(ground, &["approvals", "show", &id]).stdout;
        assert!(shown.contains("a\\u{1b}[2K\\rharmless\\nwho\\u{20}*9 root\\u{202e}\\u{200b}\\t\\u{20}*20000 ; rm -rf /"), "{shown}");
        assert_eq!(shown.lines().filter(|line| line.trim_start().starts_with("who ")).count(), 1, "{shown}");
        for text in [&shown, &tell(ground, &["approvals", "list"]).stdout, &refused.stderr] {
            assert!(text.chars().all(|c| c == '\n' || !(c.is_control() || ['\u{202e}', '\u{200b}'].contains(&c))), "{text:?}");
        }
        let long = "x".repeat(100_000);
        let refused = ground.run(&[], &["echo", &long]);
        assert!(refused.code == Some(126) && refused.stderr.contains("too long to be shown"), "{:?}", refused.stderr);
        assert_eq!(json(ground, &["approvals", "list"])["approvals"].as_array().map(Vec::len), Some(1));
    });
}

/// Changes the store as a process of the same user outside could.
const SQL: &str = "import sqlite3, sys, os
store = sqlite3.connect(os.environ['XDG_STATE_HOME'] + '/stockade/approvals/approvals.db')
store.execute(sys.argv[1]); store.commit()";

#[test]
fn with_a_credential_what_is_written_by_hand_does_not_count() {
    as_both(|ground| {
        set_credential(ground);
        ask_for(ground, "ls");
        let sql = |text: &str| assert_eq!(finish(ground.outside("/usr/bin/python3").args(["-c", SQL, text])).code, Some(0));
        let id = request_of(&ground.run(&[], &["ls"]).stderr);
        let own = tell(ground, &["approvals", "approve", &id]);
        assert!(own.code == Some(125) && own.stderr.contains("passphrase"), "{own:?}");
        sql("UPDATE requests SET state = 'approved', decided = 1, decided_by = 'root', method = 'passphrase'");
        let forged = ground.run(&[], &["ls"]);
        assert!(forged.code == Some(126) && forged.stderr.contains("does not count"), "{forged:?}");
        let id = request_of(&forged.stderr);
        sql(
            "INSERT INTO grants SELECT id, digest, asked, expires, principal, NULL, effect, title, shown, shown_sha256, 0, 'root', 'passphrase', x'00' FROM requests WHERE state = 'pending'",
        );
        assert_eq!(ground.run(&[], &["ls"]).code, Some(126));
        sql("UPDATE requests SET shown = 'harmless' WHERE state = 'pending'");
        let changed = with_passphrase(ground, PASSPHRASE, &["approvals", "approve", &id]);
        assert!(changed.code == Some(125) && changed.stderr.contains("was changed"), "{changed:?}");
        // A credential that cannot be read is never none.
        std::fs::write(ground.state.join("stockade/approvals/approver.json"), "{}").expect("written");
        assert_eq!(ground.run(&[], &["ls"]).code, Some(125));
        assert_eq!(tell(ground, &["approvals", "approve", &id]).code, Some(125));
    });
}

#[test]
fn time_ends_an_approval_and_a_broken_store_runs_nothing() {
    as_both(|ground| {
        ask_for(ground, "ls");
        let sql = |text: &str| assert_eq!(finish(ground.outside("/usr/bin/python3").args(["-c", SQL, text])).code, Some(0));
        let id = request_of(&ground.run(&[], &["ls"]).stderr);
        assert_eq!(tell(ground, &["approvals", "approve", &id]).code, Some(0));
        sql("UPDATE requests SET expires = 1");
        assert_eq!(ground.run(&[], &["ls"]).code, Some(126));
        assert_eq!(json(ground, &["approvals", "show", &id])["state"], "expired");
        // The clock was in the future once: what was approved then is over.
        let id = request_of(&ground.run(&[], &["ls"]).stderr);
        assert_eq!(tell(ground, &["approvals", "approve", &id, "--until", "1h"]).code, Some(0));
        sql("UPDATE store SET latest = latest + 100000");
        assert_eq!(ground.run(&[], &["ls"]).code, Some(126));
        assert_eq!(json(ground, &["grants", "list"])["grants"], json!([]));
        std::fs::write(ground.state.join("stockade/approvals/approvals.db"), "no database at all".repeat(100)).expect("written");
        let broken = ground.run(&[], &["ls"]);
        assert_eq!((broken.code, broken.stdout.as_str()), (Some(125), ""), "{broken:?}");
    });
}

/// I07: nothing inside reaches the store, and `stockade` typed inside finds none.
#[test]
fn the_store_does_not_exist_inside() {
    as_both(|ground| {
        ask_for(ground, "ls");
        let id = request_of(&ground.run(&[], &["ls"]).stderr);
        let store = ground.state.join("stockade/approvals");
        assert!(store.join("approvals.db").is_file());
        let rules = ground.home.join(".config/stockade/policy/rules.cedar");
        std::fs::remove_file(rules).expect("removed");
        for mode in ["overlay", "rw", "ro"] {
            let tried = ground.sh(
                &["--workspace-mode", mode],
                &format!(
                    "ls -a {0} 2>&1; cat {0}/approvals.db 2>&1; echo x > {0}/approvals.db; find / -name approvals.db 2>/dev/null; echo end",
                    store.display()
                ),
            );
            assert!(tried.stdout.ends_with("end\n") && !tried.stdout.contains("SQLite"), "{mode}: {tried:?}");
            assert_eq!(
                tried.stdout.lines().filter(|line| !line.contains("No such file") && !line.contains("Permission denied")).count(),
                1,
                "{tried:?}"
            );
        }
        let state = ground.state.display().to_string();
        let binary = ground.binary.parent().expect("a directory").display().to_string();
        let inside = ground.run(
            &["--mount", &format!("{binary}:/opt/stockade:ro"), "--env", &format!("XDG_STATE_HOME={state}")],
            &["/opt/stockade/stockade", "approvals", "approve", &id],
        );
        assert_ne!(inside.code, Some(0), "{inside:?}");
        assert_eq!(json(ground, &["approvals", "show", &id])["state"], "pending");
    });
}

/// I14: a flood is refused, and the first stays on top.
#[test]
fn a_flood_is_refused() {
    let ground = crate::wall::Ground::new(crate::wall::Who::Ordinary);
    ask_for(&ground, "ls");
    let first = request_of(&ground.run(&[], &["ls"]).stderr);
    let script =
        "for i in $(seq 110); do \"$0\" run -- ls /$i </dev/null 2>&1 | grep -o 'requests wait for a person already'; done | sort -u";
    let flood = crate::wall::ground::finish_within(
        ground.outside("bash").args(["-c", script]).arg(&ground.binary),
        std::time::Duration::from_mins(5),
    );
    assert_eq!(flood.stdout, "requests wait for a person already\n", "{flood:?}");
    let listed = json(&ground, &["approvals", "list"]);
    let all = listed["approvals"].as_array().expect("a list");
    assert_eq!((all.len(), &all[0]["id"]), (100, &json!(first)));
}
