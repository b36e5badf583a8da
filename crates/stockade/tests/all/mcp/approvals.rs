//! Calls of agents that a person must approve: pending, waited for, run once; and agents that try to get more out of it.

use serde_json::{Value, json};

use super::client::Client;
use super::{receipts, rules, verified};
use crate::wall::Who;
use crate::wall::ground::{Ground, as_both, eventually, finish};

/// Agents may do anything, and a person looks at whatever `touch` does and at whatever is written.
pub(crate) const ASKS: &str = r#"
permit (principal is Stockade::Human, action, resource);
@id("free") permit (principal is Stockade::Agent, action == Stockade::Action::"exec", resource)
  unless { resource == Stockade::Program::"touch" };
@id("ask") @reason("look first") @approval("required")
permit (principal is Stockade::Agent, action == Stockade::Action::"exec", resource == Stockade::Program::"touch");
permit (principal is Stockade::Agent, action == Stockade::Action::"read", resource);
@id("ask-write") @reason("look at it") @approval("required")
permit (principal is Stockade::Agent, action == Stockade::Action::"write", resource);
"#;

/// The request that a result names.
pub(super) fn request_of(result: &Value) -> String {
    let told = &result["structuredContent"]["decision"];
    assert_eq!((&result["isError"], &told["verdict"]), (&json!(true), &json!("ask")), "{result}");
    told["approval_id"].as_str().unwrap_or_else(|| panic!("no request: {result}")).to_owned()
}

/// A person types this.
pub(super) fn person(ground: &Ground, words: &[&str]) -> Value {
    let said = finish(&mut ground.stockade(["approvals"].iter().chain(words).chain(&["--json"])));
    assert_eq!(said.code, Some(0), "{words:?}: {said:?}");
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

pub(super) fn words(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"))
}

fn wait(client: &mut Client, id: &str, seconds: f64) -> Value {
    client.call("approval_wait", &json!({"approval_id": id, "timeout_seconds": seconds}))
}

#[test]
fn what_waits_says_so_and_runs_once_when_it_is_approved() {
    as_both(|ground| {
        rules(ground, ASKS);
        let mut client = Client::new(ground);
        let asked = client.shell("touch x; echo made");
        let id = request_of(&asked);
        let told = words(&asked);
        assert!(told.starts_with("Approval pending, nothing ran: look first (ask, "), "{told}");
        assert!(told.contains(&format!("stockade approvals approve {id}")) && told.contains("approval_wait"), "{told}");
        assert_eq!(asked["structuredContent"]["exit_code"], Value::Null, "{asked}");
        // The same call is the same request, and nobody has answered it.
        assert_eq!(request_of(&client.shell("touch x; echo made")), id);
        let still = wait(&mut client, &id, 0.0);
        assert_eq!((&still["isError"], &still["structuredContent"]["approval"]["state"]), (&json!(true), &json!("pending")), "{still}");
        let shown = person(ground, &["show", &id]);
        let text = shown["shown"].as_str().expect("text");
        for part in ["who         Agent::\"by-hand/main\"", "script      | touch x; echo made", "look first"] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        assert_eq!(shown["times"], 2, "{shown}");
        // Whoever waits when it is approved has the call's own result.
        let waits = client.begin("approval_wait", &json!({"approval_id": id}));
        person(ground, &["approve", &id]);
        let ran = client.answer(waits)["result"].clone();
        let result = &ran["structuredContent"];
        assert_eq!((&ran["isError"], &result["exit_code"], &result["stdout"]), (&json!(false), &json!(0), &json!("made\n")), "{ran}");
        assert_eq!(result["changes"], json!([{"path": "x", "kind": "added"}]), "{ran}");
        assert_eq!((&result["approval"]["id"], &result["approval"]["state"]), (&json!(id), &json!("used")), "{ran}");
        // Once.
        let again = wait(&mut client, &id, 5.0);
        assert_eq!((&again["isError"], &again["structuredContent"]["approval"]["state"]), (&json!(true), &json!("used")), "{again}");
        assert_ne!(request_of(&client.shell("touch x; echo made")), id, "used up");
        verified(ground);
        let all = receipts(ground);
        let approved: Vec<&Value> = all.iter().filter(|one| one["approval"]["shown_sha256"] == shown["shown_sha256"]).collect();
        let kinds: Vec<&str> = approved.iter().filter_map(|one| one["kind"].as_str()).collect();
        assert_eq!(kinds, ["approval", "intent", "outcome"], "{all:#?}");
        assert!(approved.iter().all(|one| one["approval"]["method"] == "same-uid"), "{approved:#?}");
    });
}

#[test]
fn files_are_asked_about_with_all_they_are_to_hold() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, ASKS);
    let mut client = Client::new(&ground);
    let arguments = json!({"path": "deep/x", "content": "one\n\u{202e}two\n"});
    let id = request_of(&client.call("write_file", &arguments));
    let shown = person(&ground, &["approve", &id])["shown"].as_str().expect("text").to_owned();
    assert!(
        shown.contains(&format!("writes      {}/deep/x\ncontents    | one\n            | \\u{{202e}}two\n", ground.work.display())),
        "{shown}"
    );
    // It was approved before anybody waited; repeating the call is as good.
    let written = client.call("write_file", &arguments);
    assert_eq!((&written["isError"], &written["structuredContent"]["bytes"]), (&json!(false), &json!(11)), "{written}");
    assert_eq!(client.shell("cat deep/x | wc -l")["structuredContent"]["stdout"], "2\n");
    // What a person could not be shown whole cannot be asked for.
    let long = client.call("write_file", &json!({"path": "y", "content": "x".repeat(100_000)}));
    assert!(words(&long).contains("too long to be shown") && long["structuredContent"]["decision"]["approval_id"].is_null(), "{long}");
}

