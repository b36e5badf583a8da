//! What the tools do: they run, they refuse, and they share one overlay.

use serde_json::{Value, json};

use super::client::Client;
use super::{DEVELOPER, receipts, rules, verified};
use crate::wall::Who;
use crate::wall::ground::{Ground, as_both, finish};

#[test]
fn tools_are_listed_in_an_order_that_stays_with_hints_and_schemas() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    let mut client = Client::new(&ground);
    let list = client.ask("tools/list", &json!({}));
    let tools = list["result"]["tools"].as_array().expect("tools");
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["shell", "shell_read_only", "read_file", "write_file", "list_dir", "approval_wait", "sandbox_status"]);
    assert_eq!(client.ask("tools/list", &json!({}))["result"]["tools"], list["result"]["tools"]);
    for tool in tools {
        let is_quiet = !["shell", "write_file", "approval_wait"].contains(&tool["name"].as_str().expect("a name"));
        assert_eq!(tool["annotations"]["readOnlyHint"], is_quiet, "{tool}");
        assert_eq!((&tool["inputSchema"]["type"], &tool["outputSchema"]["type"]), (&json!("object"), &json!("object")), "{tool}");
    }
    let status = client.call("sandbox_status", &json!({}));
    let told = &status["structuredContent"];
    assert_eq!((&told["principal"], &told["policy"]), (&json!("by-hand/main"), &json!("in force")), "{status}");
    assert_eq!((&told["workspace"], &told["sandbox_id"]), (&json!(ground.work.to_str()), &Value::Null), "{status}");
}

#[test]
fn tools_share_one_overlay_and_what_changed_is_kept_at_the_end() {
    as_both(|ground| {
        rules(ground, DEVELOPER);
        ground.file("old.txt", "old\n");
        let before = ground.snapshot();
        let mut client = Client::new(ground);
        let first = client.shell("echo made > new.txt; rm old.txt; pwd; id -u; echo gone > /tmp/x; echo oops >&2; exit 3");
        let told = &first["structuredContent"];
        assert_eq!((&first["isError"], &told["exit_code"], &told["stderr"]), (&json!(false), &json!(3), &json!("oops\n")), "{first}");
        assert!(told["stdout"].as_str().expect("text").starts_with(ground.work.to_str().expect("a path")), "{first}");
        assert_eq!(told["changes"], json!([{"path": "new.txt", "kind": "added"}, {"path": "old.txt", "kind": "deleted"}]), "{first}");
        let words = first["content"][0]["text"].as_str().expect("text");
        assert!(words.contains("[stderr]\noops") && words.ends_with("[exit code 3]"), "{words}");
        // The next call sees it, whatever tool it is; only the workspace lasts.
        let second = client.shell("cat new.txt; ls /tmp; test ! -e old.txt && echo two >> new.txt");
        assert_eq!(second["structuredContent"]["stdout"], "made\n", "{second}");
        assert_eq!(second["structuredContent"]["changes"], json!([{"path": "new.txt", "kind": "added"}]), "{second}");
        let read = client.call("read_file", &json!({"path": "new.txt"}));
        assert_eq!((&read["structuredContent"]["content"], &read["isError"]), (&json!("made\ntwo\n"), &json!(false)), "{read}");
        let written = client.call("write_file", &json!({"path": "deep/er/x.bin", "content_base64": "AP8="}));
        assert_eq!(written["structuredContent"]["bytes"], 2, "{written}");
        let looked = client.call("shell_read_only", &json!({"script": "wc -c < deep/er/x.bin; cat new.txt; touch no; echo $?"}));
        assert_eq!(looked["structuredContent"]["stdout"], "2\nmade\ntwo\n1\n", "{looked}");
        assert_eq!(looked["structuredContent"]["changes"], json!([]), "{looked}");
        let list = client.call("list_dir", &json!({"path": "."}));
        let names: Vec<&str> =
            list["structuredContent"]["entries"].as_array().expect("a list").iter().filter_map(|e| e["name"].as_str()).collect();
        assert_eq!(names, ["deep", "new.txt"], "{list}");
        let missing = client.call("read_file", &json!({"path": "nothing"}));
        assert_eq!((&missing["isError"], &missing["structuredContent"]["error"]["step"]), (&json!(true), &json!("file")), "{missing}");
        assert_eq!(ground.snapshot(), before, "nothing reaches the workspace");
        let (code, said) = client.close();
        assert!(code == Some(0) && said.contains("3 files changed: stockade sandbox diff"), "{code:?} {said}");
        // It is kept like the overlay of a run, and comes back the same way.
        let id = said.split("sandbox diff ").nth(1).and_then(|rest| rest.split(' ').next()).expect("an id").to_owned();
        let applied = finish(&mut ground.stockade(["sandbox", "apply", &id]));
        assert_eq!(applied.code, Some(0), "{applied:?}");
        assert_eq!(ground.read("new.txt"), "made\ntwo\n");
        assert!(!ground.work.join("old.txt").exists());
        verified(ground);
        let all = receipts(ground);
        let of_agents: Vec<&Value> = all.iter().filter(|receipt| receipt["principal"]["agent"] == "by-hand/main").collect();
        let kinds = |kind: &str| of_agents.iter().filter(|receipt| receipt["kind"] == kind).count();
        assert_eq!((kinds("intent"), kinds("outcome")), (7, 7), "{of_agents:#?}");
        assert!(of_agents.iter().all(|receipt| receipt["policy"]["verdict"] != "deny"), "{of_agents:#?}");
    });
}

