//! Calls over HTTP, in both eras: the same server as on standard input.

use serde_json::{Value, json};

use super::DEVELOPER;
use super::server::{Server, modern_body, modern_fields};
use crate::mcp::{receipts, rules, verified};
use crate::wall::Who;
use crate::wall::ground::{Ground, as_both};

#[test]
fn a_client_without_a_session_calls_tools() {
    as_both(|ground| {
        rules(ground, DEVELOPER);
        let server = Server::new(ground);
        let discovered = server.modern("server/discover", "", json!({})).message();
        assert!(discovered["result"]["supportedVersions"].as_array().expect("versions").contains(&json!("2026-07-28")), "{discovered}");
        let listed = server.modern("tools/list", "", json!({})).message();
        assert_eq!(listed["result"]["tools"][0]["name"], "shell", "{listed}");
        let ran = server.call("shell", &json!({"script": "echo hi > f; cat f"}));
        assert_eq!((&ran["structuredContent"]["stdout"], &ran["isError"]), (&json!("hi\n"), &json!(false)), "{ran}");
        // One overlay for one agent, whatever connection it comes by.
        assert_eq!(server.call("read_file", &json!({"path": "f"}))["structuredContent"]["content"], "hi\n");
        assert!(!ground.work.join("f").exists());
        let denied = server.call("shell", &json!({"script": "git push"}));
        assert_eq!((&denied["isError"], &denied["structuredContent"]["decision"]["verdict"]), (&json!(true), &json!("deny")), "{denied}");
        let wrong = server.call("shell", &json!({"scirpt": "ls"}));
        assert_eq!(wrong["isError"], true, "{wrong}");
        for (verdict, count) in [("allow", 2), ("deny", 1), ("ask", 0), ("failed", 1)] {
            assert_eq!(server.metric(&format!("stockade_calls_total{{verdict=\"{verdict}\"}}")), count, "{verdict}");
        }
        assert_eq!(server.metric("stockade_calls_running"), 0);
        assert_eq!(server.metric("stockade_call_duration_seconds_count"), 4);
        let agents: Vec<Value> = receipts(ground).into_iter().map(|receipt| receipt["principal"]["agent"].clone()).collect();
        assert!(agents.iter().all(|agent| agent == "by-hand/main") && agents.len() >= 5, "{agents:?}");
        server.signal(rustix::process::Signal::INT);
        let (code, said) = server.ended();
        assert!(code == Some(130) && said.contains("1 file changed"), "{code:?} {said}");
        verified(ground);
    });
}

#[test]
fn a_client_with_a_session_calls_tools() {
    as_both(|ground| {
        rules(ground, DEVELOPER);
        let server = Server::with(ground, &["--name", "web"]);
        let session = server.open();
        let call = |id: i64, tool: &str, arguments: Value, meta: Value| {
            let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
            let (answer, _) = server.legacy(Some(&session), &json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
            assert_eq!(answer.status, 200, "{answer:?}");
            answer
        };
        let ran = call(1, "shell", json!({"script": "echo hi > f; sleep 1.1"}), json!({"progressToken": "tok"}));
        let progress = ran.messages().iter().filter(|message| message["method"] == "notifications/progress").count();
        assert!(progress >= 1, "{ran:?}");
        assert_eq!(ran.message()["result"]["structuredContent"]["exit_code"], 0, "{ran:?}");
        let read = call(2, "read_file", json!({"path": "f"}), json!({}));
        assert_eq!(read.message()["result"]["structuredContent"]["content"], "hi\n", "{read:?}");
        let status = call(3, "sandbox_status", json!({}), json!({}));
        assert_eq!(status.message()["result"]["structuredContent"]["principal"], "by-hand/web", "{status:?}");
    });
}

#[test]
fn progress_comes_as_a_stream_to_whoever_asks() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    let server = Server::new(&ground);
    let params = json!({"name": "shell", "arguments": {"script": "sleep 1.1; echo done"}, "_meta": {"progressToken": 7}});
    let answer = server.request("POST /mcp", &modern_fields("tools/call", "shell"), &modern_body("tools/call", params));
    assert_eq!(answer.field("content-type").as_deref(), Some("text/event-stream"), "{answer:?}");
    let messages = answer.messages();
    assert_eq!(messages[0]["params"]["progressToken"], 7, "{messages:?}");
    assert_eq!(messages.last().expect("an answer")["result"]["structuredContent"]["stdout"], "done\n", "{messages:?}");
}

#[test]
fn without_a_policy_agents_are_denied_and_calls_are_bounded() {
    let ground = Ground::new(Who::Ordinary);
    let server = Server::new(&ground);
    let denied = server.call("shell", &json!({"script": "ls"}));
    assert_eq!(denied["structuredContent"]["decision"]["rule"], "no-policy", "{denied}");
    rules(&ground, DEVELOPER);
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..80).map(|_| scope.spawn(|| server.call("shell", &json!({"script": "sleep 0.05"})))).collect();
        threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    let (ran, refused): (Vec<&Value>, Vec<&Value>) = answers.iter().partition(|answer| answer["structuredContent"]["exit_code"] == 0);
    let says =
        |answer: &&Value| answer["structuredContent"]["error"]["message"].as_str().is_some_and(|text| text.contains("waiting already"));
    assert!(ran.len() >= 16 && refused.iter().all(says), "{refused:?}");
}