#[test]
fn a_no_is_said_and_stands() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, ASKS);
    let mut client = Client::new(&ground);
    let id = request_of(&client.shell("touch x"));
    let waits = client.begin("approval_wait", &json!({"approval_id": id}));
    person(&ground, &["deny", &id]);
    let denied = client.answer(waits)["result"].clone();
    assert_eq!((&denied["isError"], &denied["structuredContent"]["approval"]["state"]), (&json!(true), &json!("denied")), "{denied}");
    let again = client.shell("touch x");
    assert!(again["isError"] == true && words(&again).contains(&format!("said no to the request {id}")), "{again}");
    assert_eq!(client.shell("ls")["structuredContent"]["stdout"], "");
}

/// The overlay belongs to the call: whatever changes in it, or in the rules, makes another request.
#[test]
fn what_changes_meanwhile_is_another_call() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, ASKS);
    ground.file("deploy.sh", "echo from the workspace\n");
    let mut client = Client::new(&ground);
    let script = "touch x; bash deploy.sh";
    let first = request_of(&client.shell(script));
    person(&ground, &["approve", &first]);
    // The agent puts another script in the place of the one that was approved.
    assert_eq!(client.shell("echo 'echo something else' > deploy.sh")["structuredContent"]["exit_code"], 0);
    let second = request_of(&client.shell(script));
    assert_ne!(second, first);
    let shown = person(&ground, &["show", &second])["shown"].as_str().expect("text").to_owned();
    assert!(shown.contains("overlay     changes made before: 1, sha256 "), "{shown}");
    assert!(shown.contains("changed     deploy.sh (other contents, sha256 "), "{shown}");
    assert!(!shown.contains("file        "), "the workspace's own file is not what runs: {shown}");
    // Approved, then changed while somebody waits for it: it does not run, and says which request it is now.
    assert_eq!(client.shell("echo more > y")["structuredContent"]["exit_code"], 0);
    person(&ground, &["approve", &second]);
    let waited = wait(&mut client, &second, 20.0);
    let third = request_of(&waited);
    assert!(third != second && third != first, "{waited}");
    // As it was approved first, it runs with that approval, by repeating the call.
    assert_eq!(client.shell("rm y; echo 'echo from the workspace' > deploy.sh")["structuredContent"]["exit_code"], 0);
    let ran = client.shell(script);
    assert_eq!(ran["structuredContent"]["stdout"], "from the workspace\n", "{ran}");
    // What the rules forbid by the time it is approved stays denied.
    let fourth = request_of(&client.shell("touch z"));
    person(&ground, &["approve", &fourth]);
    rules(&ground, &format!("{ASKS}\n@id(\"never\") forbid (principal, action, resource == Stockade::Program::\"touch\");"));
    let denied = wait(&mut client, &fourth, 20.0);
    assert_eq!(denied["structuredContent"]["decision"]["rule"], "never", "{denied}");
}

