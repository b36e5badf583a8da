//! The approver credential: set up, asked for, guessed at.

use serde_json::{Value, json};

use super::{PASSPHRASE, json, rules, set_credential, tell, with_passphrase};
use crate::wall::ground::{finish, finish_with};
use crate::wall::{Ground, as_both};

const LS_ONLY: &str = "@id(\"ls\")\npermit (principal, action == Stockade::Action::\"exec\", resource == Stockade::Program::\"ls\");\n";

/// What the last receipt of a verb says of who did it.
fn method(ground: &Ground, verb: &str) -> Value {
    let listed = json(ground, &["receipts", "list"]);
    let found = listed["receipts"].as_array().expect("a list").iter().rfind(|one| one["capability"] == verb).cloned();
    let id = found.unwrap_or_else(|| panic!("no receipt of {verb} in {listed}"))["receipt_id"].as_str().expect("an id").to_owned();
    let shown = json(ground, &["receipts", "show", &id]);
    let text = shown.to_string();
    let known = ["\"method\":\"same-uid\"", "\"method\":\"passphrase\""].into_iter().filter(|method| text.contains(method));
    json!(known.map(|method| method.split('"').nth(3).expect("a word")).collect::<Vec<_>>())
}

#[test]
fn where_none_is_set_receipts_say_same_uid() {
    as_both(|ground| {
        assert_eq!(json(ground, &["approvals", "credential", "status"])["credential"], Value::Null);
        let kept = finish_with(&mut ground.stockade(["secret", "set", "TOKEN"]), b"a-value-of-some-length\n");
        assert_eq!(kept.code, Some(0), "{kept:?}");
        assert_eq!(method(ground, "stockade.secret.set"), json!(["same-uid"]));
        assert_eq!(tell(ground, &["approvals", "credential", "remove"]).code, Some(125));
    });
}

#[test]
fn where_one_is_set_only_its_passphrase_changes_what_is_trusted() {
    as_both(|ground| {
        let short = finish_with(&mut ground.stockade(["approvals", "credential", "set"]), b"short\n");
        assert!(short.code == Some(125) && short.stderr.contains("fewer than 8"), "{short:?}");
        set_credential(ground);
        assert!(json(ground, &["approvals", "credential", "status"])["credential"]["key"].is_string());
        rules(ground, LS_ONLY);
        ground.file(
            ".stockade/policy/project.cedar",
            "permit (principal, action == Stockade::Action::\"exec\", resource == Stockade::Program::\"touch\");",
        );
        ground.file("demo/pack.toml", "name = \"demo\"\nversion = \"1.0.0\"\ndescription = \"A demonstration.\"\npublisher = \"acme\"\n");
        ground.file(
            "demo/capabilities/demo.echo.toml",
            "name = \"demo.echo\"\ndescription = \"Say.\"\neffect = \"read\"\nprogram = \"echo\"\nargs = [\"x\"]\n[[examples]]\ninput = {}\nargv = [\"echo\", \"x\"]\n",
        );
        let key = "11".repeat(32);
        let guarded: [&[&str]; 7] = [
            &["trust", "project"],
            &["trust", "project", "--remove"],
            &["trust", "add", "acme", &key],
            &["policy", "allow", "--", "touch", "x"],
            &["secret", "remove", "TOKEN"],
            &["pack", "install", "demo", "--unsigned", "--yes"],
            &["approvals", "credential", "remove"],
        ];
        for words in guarded {
            let refused = tell(ground, words);
            assert!(refused.code == Some(125) && refused.stderr.contains("passphrase"), "{words:?}: {refused:?}");
        }
        let secret = finish_with(&mut ground.stockade(["secret", "set", "TOKEN"]), b"a-value-of-some-length\n");
        assert!(secret.code == Some(125) && secret.stderr.contains("passphrase"), "{secret:?}");
        assert_eq!(json(ground, &["secret", "list"])["secrets"], json!([]));
        assert_eq!(ground.run(&[], &["touch", "x"]).code, Some(126));
        let trusted = with_passphrase(ground, PASSPHRASE, &["trust", "project"]);
        assert_eq!(trusted.code, Some(0), "{trusted:?}");
        assert_eq!(method(ground, "stockade.trust.project"), json!(["passphrase"]));
        assert_eq!(ground.run(&[], &["touch", "x"]).code, Some(0));
        let installed = with_passphrase(ground, PASSPHRASE, &["pack", "install", "demo", "--unsigned", "--yes"]);
        assert_eq!(installed.code, Some(0), "{installed:?}");
        // What only looks is free.
        for words in [["trust", "list"], ["secret", "list"], ["approvals", "list"], ["grants", "list"]] {
            assert_eq!(tell(ground, &words).code, Some(0), "{words:?}");
        }
        let gone = with_passphrase(ground, PASSPHRASE, &["approvals", "credential", "remove"]);
        assert_eq!(gone.code, Some(0), "{gone:?}");
        assert_eq!(tell(ground, &["trust", "project", "--remove"]).code, Some(0));
        // The passphrase is nowhere.
        let found = ground.host(&format!("grep -rl '{PASSPHRASE}' \"$XDG_STATE_HOME\" \"$HOME\" || true"));
        assert_eq!(found, "");
    });
}