#[test]
fn unchanged_overlays_leave_nothing() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    let mut client = Client::new(&ground);
    assert_eq!(client.shell("echo x > a; rm a")["structuredContent"]["exit_code"], 0);
    let (code, said) = client.close();
    assert_eq!((code, said.contains("changed")), (Some(0), false), "{said}");
    assert_eq!(ground.sandboxes(), [] as [String; 0]);
}

#[test]
fn denials_are_results_that_say_why_and_what_would_change_it() {
    as_both(|ground| {
        let without = {
            let mut client = Client::new(ground);
            let denied = client.shell("true");
            let read = client.call("read_file", &json!({"path": "/etc/hostname"}));
            assert_eq!(read["isError"], true, "{read}");
            denied
        };
        let words = without["content"][0]["text"].as_str().expect("text");
        assert!(without["isError"] == true && words.contains("no-policy") && words.ends_with("stockade init"), "{without}");
        assert_eq!(without["structuredContent"]["decision"]["verdict"], "deny", "{without}");
        let policy = format!(
            "{DEVELOPER}\n@id(\"no-env\") @reason(\"keys live there\") forbid (principal, action, resource) when \
             {{ action == Stockade::Action::\"read\" && resource == Stockade::Path::\"{}/.env\" }};",
            ground.work.display()
        );
        rules(ground, &policy);
        ground.file(".env", "KEY=1");
        let mut client = Client::new(ground);
        let push = client.shell("echo first > x; git push origin main");
        let told = &push["structuredContent"]["decision"];
        assert_eq!((&push["isError"], &told["rule"]), (&json!(true), &json!("agents-do-not-push")), "{push}");
        assert!(push["content"][0]["text"].as_str().expect("text").contains("look at the changes, then push yourself"), "{push}");
        let variable = client.call("shell", &json!({"script": "true", "env": {"LD_PRELOAD": "/x.so"}}));
        assert_eq!(variable["structuredContent"]["decision"]["rule"], "script-variable", "{variable}");
        let hidden = client.shell("$(echo ls)");
        assert_eq!((&hidden["isError"], &hidden["structuredContent"]["exit_code"]), (&json!(true), &Value::Null), "{hidden}");
        let secret = client.call("read_file", &json!({"path": ".env"}));
        assert_eq!(secret["structuredContent"]["decision"]["rule"], "no-env", "{secret}");
        assert!(secret["structuredContent"].get("content").is_none(), "{secret}");
        let fine = client.shell("test -e x; echo $?");
        assert_eq!(fine["structuredContent"]["stdout"], "1\n", "nothing of a denied script ran: {fine}");
        let all = receipts(ground);
        let denied = all.iter().filter(|receipt| receipt["kind"] == "denied" && receipt["principal"]["agent"] == "by-hand/main");
        assert_eq!(denied.count(), 6, "{all:#?}");
        verified(ground);
    });
}

