//! How calls over HTTP end before their time: the client goes, cancels, ends its session; or the server is told to end.

use std::io::{Read as _, Write as _};

use serde_json::{Value, json};

use super::DEVELOPER;
use super::server::{BEARER, MCP, Server, modern_body, modern_fields};
use crate::mcp::{receipts, rules, verified};
use crate::wall::Who;
use crate::wall::ground::{Ground, as_both, eventually, finish, processes, unique_seconds};

fn outcomes(ground: &Ground) -> Vec<Value> {
    receipts(ground).into_iter().filter(|receipt| receipt["kind"] == "outcome").collect()
}

fn sleeps(seconds: &str) -> bool {
    !processes(&format!("sleep\0{seconds}")).is_empty()
}

fn call(script: &str, meta: &Value) -> String {
    modern_body("tools/call", json!({"name": "shell", "arguments": {"script": script}, "_meta": meta}))
}

#[test]
fn who_closes_the_connection_withdraws_the_call() {
    as_both(|ground| {
        rules(ground, DEVELOPER);
        let server = Server::new(ground);
        // Before anything was answered, and while progress streams.
        for (count, meta) in [json!({}), json!({"progressToken": 1})].iter().enumerate() {
            let seconds = unique_seconds();
            let mut stream = server.connect();
            let text = server.text("POST /mcp", &modern_fields("tools/call", "shell"), &call(&format!("sleep {seconds}"), meta));
            stream.write_all(text.as_bytes()).expect("sent");
            eventually("it runs", || sleeps(&seconds));
            if count == 1 {
                stream.read_exact(&mut [0; 64]).expect("progress");
            }
            drop(stream);
            eventually("it is killed", || processes(&seconds).is_empty());
            eventually("the outcome is written", || outcomes(ground).len() == count + 1);
            let outcome = &outcomes(ground)[count];
            assert_eq!(outcome["result"]["signal"], 9, "{outcome}");
            assert!(outcome["violations"][0].as_str().expect("a line").contains("cancelled: the client withdrew"), "{outcome}");
        }
        assert_eq!(server.call("shell", &json!({"script": "echo hi"}))["structuredContent"]["stdout"], "hi\n");
        verified(ground);
    });
}

#[test]
fn a_call_of_a_session_goes_on_without_its_connection_and_ends_when_it_is_cancelled_or_the_session_ends() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    let server = Server::new(&ground);
    let session = server.open();
    let fields = [&MCP[..], &[("Mcp-Session-Id", session.as_str()), ("MCP-Protocol-Version", "2025-11-25")]].concat();
    let begin = |id: i64| {
        let seconds = unique_seconds();
        let params = json!({"name": "shell", "arguments": {"script": format!("sleep {seconds}")}});
        let message = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        let mut stream = server.connect();
        stream.write_all(server.text("POST /mcp", &fields, &message.to_string()).as_bytes()).expect("sent");
        eventually("it runs", || sleeps(&seconds));
        (seconds, stream)
    };
    let (seconds, stream) = begin(1);
    drop(stream);
    assert_eq!(server.request("GET /healthz", &[], "").status, 200);
    assert!(sleeps(&seconds), "a connection that broke can be taken up again");
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1, "reason": "enough"}});
    assert_eq!(server.legacy(Some(&session), &cancelled).0.status, 202);
    eventually("it is killed", || processes(&seconds).is_empty());
    let (seconds, _stream) = begin(2);
    assert_eq!(server.request("DELETE /mcp", &fields, "").status, 202);
    eventually("it is killed", || processes(&seconds).is_empty());
    eventually("both outcomes are written", || outcomes(&ground).len() == 2);
    verified(&ground);
}

#[test]
fn a_signal_ends_what_runs_answers_it_and_keeps_what_was_done() {
    as_both(|ground| {
        rules(ground, DEVELOPER);
        let server = Server::new(ground);
        let seconds = unique_seconds();
        let mut stream = server.connect();
        let script = format!("echo half > half; sleep {seconds}");
        let text = server.text("POST /mcp", &modern_fields("tools/call", "shell"), &call(&script, &json!({})));
        stream.write_all(text.as_bytes()).expect("sent");
        let idle = server.connect();
        let session = server.open();
        let mut listening = server.connect();
        let fields = [&MCP[..], &[("Mcp-Session-Id", session.as_str())]].concat();
        listening.write_all(server.text("GET /mcp", &fields, "").as_bytes()).expect("sent");
        listening.read_exact(&mut [0; 12]).expect("a stream");
        eventually("it runs", || sleeps(&seconds));
        server.signal(rustix::process::Signal::TERM);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"signal\":9"), "{answer}");
        assert!(answer.contains("cancelled: the server ended"), "{answer}");
        let (code, said) = server.ended();
        assert!(code == Some(143) && said.contains("1 file changed"), "{code:?} {said}");
        assert_eq!(processes(&seconds), [] as [u32; 0]);
        assert_eq!(outcomes(ground)[0]["result"]["signal"], 9);
        verified(ground);
        drop(idle);
    });
}