#[test]
fn where_one_is_set_a_starter_policy_needs_it() {
    as_both(|ground| {
        set_credential(ground);
        let (policy, settings) = (ground.home.join(".config/stockade/policy/stockade.cedar"), ground.home.join(".claude/settings.json"));
        for words in [&["init"][..], &["init", "--preset", "ci"], &["install", "claude"], &["install", "codex"]] {
            let refused = tell(ground, words);
            assert!(refused.code == Some(125) && refused.stderr.contains("passphrase"), "{words:?}: {refused:?}");
            assert!(!policy.exists() && !settings.exists(), "{words:?}");
        }
        let free = tell(ground, &["install", "claude", "--dry-run"]);
        assert_eq!(free.code, Some(0), "{free:?}");
        let written = with_passphrase(ground, PASSPHRASE, &["install", "claude"]);
        assert!(written.code == Some(0) && policy.exists() && settings.exists(), "{written:?}");
        assert_eq!(method(ground, "stockade.install"), json!(["passphrase"]));
        assert_eq!(tell(ground, &["install", "claude", "--uninstall"]).code, Some(0));
        std::fs::remove_file(&policy).expect("the policy");
        let written = with_passphrase(ground, PASSPHRASE, &["init"]);
        assert!(written.code == Some(0) && policy.exists(), "{written:?}");
        assert_eq!(method(ground, "stockade.init"), json!(["passphrase"]));
        // Where rules are there already, it writes none.
        assert_eq!(tell(ground, &["install", "claude"]).code, Some(0));
    });
}

#[test]
fn guesses_are_counted_and_another_descriptor_is_no_help() {
    as_both(|ground| {
        set_credential(ground);
        for _ in 0..3 {
            let wrong = with_passphrase(ground, "wrong horse battery", &["trust", "add", "acme", &"11".repeat(32)]);
            assert!(wrong.code == Some(125) && wrong.stderr.contains("does not fit"), "{wrong:?}");
        }
        let slow = with_passphrase(ground, PASSPHRASE, &["trust", "add", "acme", &"11".repeat(32)]);
        assert!(slow.code == Some(125) && slow.stderr.contains("too often"), "{slow:?}");
        for wrong in [PASSPHRASE, "99", "-1", "/etc/passwd"] {
            let refused = finish(ground.stockade(["trust", "project"]).env("STOCKADE_APPROVER_FD", wrong));
            assert_eq!(refused.code, Some(125), "{refused:?}");
            assert!(!refused.stderr.contains(PASSPHRASE), "{refused:?}");
        }
    });
}