#[test]
fn after_a_restart_nothing_runs_by_itself() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, ASKS);
    let mut client = Client::new(&ground);
    let id = request_of(&client.shell("touch x"));
    client.close();
    person(&ground, &["approve", &id]);
    let mut client = Client::new(&ground);
    let told = wait(&mut client, &id, 5.0);
    assert_eq!((&told["isError"], &told["structuredContent"]["approval"]["state"]), (&json!(false), &json!("approved")), "{told}");
    assert!(words(&told).contains("Repeat the very same call"), "{told}");
    assert_eq!(client.shell("ls")["structuredContent"]["stdout"], "", "nothing ran");
    assert_eq!(client.shell("touch x")["structuredContent"]["exit_code"], 0);
    assert_eq!(wait(&mut client, &id, 5.0)["structuredContent"]["approval"]["state"], "used");
}

#[test]
fn of_many_that_race_for_one_approval_one_runs() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, ASKS);
    let mut client = Client::new(&ground);
    let call = json!({"script": "touch x; echo ran >> /dev/stdout"});
    let id = request_of(&client.call("shell", &call));
    person(&ground, &["approve", &id]);
    let mut all: Vec<i64> = (0..6).map(|_| client.begin("shell", &call)).collect();
    all.extend((0..6).map(|_| client.begin("approval_wait", &json!({"approval_id": id, "timeout_seconds": 0}))));
    let answers: Vec<Value> = all.into_iter().map(|id| client.answer(id)).collect();
    let ran = answers.iter().filter(|answer| answer["result"]["structuredContent"]["stdout"] == "ran\n").count();
    assert_eq!(ran, 1, "{answers:#?}");
    let intents =
        receipts(&ground).into_iter().filter(|one| one["kind"] == "intent" && one["principal"]["agent"] == "by-hand/main").count();
    assert_eq!(intents, 1, "{answers:#?}");
}

#[test]
fn another_agents_request_is_as_unknown_as_none() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, ASKS);
    let mut client = Client::new(&ground);
    let id = request_of(&client.shell("touch x"));
    let mut other = Client::known_as(&ground, "somebody else", &json!({}));
    person(&ground, &["approve", &id]);
    let (theirs, nothing) = (wait(&mut other, &id, 5.0), wait(&mut other, "000000000000", 5.0));
    let said = |result: &Value, id: &str| words(result).replace(id, "ID");
    assert_eq!(theirs["isError"], true, "{theirs}");
    assert_eq!(said(&theirs, &id), said(&nothing, "000000000000"));
    assert!(!theirs.to_string().contains("touch"), "{theirs}");
    // The same call of another agent is another request, too.
    assert_ne!(request_of(&other.shell("touch x")), id);
    for bad in ["", "../../etc", "ZZZZZZZZZZZZ", "0000000000000"] {
        let wrong = client.call("approval_wait", &json!({"approval_id": bad}));
        assert_eq!(wrong["structuredContent"]["error"]["step"], "arguments", "{wrong}");
    }
    assert_eq!(client.call("approval_wait", &json!({"approval_id": id, "timeout_seconds": 1e9}))["isError"], true);
    assert_eq!(client.shell("touch x")["structuredContent"]["exit_code"], 0, "its own is still there");
}

