//! What the hook says to each tool.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{RULES, answer, asked, question, refusal, rules};
use crate::wall::ground::{as_both, finish};

#[test]
fn a_permitted_script_runs_behind_the_wall_once() {
    as_both(|ground| {
        rules(ground, RULES);
        ground.file("there", "contents\n");
        let secret = ground.home.join("secret");
        ground.plant(&secret, "keys\n", 0o600);
        let script = format!("cat there; touch made; cat {}", secret.display());
        let said = answer(ground, "Bash", json!({ "command": script, "timeout": 9000, "description": "look" })).expect("an answer");
        assert_eq!(said["permissionDecision"], "allow", "{said}");
        assert_eq!((&said["updatedInput"]["timeout"], &said["updatedInput"]["description"]), (&json!(9000), &json!("look")));
        let command = said["updatedInput"]["command"].as_str().expect("a command");
        assert!(command.contains(" hook run ") && !command.contains("cat"), "{command}");
        let ran = finish(ground.outside("bash").args(["-c", command]));
        assert!(ran.stdout == "contents\n" && !ran.stderr.contains("keys") && ran.code == Some(1), "{ran:?}");
        assert!(ground.work.join("made").exists(), "its changes are the person's, as those of its file tools are");
        let again = finish(ground.outside("bash").args(["-c", command]));
        assert!(again.code == Some(125) && again.stderr.contains("no such ticket"), "{again:?}");
        let receipts = finish(&mut ground.stockade(["receipts", "list", "--json", "--agent", "claude-code/main"])).stdout;
        let receipts: Value = serde_json::from_str(&receipts).expect("JSON");
        let kinds: Vec<&str> = receipts["receipts"].as_array().expect("a list").iter().filter_map(|one| one["kind"].as_str()).collect();
        assert_eq!(kinds, ["outcome", "intent"], "{receipts}");
    });
}

#[test]
fn a_ticket_counts_where_it_was_given_and_while_the_rules_hold() {
    as_both(|ground| {
        rules(ground, RULES);
        ground.directory(&ground.work.join("sub"));
        let command = || {
            let said = answer(ground, "Bash", json!({ "command": "ls" })).expect("an answer");
            said["updatedInput"]["command"].as_str().expect("a command").to_owned()
        };
        let elsewhere = finish(ground.outside("bash").current_dir(ground.work.join("sub")).args(["-c", &command()]));
        assert!(elsewhere.code == Some(125) && elsewhere.stderr.contains("another directory"), "{elsewhere:?}");
        let permitted = command();
        rules(ground, "forbid (principal, action, resource);");
        let denied = finish(ground.outside("bash").args(["-c", &permitted]));
        assert_eq!(denied.code, Some(126), "{denied:?}");
    });
}

#[test]
fn a_refusal_says_why_and_what_would_be_allowed() {
    as_both(|ground| {
        rules(ground, RULES);
        let reason = refusal(ground, "Bash", json!({ "command": "ls; rm -r x" }));
        assert!(reason.contains("no rule permits `rm`") && reason.contains("permit ("), "{reason}");
        let reason = refusal(ground, "Bash", json!({ "command": "$(echo ls)" }));
        assert!(reason.contains("hides which program runs"), "{reason}");
        let denied = finish(&mut ground.stockade(["receipts", "list", "--json", "--verdict", "deny"])).stdout;
        let denied: Value = serde_json::from_str(&denied).expect("JSON");
        assert_eq!(denied["receipts"].as_array().map(Vec::len), Some(2), "{denied}");
    });
}

#[test]
fn without_a_policy_agents_may_do_nothing() {
    as_both(|ground| {
        for (tool, input) in [
            ("Bash", json!({ "command": "true" })),
            ("Read", json!({ "file_path": ground.work.join("x") })),
            ("WebFetch", json!({ "url": "https://docs.example/" })),
        ] {
            let reason = refusal(ground, tool, input);
            assert!(reason.contains("stockade init"), "{tool}: {reason}");
        }
    });
}

