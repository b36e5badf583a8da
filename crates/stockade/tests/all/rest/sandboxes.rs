//! Sandboxes that agents make, and those that they must not reach.

use std::io::Write as _;

use serde_json::{Value, json};

use super::{FIELDS, ask, told};
use crate::http::DEVELOPER;
use crate::http::server::{BEARER, Server};
use crate::mcp::{receipts, rules, verified};
use crate::wall::ground::{as_both, eventually, finish, processes, unique_seconds};
use crate::wall::{Ground, Who};

#[test]
fn an_agent_makes_a_sandbox_uses_it_and_removes_it() {
    as_both(|ground| {
        rules(ground, DEVELOPER);
        let server = Server::new(ground);
        let made = told(&server, "POST /v1/sandboxes", &json!({"name": "box", "env": {"A": "b"}}), 201);
        let id = made["sandbox_id"].as_str().expect("an id");
        told(&server, "POST /v1/sandboxes", &json!({"name": "box"}), 409);
        let place = format!("/v1/sandboxes/{id}");
        let ran = told(&server, &format!("POST {place}/exec"), &json!({"argv": ["sh", "-c", "cat > f; echo $A"], "stdin": "hi\n"}), 200);
        assert_eq!((&ran["stdout"], &ran["exit_code"]), (&json!("b\n"), &json!(0)), "{ran}");
        assert_eq!(told(&server, &format!("GET {place}/files?path=f"), &Value::Null, 200)["content"], "hi\n");
        told(&server, &format!("GET {place}/files?path=nothing"), &Value::Null, 404);
        told(&server, &format!("GET {place}/files?path=..%2Fx"), &Value::Null, 400);
        told(&server, &format!("GET {place}/files"), &Value::Null, 400);
        told(&server, &format!("PUT {place}/files?path=sub%2Fg"), &json!({"content_base64": "AP8="}), 200);
        assert_eq!(told(&server, &format!("GET {place}/files?path=sub/g"), &Value::Null, 200)["content_base64"], "AP8=");
        let names = told(&server, &format!("GET {place}/files/list?path=sub"), &Value::Null, 200);
        assert_eq!(names["entries"], json!([{"name": "g", "kind": "file", "size": 2}]), "{names}");
        let diff = told(&server, &format!("GET {place}/diff"), &Value::Null, 200);
        assert!(diff["changes"].as_array().expect("changes").len() == 2 && diff["diff"].as_str().expect("text").contains("+hi"), "{diff}");
        assert!(!ground.work.join("f").exists());
        let denied = told(&server, &format!("POST {place}/exec"), &json!({"argv": ["git", "push"]}), 403);
        assert_eq!(denied["decision"]["rule"], "agents-do-not-push", "{denied}");
        let denied = told(&server, &format!("POST {place}/exec"), &json!({"argv": ["true"], "env": {"PATH": "/x"}}), 403);
        assert_eq!(denied["decision"]["verdict"], "deny", "{denied}");
        told(&server, &format!("POST {place}/exec"), &json!({"argv": ["no-such-program"]}), 422);
        let fields = [&FIELDS[..], &[("Accept", "application/x-ndjson")]].concat();
        let streamed = server.request(&format!("POST {place}/exec"), &fields, &json!({"argv": ["echo", "hi"]}).to_string());
        assert!(streamed.body.starts_with("{\"event\":\"stdout\",\"text\":\"hi\\n\"}\n"), "{streamed:?}");
        let listed = told(&server, "GET /v1/sandboxes", &Value::Null, 200);
        assert_eq!((&listed["sandboxes"][0]["name"], listed["sandboxes"].as_array().map(Vec::len)), (&json!("box"), Some(1)), "{listed}");
        // It outlives its server, and is its agent's again.
        server.signal(rustix::process::Signal::TERM);
        server.ended();
        let server = Server::with(ground, &["--new-token"]);
        assert_eq!(told(&server, &format!("GET {place}"), &Value::Null, 200)["status"], "running");
        assert_eq!(told(&server, &format!("DELETE {place}"), &Value::Null, 200)["destroyed"], true);
        told(&server, &format!("GET {place}"), &Value::Null, 404);
        let all = receipts(ground);
        assert!(all.iter().all(|receipt| receipt["principal"]["agent"] == "tests/main"), "{all:?}");
        verified(ground);
    });
}