#[test]
fn only_what_the_rules_name_exists_for_a_call() {
    let ground = Ground::new(Who::Ordinary);
    let policy = "@id(\"you\") permit (principal is Stockade::Human, action, resource);\n@id(\"one\") permit (principal == \
                  Stockade::Agent::\"by-hand/main\", action == Stockade::Action::\"exec\", resource == Stockade::Program::\"cat\");";
    rules(&ground, policy);
    ground.file("a.txt", "a\n");
    let mut client = Client::new(&ground);
    assert_eq!(client.shell("cat a.txt")["structuredContent"]["stdout"], "a\n");
    let other = client.shell("wc a.txt");
    assert!(other["isError"] == true, "{other}");
    let suggest = other["structuredContent"]["decision"]["suggest"].as_str().expect("a rule");
    assert!(suggest.contains("Stockade::Agent::\"by-hand/main\"") && suggest.contains("Program::\"wc\""), "{suggest}");
    // The verdict's list is the wall's list: what a program starts in turn is held to it.
    let starts = "awk 'BEGIN { system(\"wc -c a.txt\") }'";
    assert_eq!(client.shell(starts)["structuredContent"]["decision"]["verdict"], "deny");
    rules(&ground, &policy.replace("\"cat\");", "\"awk\");"));
    let held = client.shell(starts);
    assert_eq!(
        (&held["structuredContent"]["decision"]["verdict"], &held["structuredContent"]["stdout"]),
        (&json!("allow"), &json!("")),
        "{held}"
    );
    rules(&ground, DEVELOPER);
    assert_eq!(client.shell(starts)["structuredContent"]["stdout"], "2 a.txt\n");
}

#[test]
fn capabilities_that_the_rules_grant_are_tools() {
    let ground = Ground::new(Who::Ordinary);
    let grant = |which: &str| format!("{DEVELOPER}\n@id(\"caps\") permit (principal is Stockade::Agent, {which}, resource);");
    rules(&ground, &grant("action == Stockade::Action::\"git.log\""));
    ground.host("git init -q -b main . && git config user.name h && git config user.email h@x.org && git commit -q --allow-empty -m only");
    let mut client = Client::new(&ground);
    let names = |client: &mut Client| -> Vec<String> {
        let list = client.ask("tools/list", &json!({}));
        list["result"]["tools"].as_array().expect("tools").iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&mut client)[5..], ["git_log", "approval_wait", "sandbox_status"].map(str::to_owned));
    let log = client.call("git_log", &json!({"max_count": 1}));
    assert_eq!((&log["isError"], &log["structuredContent"]["exit_code"]), (&json!(false), &json!(0)), "{log}");
    assert!(log["structuredContent"]["stdout"].as_str().expect("text").contains("only"), "{log}");
    let wrong = client.call("git_log", &json!({"max_count": "-x"}));
    assert_eq!((&wrong["isError"], &wrong["structuredContent"]["error"]["step"]), (&json!(true), &json!("capability")), "{wrong}");
    let other = client.call("capability_run", &json!({"name": "git.status"}));
    assert_eq!((&other["isError"], &other["structuredContent"]["decision"]["verdict"]), (&json!(true), &json!("deny")), "{other}");
    // Many are found by search.
    rules(&ground, &grant("action in Stockade::Action::\"invoke\""));
    assert_eq!(names(&mut client)[5..], ["capabilities_search", "capability_run", "approval_wait", "sandbox_status"].map(str::to_owned));
    let found = client.call("capabilities_search", &json!({"query": "git log"}));
    let found = found["structuredContent"]["capabilities"].as_array().expect("a list").clone();
    assert!(found.iter().any(|capability| capability["name"] == "git.log" && capability["input"]["type"] == "object"), "{found:?}");
    let run = client.call("capability_run", &json!({"name": "git.log", "input": {"max_count": 1}}));
    assert_eq!(run["structuredContent"]["exit_code"], 0, "{run}");
}
