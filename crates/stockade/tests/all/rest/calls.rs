//! Calls over REST: the same engine, the same object as `run --json`, as a whole or as events.

use std::io::{Read as _, Write as _};

use serde_json::{Value, json};

use super::{FIELDS, ask, told};
use crate::http::DEVELOPER;
use crate::http::server::Server;
use crate::mcp::{receipts, rules, verified};
use crate::wall::ground::{as_both, eventually, processes, unique_seconds};
use crate::wall::{Ground, Who};

/// Agents may run anything, and look at git.
const CAPABILITIES: &str =
    "permit (principal is Stockade::Agent, action in Stockade::Action::\"invoke\", resource) when { resource.effect == \"read\" };\n";

#[test]
fn a_call_is_answered_with_the_object_of_run() {
    as_both(|ground| {
        rules(ground, DEVELOPER);
        let server = Server::new(ground);
        let ran =
            told(&server, "POST /v1/run", &json!({"script": "cat; echo err >&2; echo x > made", "stdin": "in\n", "env": {"A": "b"}}), 200);
        assert_eq!((&ran["stdout"], &ran["stderr"], &ran["exit_code"]), (&json!("in\n"), &json!("err\n"), &json!(0)), "{ran}");
        assert_eq!(ran["changes"], json!([{"path": "made", "kind": "added"}]), "{ran}");
        let mut keys: Vec<&String> = ran.as_object().expect("an object").keys().collect();
        keys.sort();
        let (_, typed) = ground.json(&[], &["true"]);
        let mut expected: Vec<&String> = typed.as_object().expect("an object").keys().collect();
        expected.sort();
        assert_eq!(keys, expected, "what `run --json` prints");
        // One copy of the workspace for one agent, and the real one is as it was.
        let read = told(&server, "POST /v1/run", &json!({"argv": ["cat", "made"]}), 200);
        assert!(read["stdout"] == "x\n" && !ground.work.join("made").exists(), "{read}");
        let failed = told(&server, "POST /v1/run", &json!({"argv": ["false"]}), 200);
        assert_eq!(failed["exit_code"], 1, "{failed}");
        let late = told(&server, "POST /v1/run", &json!({"script": "sleep 30", "timeout_seconds": 0.2}), 200);
        assert_eq!((&late["timed_out"], &late["exit_code"]), (&json!(true), &Value::Null), "{late}");
        let binary = told(&server, "POST /v1/run", &json!({"argv": ["cat"], "stdin_base64": "AP8="}), 200);
        assert_eq!(binary["stdout_base64"], "AP8=", "{binary}");
        let denied = told(&server, "POST /v1/run", &json!({"script": "git push"}), 403);
        assert_eq!(
            (&denied["decision"]["verdict"], &denied["decision"]["rule"]),
            (&json!("deny"), &json!("agents-do-not-push")),
            "{denied}"
        );
        let variable = told(&server, "POST /v1/run", &json!({"argv": ["true"], "env": {"LD_PRELOAD": "x"}}), 403);
        assert_eq!(variable["decision"]["verdict"], "deny", "{variable}");
        told(&server, "POST /v1/run", &json!({"argv": ["no-such-program"]}), 422);
        told(&server, "POST /v1/run", &json!({"argv": ["true"], "cwd": "nowhere"}), 400);
        for (verdict, count) in [("allow", 5), ("deny", 2), ("failed", 2)] {
            assert_eq!(server.metric(&format!("stockade_calls_total{{verdict=\"{verdict}\"}}")), count, "{verdict}");
        }
        let agents: Vec<Value> = receipts(ground).into_iter().map(|receipt| receipt["principal"]["agent"].clone()).collect();
        assert!(agents.iter().filter(|agent| *agent == "tests/main").count() >= 14, "{agents:?}");
        verified(ground);
    });
}

