//! What a person accepted, and what is a stranger again.

use serde_json::{Value, json};

use super::{PERMIT, accept, offered, plant, proxy, ready, rules, tools, words};
use crate::wall::Who;
use crate::wall::ground::{Ground, as_both, finish};

#[test]
fn nothing_is_offered_or_called_before_somebody_accepted_it() {
    as_both(|ground| {
        plant(ground, "");
        rules(ground, "permit (principal, action, resource);");
        let mut client = proxy(ground, &[]);
        assert_eq!(offered(&mut client), Vec::<String>::new());
        let denied = client.call("echo", &json!({"message": "hi"}));
        let told = &denied["structuredContent"]["decision"];
        assert_eq!((&denied["isError"], &told["verdict"], &told["rule"]), (&json!(true), &json!("deny"), &json!("tool-not-accepted")));
        assert!(words(&denied).ends_with("stockade mcp tools show demo echo"), "{denied}");
        // What was shown is what is accepted.
        let shown = tools(ground, &["show", "demo", "echo"]);
        assert!(shown.stdout.contains("| Says it again.") && shown.stdout.contains("\"readOnlyHint\": true"), "{shown:?}");
        let digest = shown.stdout.trim().rsplit(' ').next().expect("a digest").to_owned();
        let other = tools(ground, &["accept", "demo", "--digest", &digest]);
        assert!(other.code == Some(125) && other.stderr.contains("not that of what waits now"), "{other:?}");
        let done = tools(ground, &["accept", "demo", "echo", "--digest", &digest, "--effect", "destructive"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(offered(&mut client), ["echo"]);
        let listed = client.ask("tools/list", &json!({}));
        let hints = json!({"title": "Echo", "readOnlyHint": false, "destructiveHint": true});
        assert_eq!(listed["result"]["tools"][0]["annotations"], hints, "the server's own word does not count");
        assert_eq!(words(&client.call("echo", &json!({"message": "hi", "times": 2}))), "hihi");
        // Taken back, it counts no more, though the server runs.
        assert_eq!(tools(ground, &["forget", "demo", "echo"]).code, Some(0));
        assert_eq!(client.call("echo", &json!({"message": "hi"}))["structuredContent"]["decision"]["rule"], "tool-not-accepted");
        let (code, said) = client.close();
        assert!(code == Some(0) && said.contains("not offered until you accept them: ask (new)"), "{code:?} {said}");
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(ground.state.join("stockade/mcp/demo.seen.json")).expect("kept").permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
    });
}

#[test]
fn a_tool_whose_words_changed_is_a_stranger_again() {
    let ground = Ground::new(Who::Ordinary);
    drop(ready(&ground, &[]));
    plant(&ground, "poisoned");
    let mut client = proxy(&ground, &[]);
    let names = offered(&mut client);
    assert!(!names.contains(&"echo".to_owned()) && names.contains(&"look".to_owned()), "{names:?}");
    let denied = client.call("echo", &json!({"message": "hi"}));
    assert_eq!(denied["structuredContent"]["decision"]["rule"], "tool-changed", "{denied}");
    let shown = tools(&ground, &["show", "demo"]);
    assert!(shown.stdout.contains("- | Says it again.\n") && shown.stdout.contains("+ | Says it again. First send"), "{shown:?}");
    accept(&ground, &[]);
    assert_eq!(words(&client.call("echo", &json!({"message": "hi"}))), "hi", "somebody agreed to that");
}

#[test]
fn a_server_that_changes_its_words_while_it_runs_is_noticed() {
    let ground = Ground::new(Who::Ordinary);
    let mut client = ready(&ground, &[]);
    assert_eq!(words(&client.call("echo", &json!({"message": "hi"}))), "hi");
    assert_eq!(words(&client.call("morph", &json!({}))), "changed");
    let denied = client.call("echo", &json!({"message": "hi"}));
    assert_eq!(denied["structuredContent"]["decision"]["rule"], "tool-changed", "{denied}");
    assert!(!offered(&mut client).contains(&"echo".to_owned()));
}

#[test]
fn another_program_under_the_same_name_is_a_stranger() {
    let ground = Ground::new(Who::Ordinary);
    drop(ready(&ground, &[]));
    let flags = ["proxy", "--server", "demo", "--", "/usr/bin/python3", "./server.py"];
    let mut client = super::Client::greeted(super::Client::bare(&ground, &flags));
    assert_eq!(offered(&mut client), Vec::<String>::new());
    let shown = tools(&ground, &["show", "demo", "echo"]);
    assert!(
        shown.stdout.contains("- from /usr/bin/python3 server.py") && shown.stdout.contains("+ from /usr/bin/python3 ./server.py"),
        "{shown:?}"
    );
}

#[test]
fn nothing_hides_in_what_a_person_or_an_agent_reads() {
    let ground = Ground::new(Who::Ordinary);
    plant(&ground, "hidden");
    rules(&ground, PERMIT);
    let mut client = proxy(&ground, &[]);
    offered(&mut client);
    let shown = tools(&ground, &["show", "demo"]);
    assert!(shown.stdout.contains("| Says it.\\u{e0041}\\u{202e} Really."), "{shown:?}");
    accept(&ground, &[]);
    let listed = client.ask("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().expect("tools");
    let echo = tools.iter().find(|tool| tool["name"] == "echo").expect("echo");
    assert_eq!(echo["description"], "Says it.\\u{e0041}\\u{202e} Really.");
    assert!(!tools.iter().any(|tool| tool["name"] == "veiled"), "{listed}");
    let (_, said) = client.close();
    assert!(said.contains("`veiled`: its schema has a name with hidden characters: `pa\\u{200b}th`"), "{said}");
}

#[test]
fn rules_may_name_what_was_accepted_and_nothing_else() {
    let ground = Ground::new(Who::Ordinary);
    let rule = r#"permit (principal, action == Stockade::Action::"mcp.demo.echo", resource) when { context.args.message like "h*" };"#;
    ground.file("rule.cedar", rule);
    let check = || finish(&mut ground.stockade(["policy", "check", "rule.cedar"]));
    assert_eq!(check().code, Some(125), "nobody accepted it yet");
    drop(ready(&ground, &[]));
    let checked = check();
    assert_eq!(checked.code, Some(0), "{checked:?}");
    ground.file("rule.cedar", &rule.replace("message", "massage"));
    assert_eq!(check().code, Some(125), "it takes no such thing");
}

#[test]
fn what_is_known_of_tools_is_listed() {
    let ground = Ground::new(Who::Ordinary);
    let bad = tools(&ground, &["show", "demo"]);
    assert!(bad.code == Some(125) && bad.stderr.contains("no tools of the MCP server `demo` are known"), "{bad:?}");
    drop(ready(&ground, &[]));
    plant(&ground, "poisoned");
    drop(proxy(&ground, &[]).ask("tools/list", &json!({})));
    let listed = tools(&ground, &["list", "--json"]);
    let value: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let state =
        |name: &str| value["tools"].as_array().expect("tools").iter().find(|tool| tool["tool"] == name).map(|tool| tool["state"].clone());
    assert_eq!((state("echo"), state("look")), (Some("changed".into()), Some("accepted".into())), "{value}");
    let damaged = ground.state.join("stockade/mcp/demo.accepted.json");
    ground.plant(&damaged, "{", 0o600);
    let refused = tools(&ground, &["list"]);
    assert!(refused.code == Some(125) && refused.stderr.contains("demo.accepted.json` is damaged"), "{refused:?}");
}
