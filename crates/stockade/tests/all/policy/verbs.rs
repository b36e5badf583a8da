//! `run` under rules, `policy`, `init` and `trust`.

use serde_json::{Value, json};

use super::{rules, script, script_json};
use crate::wall::ground::finish;
use crate::wall::{Ground, Who, as_both};

const LS_ONLY: &str = "@id(\"ls\")\npermit (principal, action == Stockade::Action::\"exec\", resource == Stockade::Program::\"ls\");\n";

#[test]
fn what_no_rule_permits_does_not_run() {
    as_both(|ground| {
        rules(ground, LS_ONLY);
        ground.file("x", "");
        assert_eq!(ground.run(&[], &["ls"]).stdout, "x\n");
        let denied = ground.run(&[], &["touch", "y"]);
        assert_eq!((denied.code, denied.stdout.as_str()), (Some(126), ""), "{denied:?}");
        assert!(denied.stderr.contains("no rule permits `touch`") && denied.stderr.contains("permit ("), "{denied:?}");
        let (code, value) = script_json(ground, "ls; touch y");
        assert_eq!((code, &value["exit_code"], &value["decision"]["verdict"]), (Some(126), &Value::Null, &json!("deny")));
        assert_eq!(value["decision"]["rule"], "default-deny");
        assert!(value["decision"]["suggest"].as_str().is_some_and(|rule| rule.contains("Program::\"touch\"")), "{value}");
        let (code, value) = script_json(ground, "ls");
        assert_eq!((code, &value["stdout"], &value["decision"]["rule"]), (Some(0), &json!("x\n"), &json!("ls")));
        assert!(value["decision"]["source"].as_str().is_some_and(|source| source.ends_with("rules.cedar:1")), "{value}");
        assert_eq!(script_json(ground, "$x").1["decision"]["rule"], "script-hidden-program");
        assert_eq!(ground.sandboxes(), Vec::<String>::new());
    });
}

#[test]
fn programs_that_no_rule_names_do_not_exist_inside() {
    as_both(|ground| {
        let text = "permit (principal, action == Stockade::Action::\"exec\", resource) when { resource in [Stockade::Program::\"find\", Stockade::Program::\"awk\"] };";
        rules(ground, text);
        // What awk runs, no text shows.
        let outcome = script(
            ground,
            &["--workspace-mode", "rw"],
            "awk 'BEGIN { system(\"touch y\"); system(\"/usr/bin/touch y\") }'; find . -name y",
        );
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), ""), "{outcome:?}");
    });
}

#[test]
fn a_permit_that_asks_is_a_no_where_nobody_can_answer() {
    as_both(|ground| {
        rules(ground, &format!("@approval(\"required\") @reason(\"look first\")\n{LS_ONLY}"));
        let denied = ground.run(&[], &["ls"]);
        assert_eq!(denied.code, Some(126), "{denied:?}");
        assert!(denied.stderr.contains("look first"), "{denied:?}");
        assert_eq!(script_json(ground, "ls").1["decision"]["verdict"], "ask");
    });
}

#[test]
fn a_projects_rules_tighten_at_once_and_widen_only_when_trusted() {
    as_both(|ground| {
        let project = ".stockade/policy/project.cedar";
        ground.file(project, "forbid (principal, action == Stockade::Action::\"exec\", resource == Stockade::Program::\"touch\");");
        assert_eq!(ground.run(&[], &["ls"]).code, Some(0), "there is no policy of a person");
        assert_eq!(ground.run(&[], &["touch", "y"]).code, Some(126), "a forbid counts at once");
        rules(ground, LS_ONLY);
        ground.file(project, "permit (principal, action == Stockade::Action::\"exec\", resource == Stockade::Program::\"touch\");");
        let denied = ground.run(&[], &["touch", "y"]);
        assert!(denied.code == Some(126) && denied.stderr.contains("trust project"), "{denied:?}");
        let trusted = finish(&mut ground.stockade(["trust", "project"]));
        assert_eq!(trusted.code, Some(0), "{trusted:?}");
        assert_eq!(ground.run(&[], &["touch", "y"]).code, Some(0));
        ground
            .file(project, "// other\npermit (principal, action == Stockade::Action::\"exec\", resource == Stockade::Program::\"touch\");");
        let denied = ground.run(&[], &["touch", "y"]);
        assert!(denied.code == Some(126) && denied.stderr.contains("changed"), "{denied:?}");
    });
}