#[test]
fn file_tools_are_held_to_what_the_wall_shows() {
    as_both(|ground| {
        rules(ground, RULES);
        ground.plant(&ground.home.join(".ssh/id"), "key", 0o600);
        ground.host(&format!("ln -s {}/.ssh/id link", ground.home.display()));
        let at = |name: &str| json!({ "file_path": ground.work.join(name) });
        for tool in ["Read", "Write", "Edit", "MultiEdit"] {
            assert_eq!(answer(ground, tool, at("src/x.rs")), None, "{tool}");
        }
        assert_eq!(answer(ground, "NotebookEdit", json!({ "notebook_path": ground.work.join("n.ipynb") })), None);
        for (tool, path) in [("Read", ground.home.join(".ssh/id")), ("Read", ground.work.join("link")), ("Write", ground.work.join("link"))]
        {
            refusal(ground, tool, json!({ "file_path": path }));
        }
        // A home directory that is known by another name as well.
        ground.host(&format!("ln -s {} {}/other-name", ground.home.display(), ground.state.display()));
        refusal(ground, "Read", json!({ "file_path": ground.state.join("other-name/.ssh/id") }));
        let mut linked = ground.stockade(["hook", "claude"]);
        linked.env("HOME", ground.state.join("other-name"));
        let asked = question(ground, "Read", json!({ "file_path": ground.home.join(".ssh/id") })).to_string();
        let said = crate::wall::ground::finish_with(&mut linked, asked.as_bytes());
        assert!(said.stdout.contains("\"deny\"") && said.stdout.contains("home directory"), "{said:?}");
        for path in [".git/hooks/pre-commit", ".claude/settings.json", ".stockade/policy/x.cedar", "../outside"] {
            refusal(ground, "Write", at(path));
        }
        rules(
            ground,
            &format!(
                "{RULES} forbid (principal, action == Stockade::Action::\"read\", resource in Stockade::Path::\"{}/private\");",
                ground.work.display()
            ),
        );
        assert!(refusal(ground, "Read", at("private/x")).contains("forbids it"));
    });
}

#[test]
fn files_that_the_wall_does_not_show_are_not_read() {
    as_both(|ground| {
        rules(ground, RULES);
        let beside = ground.base.join("beside/x");
        ground.plant(&beside, "of somebody else", 0o644);
        ground.host("ln -s /proc/self/environ told; ln -s /etc/shadow passwords; ln -s /var/tmp/not-there-yet new");
        let hidden = ["/etc/shadow", "/root/.ssh/id_rsa", "/home/other/x", "/tmp/foo", "/etc/ssl/private/x", "/proc/1/environ"];
        let hidden = hidden.iter().map(PathBuf::from).chain([
            beside,
            "/proc/self/cwd/there".into(),
            "/var/log/x".into(),
            "/".into(),
            ground.work.join("told"),
            ground.work.join("passwords"),
            // Writing it would make the file that it leads to.
            ground.work.join("new"),
        ]);
        for path in hidden {
            for tool in ["Read", "Write"] {
                let reason = refusal(ground, tool, json!({ "file_path": path }));
                assert!(reason.contains("behind-the-wall"), "{tool} {}: {reason}", path.display());
            }
        }
        let scratch = |session: &str| format!("/tmp/claude-{}/-work/{session}/tasks/b.output", ground.who.uid());
        for path in ["/usr/bin/env", "/etc/passwd", &scratch("s-1")] {
            assert_eq!(answer(ground, "Read", json!({ "file_path": path })), None, "{path}");
            refusal(ground, "Write", json!({ "file_path": path }));
        }
        refusal(ground, "Read", json!({ "file_path": scratch("s-2") }));
        for path in ["/", "/etc", "/etc/ssl", "/tmp", "/root", &ground.home.to_string_lossy(), &ground.base.to_string_lossy()] {
            refusal(ground, "Grep", json!({ "pattern": "x", "path": path }));
            refusal(ground, "Glob", json!({ "pattern": format!("{path}/*") }));
        }
        for input in [json!({ "pattern": "x" }), json!({ "pattern": "x", "path": "/usr/include" })] {
            assert_eq!(answer(ground, "Grep", input.clone()), None, "{input}");
            assert_eq!(answer(ground, "Glob", input.clone()), None, "{input}");
        }
    });
}

#[test]
fn addresses_need_a_permit() {
    as_both(|ground| {
        rules(ground, RULES);
        assert_eq!(answer(ground, "WebFetch", json!({ "url": "https://docs.example/x" })), None);
        for url in ["https://other.example/", "http://docs.example/"] {
            refusal(ground, "WebFetch", json!({ "url": url }));
        }
    });
}

#[test]
fn what_is_not_understood_blocks() {
    as_both(|ground| {
        rules(ground, RULES);
        let good = question(ground, "Bash", json!({ "command": "ls" }));
        let with = |name: &str, value: Value| {
            let mut other = good.clone();
            other[name] = value;
            other
        };
        for bad in [
            json!({}),
            json!([]),
            with("tool_name", json!("Teleport")),
            with("tool_input", json!({})),
            with("tool_input", json!({ "command": 5 })),
            with("hook_event_name", json!("PostToolUse")),
            with("cwd", json!("relative")),
        ] {
            let outcome = asked(ground, &bad);
            assert!(outcome.code == Some(2) && outcome.stdout.is_empty() && !outcome.stderr.is_empty(), "{bad}: {outcome:?}");
        }
        let outcome = crate::wall::ground::finish_with(&mut ground.stockade(["hook", "claude"]), b"{\"tool_name\": ");
        assert!(outcome.code == Some(2), "{outcome:?}");
    });
}
