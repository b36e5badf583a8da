//! What only says something: the server, its document, receipts, and whose they are.

use serde_json::{Value, json};

use super::{FIELDS, ask, told};
use crate::http::DEVELOPER;
use crate::http::server::{BEARER, Server};
use crate::mcp::rules;
use crate::wall::ground::finish;
use crate::wall::{Ground, Who};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

#[test]
fn the_server_says_who_asks() {
    let ground = Ground::new(Who::Ordinary);
    let server = Server::with(&ground, &["--name", "web"]);
    let of = |fields: &[(&str, &str)]| {
        let answer = server.request("GET /v1/health", &[&[BEARER], fields].concat(), "");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["principal"].clone()
    };
    assert_eq!(of(&[]), "unknown/web");
    assert_eq!(of(&[("User-Agent", "python-requests/2.34.2")]), "python-requests/web");
    assert_eq!(of(&[("User-Agent", "curl/8"), ("X-Stockade-Client", "a/b c")]), "a-b-c/web");
    assert_eq!(of(&[("X-Stockade-Client", "root\"")]), "root\"/web");
    assert_eq!(server.request("GET /v1/health", &[], "").status, 401);
}

#[test]
fn the_document_is_served_and_every_path_of_it_answers() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    let server = Server::new(&ground);
    let document = told(&server, "GET /v1/openapi.json", &Value::Null, 200);
    let committed: Value = serde_json::from_str(include_str!("../../../../../docs/reference/openapi.json")).expect("JSON");
    assert_eq!(document, committed, "run `cargo xtask docs` and commit the page");
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.len() >= 16, "{}", paths.len());
    for (path, methods) in paths {
        let path = path.replace("{id}", "0000000000000000").replace("{name}", "git.log");
        for method in methods.as_object().expect("methods").keys() {
            let answer = ask(&server, &format!("{} {path}", method.to_uppercase()), &Value::Null);
            assert!(answer.status < 500 && answer.status != 405 && answer.json().is_object(), "{method} {path}: {answer:?}");
        }
        assert_eq!(ask(&server, &format!("PATCH {path}"), &Value::Null).status, 405, "{path}");
    }
}

#[test]
fn receipts_are_those_of_the_asker() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    assert_eq!(ground.run(&[], &["true"]).code, Some(0));
    let server = Server::new(&ground);
    let ran = told(&server, "POST /v1/run", &json!({"argv": ["true"]}), 200);
    told(&server, "POST /v1/run", &json!({"script": "git push"}), 403);
    let listed = |query: &str| {
        let answer = told(&server, &format!("GET /v1/receipts{query}"), &Value::Null, 200);
        answer["receipts"].as_array().expect("a list").clone()
    };
    let all = listed("");
    assert_eq!(all.iter().map(|one| one["kind"].as_str().expect("a kind")).collect::<Vec<_>>(), ["denied", "outcome", "intent"]);
    assert!(all.iter().all(|one| one["principal"]["agent"] == "tests/main"), "{all:?}");
    assert_eq!(listed("?kind=outcome&program=true").len(), 1);
    assert_eq!(listed("?verdict=deny&since=1h").len(), 1);
    assert_eq!(listed(&format!("?limit=1&before={}", all[1]["seq"])), all[2..]);
    let id = ran["receipt_id"].as_str().expect("an id");
    assert_eq!(told(&server, &format!("GET /v1/receipts/{id}"), &Value::Null, 200)["receipts"].as_array().expect("a list").len(), 2);
    // Others see nothing of it, and nobody what a person did.
    let other = [BEARER, ("X-Stockade-Client", "other")];
    assert_eq!(server.request(&format!("GET /v1/receipts/{id}"), &other, "").status, 404);
    assert_eq!(server.request("GET /v1/receipts", &other, "").json()["receipts"], json!([]));
    let persons = crate::mcp::receipts(&ground)[0]["receipt_id"].as_str().expect("an id").to_owned();
    told(&server, &format!("GET /v1/receipts/{persons}"), &Value::Null, 404);
    for bad in
        ["?limit=0", "?limit=1001", "?limit=x", "?kind=x", "?verdict=maybe", "?since=yesterday", "?agent=x", "?kind=outcome&kind=intent"]
    {
        told(&server, &format!("GET /v1/receipts{bad}"), &Value::Null, 400);
    }
}

