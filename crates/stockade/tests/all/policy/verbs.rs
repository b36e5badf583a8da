//! `run` under rules, `policy`, `init` and `trust`.

use serde_json::{Value, json};

use super::{rules, script, script_json};
use crate::wall::as_both;
use crate::wall::ground::finish;

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
        assert!(unheld.code == Some(125) && unheld.stderr.contains("--exec-allow"), "{unheld:?}");
        assert_eq!(finish(&mut ground.stockade(["sandbox", "destroy", "box"])).code, Some(0));
    });
}