#[test]
fn a_client_that_wants_progress_is_kept_waiting_and_told_so() {
    as_both(|ground| {
        rules(ground, ASKS);
        let mut client = Client::new(ground);
        let call = client.begin_patiently("shell", &json!({"script": "touch x; echo made"}));
        let message = loop {
            let progress = client.told("notifications/progress");
            let message = progress["params"]["message"].as_str().expect("words").to_owned();
            if message != "the call runs" {
                break message;
            }
        };
        let id = message.strip_prefix("waiting for approval ").and_then(|rest| rest.split(':').next()).expect("an id").to_owned();
        assert_eq!(message, format!("waiting for approval {id}: stockade approvals approve {id}"));
        person(ground, &["approve", &id]);
        let ran = client.answer(call);
        assert_eq!(ran["result"]["structuredContent"]["stdout"], "made\n", "{ran}");
        assert_eq!(ran["result"]["structuredContent"]["approval"]["id"], json!(id), "{ran}");
        // Others are not held up by one that waits, and a withdrawn one leaves its request.
        let call = client.begin_patiently("shell", &json!({"script": "touch y"}));
        eventually("it is asked for", || person(ground, &["list"])["approvals"].as_array().is_some_and(|all| all.len() == 1));
        assert_eq!(client.shell("ls")["structuredContent"]["stdout"], "x\n");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}}));
        let listed = person(ground, &["list"]);
        let left = listed["approvals"][0]["id"].as_str().expect("an id").to_owned();
        person(ground, &["approve", &left]);
        assert_eq!(client.shell("ls")["structuredContent"]["stdout"], "x\n", "a withdrawn call does not run: {listed}");
        assert_eq!(client.shell("touch y; ls")["isError"], true, "and its approval is for nothing else");
        assert_eq!(client.shell("touch y")["structuredContent"]["exit_code"], 0);
        verified(ground);
    });
}

#[test]
fn the_end_of_input_ends_the_wait() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, ASKS);
    let mut client = Client::new(&ground);
    let id = request_of(&client.shell("touch x"));
    client.begin("approval_wait", &json!({"approval_id": id, "timeout_seconds": 600}));
    client.begin_patiently("shell", &json!({"script": "touch y"}));
    eventually("both wait", || person(&ground, &["list"])["approvals"].as_array().is_some_and(|all| all.len() == 2));
    let (code, said) = client.close();
    assert_eq!(code, Some(0), "{said}");
    let listed = person(&ground, &["list"]);
    assert!(listed["approvals"].as_array().expect("requests").iter().all(|one| one["state"] == "pending"), "{listed}");
}

#[test]
fn hostile_words_are_shown_for_what_they_are() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, ASKS);
    let mut client = Client::known_as(&ground, "evil\u{202e}\nwho  root", &json!({}));
    let script = format!("touch 'a\u{202e}b\u{200b}c{}e'\n# who         Human::\"root\"", " ".repeat(300));
    let contents = json!({"path": "x", "content": "a\u{1b}[2K\rb\u{7}\u{2066}c"});
    for (tool, arguments, expected) in [
        ("shell", json!({"script": script}), "\\u{202e}b\\u{200b}c\\u{20}*300 e'"),
        ("write_file", contents, "a\\u{1b}[2K\\rb\\u{7}\\u{2066}c"),
    ] {
        let asked = client.call(tool, &arguments);
        let shown = person(&ground, &["show", &request_of(&asked)])["shown"].as_str().expect("text").to_owned();
        assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
        assert!(shown.contains(expected) && !shown.contains(['\u{202e}', '\u{200b}', '\u{2066}']), "{shown}");
        assert_eq!(shown.lines().filter(|line| line.starts_with("who")).count(), 1, "{shown}");
        assert!(words(&asked).chars().all(|c| c == '\n' || !c.is_control()), "{asked}");
    }
}