#[test]
fn a_starter_is_written_once_and_stands() {
    as_both(|ground| {
        for preset in ["read-only", "developer", "ci"] {
            let file = ground.home.join(".config/stockade/policy/stockade.cedar");
            let _ = std::fs::remove_file(&file);
            assert_eq!(finish(&mut ground.stockade(["init", "--preset", preset])).code, Some(0));
            assert_eq!(finish(&mut ground.stockade(["init"])).code, Some(125), "one that is there is left alone");
            let tested = finish(&mut ground.stockade(["policy", "test", "--json"]));
            let value: Value = serde_json::from_str(&tested.stdout).expect("JSON");
            assert!(tested.code == Some(0) && value["examples"].as_u64() > Some(3), "{tested:?}");
            assert_eq!(ground.run(&[], &["true"]).code, Some(0), "the person may run anything");
        }
    });
}

#[test]
fn faults_are_shown_with_a_caret() {
    as_both(|ground| {
        rules(ground, "permit (principal,\n  action == Stockade::Action::\"exce\", resource);\n");
        let checked = finish(&mut ground.stockade(["policy", "check"]));
        assert_eq!((checked.code, checked.stdout.as_str()), (Some(125), ""), "{checked:?}");
        assert!(checked.stderr.contains("rules.cedar:2") && checked.stderr.contains('^'), "{checked:?}");
        let value: Value = serde_json::from_str(&finish(&mut ground.stockade(["policy", "check", "--json"])).stdout).expect("JSON");
        assert_eq!(value["faults"][0]["line"], 2);
        assert!(finish(&mut ground.stockade(["policy", "check", "--schema"])).stdout.contains("namespace Stockade"));
    });
}

#[test]
fn without_a_policy_explain_says_what_agents_are_told() {
    let ground = Ground::new(Who::Ordinary);
    let verdict = |flags: &[&str]| {
        let words = ["policy", "explain", "--json"].iter().chain(flags).chain(&["--shell", "rm -rf x"]);
        let outcome = finish(&mut ground.stockade(words));
        serde_json::from_str::<serde_json::Value>(&outcome.stdout).expect("JSON")["decision"]["verdict"].clone()
    };
    assert_eq!(verdict(&["--agent", "claude/main"]), "deny");
    assert_eq!(verdict(&[]), "allow");
    ground.file(".stockade/policy/own.cedar", "forbid (principal, action, resource == Stockade::Program::\"rm\");\n");
    assert_eq!((verdict(&["--agent", "claude/main"]), verdict(&[])), ("deny".into(), "deny".into()));
}

