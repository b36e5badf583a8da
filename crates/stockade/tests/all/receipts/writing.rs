//! What each command leaves.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{all, holds, kinds};
use crate::wall::ground::{finish, finish_with};
use crate::wall::{Ground, as_both};

fn sha256(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut digits, byte| {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

fn is_hex(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[test]
fn a_run_leaves_an_intent_and_an_outcome_that_say_what_happened() {
    as_both(|ground| {
        ground.script("job.sh", "#!/bin/sh\necho out; echo err >&2; echo new > made; rm old; exit 3\n");
        ground.file("old", "x");
        let (code, result) = ground.json(&["--timeout", "60s", "--env", "GREETING=hello"], &["./job.sh", "one", "two words"]);
        assert_eq!(code, 3);
        let found = all(ground);
        assert_eq!(found.iter().map(|receipt| receipt["kind"].clone()).collect::<Vec<_>>(), ["intent", "outcome"]);
        let (intent, outcome) = (&found[0], &found[1]);
        assert_eq!(result["receipt_id"], intent["receipt_id"]);
        assert_eq!(intent["receipt_id"], outcome["receipt_id"]);
        for receipt in [intent, outcome] {
            assert_eq!(receipt["argv"], json!(["./job.sh", "one", "two words"]));
            assert_eq!(receipt["argv_executed"], receipt["argv"]);
            assert_eq!(receipt["policy"], json!({"rule": "no-policy", "verdict": "allow"}));
            assert_eq!(receipt["cwd"], ground.work.to_str().expect("a path"));
            assert_eq!(receipt["sandbox"]["backend"], "jail");
            assert_eq!(receipt["sandbox"]["id"], result["sandbox_id"]);
            assert_eq!(receipt["sandbox"]["limits"]["time_ms"], 60_000);
            assert!(is_hex(&receipt["sandbox"]["spec_digest"]), "{receipt}");
            assert_eq!(receipt["program"]["path"], format!("{}/./job.sh", ground.work.display()));
            assert_eq!(receipt["program"]["sha256"], sha256(ground.read("job.sh")));
            let names = receipt["env_names"].as_array().expect("names");
            assert!(names.contains(&json!("GREETING")) && names.contains(&json!("PATH")), "{receipt}");
            assert!(receipt["principal"]["human"].is_string() && !receipt.to_string().contains("hello"), "names only: {receipt}");
        }
        assert_eq!(intent.get("result"), None);
        assert_eq!(outcome["result"]["exit_code"], 3);
        assert_eq!(outcome["result"]["capture"], "kept");
        assert_eq!(outcome["result"]["stdout_sha256"], sha256("out\n"));
        assert_eq!(outcome["result"]["stderr_sha256"], sha256("err\n"));
        assert_eq!(outcome["sandbox"]["enforcement"]["network"], "enforced");
        let changes = json!([{"path": "made", "kind": "added", "sha256": sha256("new\n")}, {"path": "old", "kind": "deleted"}]);
        assert_eq!(outcome["changes"], changes);
        // What was printed lies beside the ledger under its digest.
        let digest = sha256("out\n");
        let payload = ground.state.join(format!("stockade/receipts/payloads/{}/{}", &digest[..2], &digest[2..]));
        assert_eq!(std::fs::read_to_string(payload).expect("kept"), "out\n");
        assert_eq!(holds(ground), 2);
    });
}

#[test]
fn output_that_goes_by_is_not_captured_and_scripts_are_told_from_what_runs_them() {
    as_both(|ground| {
        let outcome = finish(&mut ground.stockade(["run", "--shell", "echo hi; exit 4"]));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(4), "hi\n"), "{outcome:?}");
        let found = all(ground);
        assert_eq!(found[1]["argv"], json!(["--shell", "echo hi; exit 4"]));
        assert_eq!(found[1]["argv_executed"], json!(["bash", "-c", "echo hi; exit 4"]));
        assert!(found[1]["program"]["path"].as_str().is_some_and(|path| path.ends_with("/bash")), "{}", found[1]);
        assert_eq!(found[1]["result"]["capture"], "none");
        assert_eq!((found[1]["result"].get("stdout_sha256"), found[1]["result"]["exit_code"].as_i64()), (None, Some(4)));
    });
}

#[test]
fn what_cannot_start_or_is_ended_says_so() {
    as_both(|ground| {
        assert_eq!(ground.run(&[], &["no-such-program-anywhere"]).code, Some(127));
        assert_eq!(ground.run(&["--timeout", "300ms"], &["sleep", "60"]).code, Some(124));
        assert_eq!(ground.run(&[], &["bash", "-c", "kill -TERM $$"]).code, Some(143));
        let outcomes: Vec<Value> = all(ground).into_iter().filter(|receipt| receipt["kind"] == "outcome").collect();
        assert!(outcomes[0]["result"]["failure"].as_str().is_some_and(|why| why.contains("no such program")), "{}", outcomes[0]);
        assert_eq!(outcomes[0].get("program"), None, "nothing was executed");
        assert_eq!(outcomes[1]["result"]["limit"], "time");
        assert_eq!(outcomes[2]["result"]["signal"], 15);
        assert_eq!(holds(ground), 6);
    });
}

#[test]
fn arguments_that_are_not_text_or_too_many_are_kept_as_far_as_they_go() {
    as_both(|ground| {
        use std::os::unix::ffi::OsStrExt as _;
        let mut command = ground.running(&[], &["true"]);
        command.arg(std::ffi::OsStr::from_bytes(b"\xff\xfe")).args((0..3000).map(|number| format!("{number:0>100}")));
        assert_eq!(finish(&mut command).code, Some(0));
        let found = all(ground);
        assert_eq!(found[1]["argv"][1], "\\xff\\xfe");
        assert_eq!(found[1]["argv_cut"]["items"], 3002);
        assert!(is_hex(&found[1]["argv_cut"]["sha256"]) && found[1]["argv"].as_array().is_some_and(|argv| argv.len() < 2000), "cut");
        assert_eq!(holds(ground), 2);
    });
}

#[test]
fn a_denial_leaves_one_record() {
    as_both(|ground| {
        let rules = "@id(\"ls\")\npermit (principal, action == Stockade::Action::\"exec\", resource == Stockade::Program::\"ls\");\n";
        ground.plant(&ground.home.join(".config/stockade/policy/rules.cedar"), rules, 0o600);
        let outcome = ground.run(&["--json"], &["touch", "y"]);
        assert_eq!(outcome.code, Some(126), "{outcome:?}");
        let result: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
        assert_eq!(ground.run(&[], &["ls"]).code, Some(0));
        let found = all(ground);
        assert_eq!(kinds(ground), ["denied", "intent", "outcome"]);
        assert_eq!((&found[0]["receipt_id"], &found[0]["argv"]), (&result["receipt_id"], &json!(["touch", "y"])));
        assert_eq!((&found[0]["policy"]["verdict"], &found[0]["policy"]["rule"]), (&json!("deny"), &json!("default-deny")));
        assert_eq!(found[1]["policy"]["rule"], "ls");
        assert!(is_hex(&found[0]["policy"]["digest"]) && found[0]["policy"]["digest"] == found[1]["policy"]["digest"]);
    });
}

#[test]
fn what_is_done_to_a_created_sandbox_is_written_down() {
    as_both(|ground| {
        let sandbox = |words: &[&str]| finish(&mut ground.stockade(["sandbox"].iter().chain(words)));
        assert_eq!(sandbox(&["create", "--name", "box"]).code, Some(0));
        let id = all(ground)[1]["sandbox"]["id"].as_str().expect("an id").to_owned();
        assert_eq!(sandbox(&["exec", "box", "--", "sh", "-c", "echo x > made; exit 5"]).code, Some(5));
        let written = finish_with(&mut ground.stockade(["sandbox", "write", "box", "/tmp/f"]), b"y");
        assert_eq!(written.code, Some(0), "{written:?}");
        assert_eq!(sandbox(&["read", "box", "/tmp/f"]).stdout, "y");
        assert_eq!(sandbox(&["apply", "box"]).code, Some(0));
        assert_eq!(ground.read("made"), "x\n");
        assert_eq!(sandbox(&["destroy", "box"]).code, Some(0));
        let found = all(ground);
        let what: Vec<(String, String)> = found
            .iter()
            .map(|receipt| {
                let verb = receipt["capability"].as_str().unwrap_or("exec").trim_start_matches("stockade.").to_owned();
                (verb, receipt["kind"].as_str().expect("a kind").to_owned())
            })
            .collect();
        let verbs = ["sandbox.create", "exec", "sandbox.write", "sandbox.read", "sandbox.apply", "sandbox.destroy"];
        let expected: Vec<(String, String)> =
            verbs.iter().flat_map(|verb| ["intent", "outcome"].map(|kind| ((*verb).to_owned(), kind.to_owned()))).collect();
        assert_eq!(what, expected);
        assert!(found[1..].iter().all(|receipt| receipt["sandbox"]["id"] == *id), "{found:?}");
        assert_eq!(found[1]["sandbox"]["enforcement"]["files"], "enforced");
        assert_eq!(found[3]["result"]["exit_code"], 5);
        assert!(found[3]["program"]["path"].as_str().is_some_and(|path| path.ends_with("/sh")) && is_hex(&found[3]["program"]["sha256"]));
        assert_eq!(found[9]["changes"], json!([{"path": "made", "kind": "added", "sha256": sha256("x\n")}]));
        assert_eq!(holds(ground), 12);
    });
}

#[test]
fn changes_of_what_stockade_keeps_are_written_down_before_they_are_made() {
    as_both(|ground| {
        let stockade = |words: &[&str]| finish(&mut ground.stockade(words));
        assert_eq!(stockade(&["config", "set", "sandbox.limits.pids", "100"]).code, Some(0));
        assert_eq!(stockade(&["config", "unset", "sandbox.limits.pids"]).code, Some(0));
        assert_eq!(stockade(&["config", "set", "sandbox.bakend", "jail"]).code, Some(125));
        let value = "a-value-that-must-not-be-seen";
        assert_eq!(finish_with(&mut ground.stockade(["secret", "set", "TOKEN"]), value.as_bytes()).code, Some(0));
        assert_eq!(stockade(&["secret", "remove", "TOKEN"]).code, Some(0));
        assert_eq!(stockade(&["init"]).code, Some(0));
        let found = all(ground);
        assert!(found.iter().all(|receipt| receipt["kind"] == "lifecycle"), "{found:?}");
        let what: Vec<&str> = found.iter().map(|receipt| receipt["capability"].as_str().expect("a verb")).collect();
        let expected = ["config.set", "config.unset", "config.set", "config.set", "secret.set", "secret.remove", "init"];
        assert_eq!(what, expected.map(|verb| format!("stockade.{verb}")));
        assert_eq!(found[0]["argv"], json!(["stockade", "config", "set", "--layer", "user", "sandbox.limits.pids", "100"]));
        assert_eq!(found[2]["receipt_id"], found[3]["receipt_id"], "what failed is told once more");
        assert!(found[3]["result"]["failure"].is_string(), "{}", found[3]);
        assert!(found.iter().all(|receipt| !receipt.to_string().contains(value)));
        assert_eq!(holds(ground), 7);
    });
}

#[test]
fn nothing_turns_receipts_off() {
    let ground = Ground::new(crate::wall::Who::Root);
    let outcome = ground.run(&["--no-receipt"], &["true"]);
    assert_eq!(outcome.code, Some(125), "{outcome:?}");
}