#[test]
fn a_call_belongs_to_the_trace_of_its_caller() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    let server = Server::new(&ground);
    let traceparent = format!("00-{TRACE}-{SPAN}-01");
    let body = json!({"argv": ["true"]}).to_string();
    let traced = server.request("POST /v1/run", &[&FIELDS[..], &[("traceparent", traceparent.as_str())]].concat(), &body);
    let id = traced.json()["receipt_id"].as_str().expect("an id").to_owned();
    let untraced = server.request("POST /v1/run", &[&FIELDS[..], &[("traceparent", "00-nonsense")]].concat(), &body);
    assert_eq!(untraced.status, 200, "{untraced:?}");
    let shown = told(&server, &format!("GET /v1/receipts/{id}"), &Value::Null, 200);
    for receipt in shown["receipts"].as_array().expect("a list") {
        assert_eq!(receipt["trace"], json!({"trace_id": TRACE, "parent_id": SPAN}), "{receipt}");
    }
    let over_mcp = server.modern(
        "tools/call",
        "shell",
        json!({"name": "shell", "arguments": {"script": "true"}, "_meta": {"traceparent": traceparent}}),
    );
    assert_eq!(over_mcp.status, 200, "{over_mcp:?}");
    let exported = finish(&mut ground.stockade(["receipts", "export", "--format", "otlp"]));
    let lines: Vec<Value> = exported.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let records: Vec<Value> = lines.iter().map(|line| line["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0].clone()).collect();
    let own: Vec<&Value> = records.iter().filter(|record| record["traceId"] == TRACE).collect();
    assert_eq!(own.len(), 4, "{records:?}");
    let span: String = id.replace('-', "").chars().skip(16).collect();
    assert_eq!(own.iter().filter(|record| record["spanId"] == span.as_str()).count(), 2, "{own:?}");
    assert!(records.iter().all(|record| record["traceId"].as_str().is_some_and(|id| id.len() == 32)), "{records:?}");
    let spans: Vec<&Value> =
        lines.iter().map(|line| &line["resourceSpans"][0]["scopeSpans"][0]["spans"][0]).filter(|span| span.is_object()).collect();
    let children = spans.iter().filter(|span| span["traceId"] == TRACE && span["parentSpanId"] == SPAN);
    assert_eq!((spans.len(), children.count()), (3, 2), "one for each call: {spans:?}");
    assert_eq!((&spans[0]["name"], &spans[0]["spanId"]), (&json!("true"), &json!(span)), "{spans:?}");
    let time = |name: &str| spans[0][name].as_str().and_then(|text| text.parse::<u64>().ok()).expect("a time");
    assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"), "{spans:?}");
}

#[test]
fn a_log_has_a_line_for_each_request_and_each_call_and_no_secrets() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    let server = Server::with(&ground, &["--log", "json"]);
    let traceparent = format!("00-{TRACE}-{SPAN}-01");
    let body = json!({"script": "echo very-private"}).to_string();
    let ran = server.request("POST /v1/run", &[&FIELDS[..], &[("traceparent", traceparent.as_str())]].concat(), &body).json();
    told(&server, "POST /v1/run", &json!({"script": "git push"}), 403);
    let id = ran["receipt_id"].as_str().expect("an id").to_owned();
    told(&server, &format!("GET /v1/receipts/{id}"), &Value::Null, 200);
    assert_eq!(server.request("GET /nothing?very-private", &[BEARER], "").status, 404);
    assert_eq!(server.request("BREW /v1/run", &[], "").status, 401);
    server.call("shell", &json!({"script": "true"}));
    let token = server.token.clone();
    server.signal(rustix::process::Signal::TERM);
    let (_, said) = server.ended();
    let lines: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let requests: Vec<String> = lines
        .iter()
        .filter(|line| line["event"] == "request")
        .map(|line| format!("{} {} {}", line["method"].as_str().expect("a word"), line["route"].as_str().expect("a word"), line["status"]))
        .collect();
    let expected = ["POST /v1/run 200", "POST /v1/run 403", "GET /v1/receipts/{id} 200", "GET - 404", "OTHER - 401", "POST /mcp 200"]
        .map(str::to_owned);
    assert_eq!(requests, expected, "{said}");
    let calls: Vec<&Value> = lines.iter().filter(|line| line["event"] == "call").collect();
    let verdicts: Vec<&Value> = calls.iter().map(|call| &call["verdict"]).collect();
    assert_eq!(verdicts, ["allow", "deny", "allow"], "{said}");
    assert_eq!((&calls[0]["receipt_id"], &calls[0]["trace_id"]), (&json!(id), &json!(TRACE)), "{said}");
    assert_eq!(
        (&calls[0]["agent"], &calls[0]["surface"], &calls[2]["surface"]),
        (&json!("tests/main"), &json!("rest"), &json!("mcp")),
        "{said}"
    );
    assert!(lines.iter().all(|line| line["time"].is_string() && line["duration_ms"].is_number()), "{said}");
    assert!(!said.contains("very-private") && !said.contains(&token) && !said.contains('\u{1b}'), "{said}");
    let server = Server::with(&ground, &["--log", "text", "--new-token"]);
    told(&server, "GET /v1/health", &Value::Null, 200);
    server.signal(rustix::process::Signal::TERM);
    let (_, said) = server.ended();
    assert!(said.contains(" request method=GET route=/v1/health status=200 duration_ms="), "{said}");
}