#[test]
fn what_others_made_is_not_there() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    let typed = finish(&mut ground.stockade(["sandbox", "create", "--name", "mine"]));
    assert_eq!(typed.code, Some(0), "{typed:?}");
    let persons = typed.stdout.trim().to_owned();
    let server = Server::new(&ground);
    let made = told(&server, "POST /v1/sandboxes", &Value::Null, 201);
    let agents = made["sandbox_id"].as_str().expect("an id").to_owned();
    let other = [BEARER, ("Content-Type", "application/json"), ("X-Stockade-Client", "other")];
    let body = json!({"argv": ["true"]}).to_string();
    let reach = |fields: &[(&str, &str)], id: &str| {
        let place = format!("/v1/sandboxes/{id}");
        [
            server.request(&format!("GET {place}"), fields, "").status,
            server.request(&format!("POST {place}/exec"), fields, &body).status,
            server.request(&format!("GET {place}/files?path=x"), fields, "").status,
            server.request(&format!("PUT {place}/files?path=x"), fields, "{\"content\": \"x\"}").status,
            server.request(&format!("GET {place}/files/list?path=."), fields, "").status,
            server.request(&format!("GET {place}/diff"), fields, "").status,
            server.request(&format!("DELETE {place}"), fields, "").status,
        ]
    };
    assert_eq!(reach(&FIELDS, &persons), [404; 7]);
    assert_eq!(reach(&FIELDS, "mine"), [404; 7]);
    assert_eq!(reach(&FIELDS, agents.get(..8).expect("half an id")), [404; 7]);
    assert_eq!(reach(&other, &agents), [404; 7]);
    // The copies of the workspace that runs share are no sandboxes of this kind.
    let ran = told(&server, "POST /v1/run", &json!({"script": "echo > made"}), 200);
    assert_eq!(reach(&FIELDS, ran["sandbox_id"].as_str().expect("an id")), [404; 7]);
    assert_eq!(finish(&mut ground.stockade(["sandbox", "exec", "mine", "--", "true"])).code, Some(0));
    assert_eq!(ask(&server, &format!("DELETE /v1/sandboxes/{agents}"), &Value::Null).status, 200);
    assert_eq!(finish(&mut ground.stockade(["sandbox", "destroy", "mine"])).code, Some(0));
}

#[test]
fn who_goes_away_ends_their_program() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    let server = Server::new(&ground);
    let made = told(&server, "POST /v1/sandboxes", &json!({}), 201);
    let place = format!("/v1/sandboxes/{}", made["sandbox_id"].as_str().expect("an id"));
    let seconds = unique_seconds();
    let mut stream = server.connect();
    let body = json!({"argv": ["sleep", seconds]}).to_string();
    stream.write_all(server.text(&format!("POST {place}/exec"), &FIELDS, &body).as_bytes()).expect("sent");
    eventually("it runs", || !processes(&format!("sleep\0{seconds}")).is_empty());
    drop(stream);
    eventually("it is killed", || processes(&format!("sleep\0{seconds}")).is_empty());
    eventually("the outcome is written", || {
        receipts(&ground).iter().any(|receipt| receipt["kind"] == "outcome" && receipt["result"]["signal"] == 9)
    });
    let ran = told(&server, &format!("POST {place}/exec"), &json!({"argv": ["echo", "hi"]}), 200);
    assert_eq!(ran["stdout"], "hi\n", "the sandbox stands");
    assert_eq!(ask(&server, &format!("DELETE {place}"), &Value::Null).status, 200);
}