#[test]
fn what_waits_when_a_signal_comes_is_told_that_the_server_ends() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    let server = Server::new(&ground);
    let rest = [BEARER, ("Content-Type", "application/json"), ("X-Stockade-Client", "tests")];
    let begin = |text: String| {
        let mut stream = server.connect();
        stream.write_all(text.as_bytes()).expect("sent");
        stream
    };
    let by_rest = |script: &str| begin(server.text("POST /v1/run", &rest, &json!({ "script": script }).to_string()));
    let by_mcp = |script: &str| begin(server.text("POST /mcp", &modern_fields("tools/call", "shell"), &call(script, &json!({}))));
    // Calls of one agent have its copy of the workspace in turns.
    let (first, second) = (unique_seconds(), unique_seconds());
    let mut running = [by_rest(&format!("sleep {first}")), by_mcp(&format!("sleep {second}"))];
    eventually("both run", || sleeps(&first) && sleeps(&second));
    let mut waiting = [by_rest("echo late > late"), by_mcp("echo late > late")];
    let calls = || serde_json::from_str::<Value>(&server.request("GET /v1/health", &rest, "").body).expect("JSON")["calls"].clone();
    eventually("both wait", || calls() == 4);
    server.signal(rustix::process::Signal::TERM);
    let told = |stream: &mut std::net::TcpStream| {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    let [by_rest, by_mcp] = waiting.each_mut().map(told);
    assert!(by_rest.starts_with("HTTP/1.1 503") && by_rest.contains("{\"error\":"), "{by_rest}");
    assert!(by_mcp.starts_with("HTTP/1.1 200") && by_mcp.contains("\"isError\":true"), "{by_mcp}");
    for answer in [by_rest, by_mcp] {
        assert!(answer.contains("the server is ending, and this call had not begun"), "{answer}");
    }
    for answer in running.each_mut().map(told) {
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"signal\":9"), "{answer}");
    }
    let (code, said) = server.ended();
    assert!(code == Some(143) && !said.contains("changed"), "{code:?} {said}");
    verified(&ground);
}

/// A server that can run nothing any more says so and ends: whatever supervises it starts another.
#[test]
fn without_its_launcher_or_its_steward_it_ends() {
    let ground = Ground::new(Who::Ordinary);
    for role in ["launcher", "steward"] {
        let server = Server::new(&ground);
        let pid = server.pid();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("children");
        let is_it = |child: &&str| std::fs::read_to_string(format!("/proc/{child}/cmdline")).is_ok_and(|line| line.contains(role));
        let child = children.split_whitespace().find(is_it).expect("it runs");
        ground.host(&format!("kill -9 {child}"));
        let (code, said) = server.ended();
        assert!(code == Some(125) && said.contains(&format!("its {role} is gone")) && said.contains("hint: start the server"), "{said}");
    }
}

/// What a killed server left is what its calls changed, and nothing else.
#[test]
fn killed_it_leaves_what_was_changed_and_nothing_else() {
    as_both(|ground| {
        rules(ground, DEVELOPER);
        let server = Server::new(ground);
        for (client, script) in [("looks", "true"), ("changes", "echo x > made")] {
            let fields = [BEARER, ("Content-Type", "application/json"), ("X-Stockade-Client", client)];
            assert_eq!(server.request("POST /v1/run", &fields, &json!({ "script": script }).to_string()).status, 200);
        }
        let all = ground.sandboxes();
        server.signal(rustix::process::Signal::KILL);
        server.ended();
        let listed = || {
            let listed = finish(&mut ground.stockade(["sandbox", "list", "--json"]));
            serde_json::from_str::<Value>(&listed.stdout).expect("JSON")["sandboxes"].clone()
        };
        eventually("one is left", || listed().as_array().map(Vec::len) == Some(1));
        assert_eq!(listed()[0]["changes"], json!([{"path": "made", "kind": "added"}]), "{}", listed());
        // The next start clears the rest away.
        assert_eq!(ground.run(&[], &["true"]).code, Some(0));
        assert_eq!(ground.sandboxes().len(), 1, "what was not changed is gone");
        let groups = || finish(ground.outside("find").args(["/sys/fs/cgroup", "-type", "d", "-name", "stockade-*"])).stdout;
        eventually("no control group of it is left", || !all.iter().any(|id| groups().contains(id)));
    });
}