#[test]
fn explain_names_the_rule_and_allow_writes_one() {
    as_both(|ground| {
        rules(ground, LS_ONLY);
        let ask = |words: &[&str]| {
            let outcome = finish(&mut ground.stockade(["policy", "explain", "--json", "--agent", "claude/main"].iter().chain(words)));
            serde_json::from_str::<Value>(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
        };
        assert_eq!(ask(&["--shell", "ls | cat x"])["commands"][1]["decision"]["verdict"], "deny");
        assert_eq!(ask(&["--", "ls"])["exec_list"], json!(["ls"]));
        let words = ["policy", "allow", "--agent", "claude/main", "--", "git", "push", "origin"];
        let allowed = finish(&mut ground.stockade(words));
        assert!(allowed.code == Some(0) && allowed.stdout.contains("Program::\"git\""), "{allowed:?}");
        assert_eq!(ask(&["--", "git", "push", "origin"])["decision"]["verdict"], "allow");
        assert_eq!(ask(&["--", "git", "push", "--force", "origin"])["decision"]["verdict"], "deny", "no more than that");
        assert_eq!(finish(&mut ground.stockade(words)).code, Some(0), "already allowed");
        let hidden = finish(&mut ground.stockade(["policy", "allow", "--shell", "$x"]));
        assert_eq!(hidden.code, Some(125), "{hidden:?}");
    });
}

#[test]
fn a_sandbox_that_stands_obeys_too() {
    as_both(|ground| {
        let made = finish(&mut ground.stockade(["sandbox", "create", "--name", "box"]));
        assert_eq!(made.code, Some(0), "{made:?}");
        assert_eq!(finish(&mut ground.stockade(["sandbox", "exec", "box", "--", "true"])).code, Some(0));
        rules(
            ground,
            "permit (principal, action == Stockade::Action::\"exec\", resource) unless { resource == Stockade::Program::\"touch\" };",
        );
        assert_eq!(finish(&mut ground.stockade(["sandbox", "exec", "box", "--", "touch", "y"])).code, Some(126));
        assert_eq!(finish(&mut ground.stockade(["sandbox", "exec", "box", "--", "ls"])).code, Some(0));
        rules(ground, LS_ONLY);
        let unheld = finish(&mut ground.stockade(["sandbox", "exec", "box", "--", "ls"]));
        assert!(unheld.code == Some(126) && unheld.stderr.contains("--exec-allow"), "{unheld:?}");
        let told = finish(&mut ground.stockade(["receipts", "list", "--json", "--verdict", "deny"])).stdout;
        assert!(told.contains("no-exec-list") && !told.contains("argv_executed"), "{told}");
        assert_eq!(finish(&mut ground.stockade(["sandbox", "destroy", "box"])).code, Some(0));
    });
}

#[test]
fn a_persons_own_list_and_the_rules_narrow_each_other() {
    as_both(|ground| {
        ground.file("x", "contents\n");
        // Without rules: the shell of `--shell` is always there.
        assert_eq!(script(ground, &["--exec-allow", "ls"], "ls; cat x").stdout, "x\n");
        let text = "permit (principal, action == Stockade::Action::\"exec\", resource) when { resource in [Stockade::Program::\"ls\", Stockade::Program::\"cat\"] };";
        rules(ground, text);
        assert_eq!(script(ground, &[], "ls; cat x").stdout, "x\ncontents\n");
        for list in ["ls", "/usr/bin/ls", "ls,touch"] {
            let outcome = script(ground, &["--exec-allow", list], "ls; cat x");
            assert_eq!(outcome.stdout, "x\n", "{list}: {outcome:?}");
        }
        assert_eq!(ground.run(&["--exec-allow", "cat"], &["ls"]).code, Some(127));
        assert_eq!(ground.run(&[], &["no-such-program"]).code, Some(126));
        rules(ground, &text.replace("\"cat\"", "\"no-such-program\""));
        assert_eq!(ground.run(&[], &["no-such-program"]).code, Some(127), "permitted, and not there");
    });
}

#[test]
fn what_a_person_answers_counts() {
    as_both(|ground| {
        rules(ground, &format!("@approval(\"required\") @reason(\"look first\")\n{LS_ONLY}"));
        ground.file("there", "");
        let answer = |word: &str| {
            let line = format!("{} run -- ls", ground.binary.display());
            crate::wall::ground::finish_with(ground.outside("script").args(["-qec", &line, "/dev/null"]), word.as_bytes())
        };
        let yes = answer("y\n");
        assert!(yes.code == Some(0) && yes.stdout.contains("look first") && yes.stdout.contains("there"), "{yes:?}");
        for word in ["n\n", "\n", "yyy\n"] {
            let no = answer(word);
            assert!(no.code == Some(126) && !no.stdout.contains("there\r"), "{word:?}: {no:?}");
        }
    });
}

#[test]
fn a_rule_is_proposed_and_a_person_allows_it() {
    as_both(|ground| {
        rules(ground, LS_ONLY);
        let verb = |words: &[&str]| finish(&mut ground.stockade(["policy"].iter().chain(words)));
        let json = |words: &[&str]| serde_json::from_str::<Value>(&verb(words).stdout).expect("JSON");
        assert_eq!(json(&["proposals", "--json"]), json!({ "proposals": [] }));
        let words = ["propose", "--agent", "claude/main", "--reason", "to see", "--", "git", "push", "origin"];
        let proposed = verb(&words);
        let id = proposed.stdout.trim().to_owned();
        assert!(proposed.code == Some(0) && id.len() == 12, "{proposed:?}");
        assert_eq!(verb(&words).stdout.trim(), id, "the same once more");
        let listed = json(&["proposals", "--json"]);
        assert_eq!((&listed["proposals"][0]["asked"], &listed["proposals"][0]["reason"]), (&json!("git push origin"), &json!("to see")));
        assert!(verb(&["proposals"]).stdout.contains("Program::\"git\""));
        let explain = ["explain", "--json", "--agent", "claude/main", "--", "git", "push", "origin"];
        assert_eq!(json(&explain)["decision"]["verdict"], "deny", "a proposal changes nothing");
        assert_eq!(verb(&["allow", &id]).code, Some(0));
        assert_eq!(json(&explain)["decision"]["verdict"], "allow");
        assert_eq!((verb(&["allow", &id]).code, verb(&["allow", "../x"]).code), (Some(125), Some(125)), "it is gone");
        let other = verb(&["propose", "--host", "api.example.org"]).stdout.trim().to_owned();
        assert_eq!((verb(&["proposals", "--remove", &other]).code, json(&["proposals", "--json"])), (Some(0), json!({ "proposals": [] })));
        assert_eq!(verb(&["propose", "--", "ls"]).stdout, "", "allowed already");
        assert_eq!(verb(&["propose", "--shell", "$x"]).code, Some(125));
    });
}

#[test]
fn hosts_have_rules_too() {
    as_both(|ground| {
        rules(ground, LS_ONLY);
        let verdict = |host: &str| {
            let outcome = finish(&mut ground.stockade(["policy", "explain", "--json", "--host", host]));
            serde_json::from_str::<Value>(&outcome.stdout).expect("JSON")["decision"]["verdict"].clone()
        };
        assert_eq!(verdict("api.example.org"), "deny");
        let warned = ground.run(&["--allow-host", "api.example.org"], &["ls"]);
        assert!(warned.code == Some(0) && warned.stderr.contains("policy allow --host api.example.org"), "{warned:?}");
        assert_eq!(finish(&mut ground.stockade(["policy", "allow", "--host", "api.example.org"])).code, Some(0));
        assert_eq!((verdict("api.example.org"), verdict("api.example.org:8080")), (json!("allow"), json!("deny")));
        let quiet = ground.run(&["--allow-host", "api.example.org"], &["ls"]);
        assert!(quiet.code == Some(0) && !quiet.stderr.contains("policy"), "{quiet:?}");
        ground.refused(125, &["--learn"], &["ls"], &["--learn"]);
    });
}

#[test]
fn rules_of_other_programs_are_imported() {
    as_both(|ground| {
        let settings = json!({ "permissions": {
            "allow": ["Bash(git diff:*)", "Bash(npm * --save)", "WebFetch(domain:docs.rs)"],
            "ask": ["Bash(make)"],
            "deny": ["Bash(git push:*)", "Read(./.env)"],
            "defaultMode": "plan",
        } });
        ground.file("settings.json", &settings.to_string());
        ground.file("x.rules", "prefix_rule(pattern = [\"cargo\", \"test\"], decision = \"allow\")\nx = 1\n");
        let verb = |words: &[&str]| finish(&mut ground.stockade(["policy"].iter().chain(words)));
        let dry = verb(&["import", "claude", "settings.json", "--dry-run"]);
        assert!(dry.code == Some(0) && dry.stdout.contains("// from: allow Bash(git diff:*)"), "{dry:?}");
        for word in ["npm * --save", "no longer denied: Read(./.env)", "defaultMode", "nothing was written"] {
            assert!(dry.stderr.contains(word), "{word}: {dry:?}");
        }
        let directory = ground.home.join(".config/stockade/policy");
        assert!(!directory.join("imported-claude.cedar").exists());
        assert_eq!(verb(&["import", "claude", "settings.json"]).code, Some(0));
        assert_eq!(std::fs::read_to_string(directory.join("imported-claude.cedar")).expect("written"), dry.stdout);
        assert_eq!(verb(&["import", "claude", "settings.json"]).code, Some(125), "one that is there is left alone");
        assert_eq!(verb(&["import", "codex", "x.rules"]).code, Some(0));
        assert_eq!(verb(&["check"]).code, Some(0));
        let verdict = |command: &str| {
            let outcome = verb(&["explain", "--json", "--agent", "claude/main", "--shell", command]);
            serde_json::from_str::<Value>(&outcome.stdout).expect("JSON")["decision"]["verdict"].clone()
        };
        let expected = [("git diff x", "allow"), ("make", "ask"), ("git push", "deny"), ("cargo test", "allow"), ("ls", "deny")];
        for (command, word) in expected {
            assert_eq!(verdict(command), word, "{command}");
        }
        assert_eq!(ground.run(&[], &["ls"]).code, Some(0), "the person is not shut out");
        assert_eq!(verb(&["import", "claude", "x.rules"]).code, Some(125), "not JSON");
    });
}