/// Sixteen overlays are the most, and one that holds nothing gives way.
#[test]
fn an_agent_that_changed_nothing_keeps_nobody_out() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    let server = Server::new(&ground);
    let call = |agent: &str, script: &str| {
        let fields = [FIELDS[0], FIELDS[1], ("X-Stockade-Client", agent)];
        server.request("POST /v1/run", &fields, &json!({ "script": script }).to_string())
    };
    let change = |number: usize| call(&format!("changes-{number}"), "echo x > made").status;
    let look = |number: usize| call(&format!("looks-{number}"), "true").status;
    assert_eq!((0..20).map(look).collect::<Vec<_>>(), [200; 20], "nothing is left of any of them");
    assert_eq!((0..15).map(change).collect::<Vec<_>>(), [200; 15]);
    assert_eq!((0..3).map(look).collect::<Vec<_>>(), [200; 3], "one place is for whoever comes");
    assert_eq!(change(15), 200);
    let refused = call("looks-0", "true");
    let hint = refused.json()["error"]["hint"].as_str().map(str::to_owned);
    assert!(refused.status == 429 && hint.is_some_and(|hint| hint.contains("sandbox list")), "{refused:?}");
    let kept = call("changes-0", "cat made");
    assert_eq!((kept.status, &kept.json()["stdout"]), (200, &json!("x\n")), "what was changed is still there");
}

#[test]
fn without_a_policy_everything_is_denied() {
    let ground = Ground::new(Who::Ordinary);
    let server = Server::new(&ground);
    let denied = told(&server, "POST /v1/run", &json!({"script": "true"}), 403);
    assert_eq!(denied["decision"]["rule"], "no-policy", "{denied}");
    let denied = told(&server, "POST /v1/sandboxes", &json!({}), 403);
    assert_eq!(denied["decision"]["rule"], "no-policy", "{denied}");
    let denied = told(&server, "POST /v1/capabilities/git.log/run", &json!({}), 403);
    assert_eq!(denied["decision"]["rule"], "no-policy", "{denied}");
    assert_eq!(told(&server, "GET /v1/capabilities", &Value::Null, 200)["capabilities"], json!([]));
    let kinds: Vec<Value> = receipts(&ground).into_iter().map(|receipt| receipt["kind"].clone()).collect();
    assert_eq!(kinds, ["denied", "denied", "denied"]);
    assert_eq!(ground.sandboxes(), [] as [String; 0]);
}

#[test]
fn capabilities_are_found_shown_tried_and_run() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, &format!("{DEVELOPER}\n{CAPABILITIES}"));
    ground.host("git init -q . && git -c user.name=n -c user.email=e commit -q --allow-empty -m first");
    let server = Server::new(&ground);
    let listed = told(&server, "GET /v1/capabilities", &Value::Null, 200);
    let names: Vec<&str> = listed["capabilities"].as_array().expect("a list").iter().filter_map(|one| one["name"].as_str()).collect();
    assert!(names.contains(&"git.log") && !names.contains(&"git.push"), "{names:?}");
    let shown = told(&server, "GET /v1/capabilities/git.log", &Value::Null, 200);
    assert_eq!((&shown["effect"], &shown["program"]), (&json!("read"), &json!("git")), "{shown}");
    told(&server, "GET /v1/capabilities/no.such", &Value::Null, 404);
    told(&server, "POST /v1/capabilities/no.such/run", &json!({}), 404);
    let tried = told(&server, "POST /v1/capabilities/git.log/run", &json!({"dry_run": true}), 200);
    assert!(tried["decision"]["verdict"] == "allow" && tried["argv"].is_array(), "{tried}");
    let before = receipts(&ground).len();
    assert_eq!(before, 0, "what is only tried leaves no receipt");
    let ran = told(&server, "POST /v1/capabilities/git.log/run", &json!({}), 200);
    assert!(ran["stdout"].as_str().expect("text").contains("first"), "{ran}");
    told(&server, "POST /v1/capabilities/git.log/run", &json!({"input": {"no_such": 1}}), 400);
}

