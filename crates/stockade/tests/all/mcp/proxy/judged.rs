//! Rules, approvals and receipts of calls.

use serde_json::{Value, json};

use super::{PERMIT, ready, receipts, rules, tools, verified, words};
use crate::wall::Who;
use crate::wall::ground::{Ground, as_both, finish};

/// What the rules said to a result.
fn told(result: &Value) -> &Value {
    &result["structuredContent"]["decision"]
}

#[test]
fn agents_are_denied_until_a_rule_permits_them() {
    as_both(|ground| {
        let mut client = ready(ground, &[]);
        std::fs::remove_file(ground.home.join(".config/stockade/policy/rules.cedar")).expect("removed");
        let denied = client.call("echo", &json!({"message": "hi"}));
        assert_eq!((&denied["isError"], &told(&denied)["rule"]), (&json!(true), &json!("no-policy")), "{denied}");
        rules(ground, "permit (principal is Stockade::Human, action, resource);");
        let denied = client.call("echo", &json!({"message": "hi"}));
        assert_eq!(told(&denied)["verdict"], "deny", "{denied}");
        assert!(words(&denied).contains("Stockade::Action::\"mcp.demo.echo\""), "the narrowest rule: {denied}");
        rules(ground, PERMIT);
        assert_eq!(words(&client.call("echo", &json!({"message": "hi"}))), "hi");
        let unknown = client.ask("tools/call", &json!({"name": "rm\u{202e}", "arguments": {}}));
        assert!(unknown["error"]["message"].as_str().is_some_and(|text| text.contains("\\u{202e}")), "{unknown}");
        let all = receipts(ground);
        let of = |kind: &str| all.iter().filter(|one| one["kind"] == kind && one["capability"] == "mcp.demo.echo").collect::<Vec<_>>();
        assert_eq!((of("denied").len(), of("intent").len(), of("outcome").len()), (2, 1, 1), "{all:?}");
        let (intent, outcome) = (of("intent")[0], of("outcome")[0]);
        assert_eq!(intent["argv"], json!(["mcp.demo.echo", "{\"message\":\"hi\"}"]), "{intent}");
        assert_eq!(intent["principal"]["agent"], "by-hand/main", "{intent}");
        assert_eq!(intent["policy"]["rule"], "demo", "{intent}");
        assert!(intent["policy"]["reasons"].to_string().contains("of the MCP server `demo`, sha256 "), "{intent}");
        assert_eq!((&outcome["result"]["exit_code"], &outcome["result"]["capture"]), (&json!(0), &json!("kept")), "{outcome}");
        // The server's own receipt is the call's parent.
        let parent = intent["principal"]["parent"].as_str().expect("a parent");
        let server = all.iter().find(|one| one["receipt_id"] == parent && one["kind"] == "intent").expect("the server's receipt");
        assert_eq!(server["argv"], json!(["/usr/bin/python3", "server.py"]), "{server}");
        verified(ground);
    });
}

#[test]
fn rules_see_the_arguments_and_nothing_passes_unseen() {
    let ground = Ground::new(Who::Ordinary);
    let mut client = ready(&ground, &[]);
    rules(
        &ground,
        r#"permit (principal, action == Stockade::Action::"mcp.demo.echo", resource == Stockade::Capability::"mcp.demo.echo")
           when { context.args.message like "h*" && resource.effect == "write" && !(context.args has times && context.args.times > 2) };"#,
    );
    assert_eq!(words(&client.call("echo", &json!({"message": "hi", "times": 2}))), "hihi");
    for (bad, rule) in [
        (json!({"message": "no"}), None),
        (json!({"message": "hi", "times": 3}), None),
        (json!({"message": "hi", "times": "3"}), None),
        (json!({"times": 1}), None),
        (json!({"message": "hi", "to": "evil.example"}), Some("argument-not-accepted")),
    ] {
        let denied = client.call("echo", &bad);
        assert_eq!((&denied["isError"], &told(&denied)["verdict"]), (&json!(true), &json!("deny")), "{bad}: {denied}");
        assert!(rule.is_none_or(|rule| told(&denied)["rule"] == rule), "{bad}: {denied}");
    }
    rules(
        &ground,
        &format!("{PERMIT}\n@id(\"never\") @reason(\"not that\") forbid (principal, action in Stockade::Action::\"invoke\", resource);"),
    );
    let denied = client.call("echo", &json!({"message": "hi"}));
    assert_eq!((&told(&denied)["rule"], &told(&denied)["reason"]), (&json!("never"), &json!("not that")), "{denied}");
}

#[test]
fn an_approval_is_for_one_call_of_one_tool_with_these_arguments() {
    let ground = Ground::new(Who::Ordinary);
    let mut client = ready(&ground, &[]);
    rules(&ground, r#"@id("ask") @approval("required") permit (principal, action in Stockade::Action::"invoke", resource);"#);
    let ask = |client: &mut super::Client, message: &str| client.call("echo", &json!({"message": message}));
    let waits = ask(&mut client, "hi");
    let id = told(&waits)["approval_id"].as_str().unwrap_or_else(|| panic!("{waits}")).to_owned();
    assert_eq!((&told(&waits)["verdict"], &told(&waits)["rule"]), (&json!("ask"), &json!("ask")), "{waits}");
    assert!(words(&waits).ends_with(&format!("A person can type: stockade approvals approve {id}")), "{waits}");
    assert_eq!(told(&ask(&mut client, "hi"))["approval_id"], id, "asked twice, it waits once");
    let shown = finish(&mut ground.stockade(["approvals", "show", &id]));
    assert!(shown.stdout.contains("mcp.demo.echo (of the MCP server") && shown.stdout.contains("{\"message\":\"hi\"}"), "{shown:?}");
    let approved = finish(&mut ground.stockade(["approvals", "approve", &id]));
    assert_eq!(approved.code, Some(0), "{approved:?}");
    assert_ne!(told(&ask(&mut client, "ho"))["approval_id"], id, "other arguments are another call");
    assert_eq!(words(&ask(&mut client, "hi")), "hi");
    assert_ne!(told(&ask(&mut client, "hi"))["approval_id"], id, "it was used up");
    let outcome =
        receipts(&ground).into_iter().rfind(|one| one["kind"] == "outcome" && one["capability"] == "mcp.demo.echo").expect("an outcome");
    assert_eq!(outcome["approval"]["method"], "same-uid", "{outcome}");
    verified(&ground);
}

#[test]
fn a_server_that_the_rules_do_not_let_run_is_not_started() {
    let ground = Ground::new(Who::Ordinary);
    super::plant(&ground, "");
    let start = || super::started(&ground, &[]).ended();
    rules(&ground, "permit (principal is Stockade::Human, action == Stockade::Action::\"exec\", resource == Stockade::Program::\"ls\");");
    let (code, said) = start();
    assert!(code == Some(126) && said.contains("denied by policy"), "{code:?} {said}");
    rules(&ground, "@approval(\"required\") permit (principal is Stockade::Human, action, resource);");
    let (code, said) = start();
    assert!(code == Some(126) && said.contains("nobody can be asked about a server that a client starts"), "{code:?} {said}");
    assert_eq!(receipts(&ground).iter().filter(|one| one["kind"] == "denied").count(), 2);
    assert_eq!(tools(&ground, &["list"]).stdout, "");
}