#[test]
fn output_comes_as_events_to_whoever_asks() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    let server = Server::new(&ground);
    let body = json!({"script": "echo a; sleep 0.2; echo b >&2; printf '\\xff'; exit 3"}).to_string();
    let accept = |kind: &'static str| [&FIELDS[..], &[("Accept", kind)]].concat();
    let answer = server.request("POST /v1/run", &accept("application/x-ndjson"), &body);
    assert_eq!((answer.status, answer.field("content-type").as_deref()), (200, Some("application/x-ndjson")), "{answer:?}");
    let events: Vec<Value> = answer.body.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let output: Vec<&Value> = events.iter().filter(|event| event["event"] != "result").collect();
    assert_eq!(output.iter().filter(|event| event["event"] == "stderr" && event["text"] == "b\n").count(), 1, "{events:?}");
    assert!(output.iter().any(|event| event["base64"] == "/w=="), "{events:?}");
    let last = events.last().expect("an event");
    assert_eq!((&last["event"], &last["result"]["exit_code"]), (&json!("result"), &json!(3)), "{last}");
    let answer = server.request("POST /v1/run", &accept("text/event-stream"), &body);
    let kinds: Vec<&str> = answer.body.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert!(kinds.first() == Some(&"stdout") && kinds.last() == Some(&"result"), "{answer:?}");
    assert_eq!(answer.message()["exit_code"], 3, "{answer:?}");
    // What is refused is refused as a whole, with its status.
    let denied = server.request("POST /v1/run", &accept("text/event-stream"), &json!({"script": "git push"}).to_string());
    assert_eq!((denied.status, &denied.json()["decision"]["verdict"]), (403, &json!("deny")), "{denied:?}");
}

#[test]
fn who_goes_away_withdraws_the_call() {
    as_both(|ground| {
        rules(ground, DEVELOPER);
        let server = Server::new(ground);
        for (count, kind) in ["application/json", "application/x-ndjson"].into_iter().enumerate() {
            let seconds = unique_seconds();
            let mut stream = server.connect();
            let body = json!({"script": format!("echo begun; sleep {seconds}")}).to_string();
            let fields = [&FIELDS[..], &[("Accept", kind)]].concat();
            stream.write_all(server.text("POST /v1/run", &fields, &body).as_bytes()).expect("sent");
            eventually("it runs", || !processes(&format!("sleep\0{seconds}")).is_empty());
            if count == 1 {
                stream.read_exact(&mut [0; 64]).expect("events");
            }
            drop(stream);
            eventually("it is killed", || processes(&seconds).is_empty());
            let outcomes = || receipts(ground).into_iter().filter(|receipt| receipt["kind"] == "outcome").collect::<Vec<_>>();
            eventually("the outcome is written", || outcomes().len() == count + 1);
            let outcome = &outcomes()[count];
            assert_eq!(outcome["result"]["signal"], 9, "{outcome}");
            assert!(outcome["violations"][0].as_str().expect("a line").contains("cancelled"), "{outcome}");
        }
        assert_eq!(ask(&server, "POST /v1/run", &json!({"script": "echo hi"})).json()["stdout"], "hi\n");
        verified(ground);
    });
}

#[test]
fn a_reader_that_reads_nothing_stops_nobody() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    let server = Server::new(&ground);
    let mut stream = server.connect();
    let fields = [&FIELDS[..], &[("Accept", "text/event-stream"), ("X-Stockade-Client", "idle")]].concat();
    let fields: Vec<(&str, &str)> =
        fields.into_iter().filter(|(name, value)| !(*name == "X-Stockade-Client" && *value == "tests")).collect();
    let body = json!({"script": "head -c 9000000 /dev/zero | tr '\\0' x; echo done > done"}).to_string();
    stream.write_all(server.text("POST /v1/run", &fields, &body).as_bytes()).expect("sent");
    eventually("the program ends though nobody reads", || {
        receipts(&ground).iter().any(|receipt| receipt["kind"] == "outcome" && receipt["result"]["exit_code"] == 0)
    });
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.matches('x').count() > 9_000_000 && answer.contains("event: result"), "{} bytes", answer.len());
}
