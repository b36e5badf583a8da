//! Nonsense over REST, by hand and by Schemathesis: always a 4xx in JSON, and nothing runs.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::{FIELDS, told};
use crate::http::DEVELOPER;
use crate::http::server::{BEARER, Server};
use crate::mcp::{receipts, rules};
use crate::wall::Who;
use crate::wall::ground::{Ground, finish_within};

/// How long Schemathesis may take; it stops by itself much sooner.
const PATIENCE: Duration = Duration::from_mins(6);

#[test]
fn nonsense_is_a_4xx_in_json() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    let server = Server::new(&ground);
    let deep = format!("{{\"script\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let long = json!({"script": "x".repeat(200 << 10)}).to_string();
    let many: Vec<String> = (0..5000).map(|n| n.to_string()).collect();
    for (what, body, status) in [
        ("POST /v1/run", "", 400),
        ("POST /v1/run", "{", 400),
        ("POST /v1/run", "null", 400),
        ("POST /v1/run", "[\"ls\"]", 400),
        ("POST /v1/run", "\u{fffd}", 400),
        ("POST /v1/run", "{}", 400),
        ("POST /v1/run", "{\"script\": \"ls\", \"argv\": [\"ls\"]}", 400),
        ("POST /v1/run", "{\"script\": \"ls\", \"apply\": true}", 400),
        ("POST /v1/run", "{\"script\": 1}", 400),
        ("POST /v1/run", "{\"script\": \"a\\u0000b\"}", 400),
        ("POST /v1/run", "{\"argv\": []}", 400),
        ("POST /v1/run", "{\"argv\": [\"\"]}", 400),
        ("POST /v1/run", "{\"argv\": [\"a\\u0000\"]}", 400),
        ("POST /v1/run", "{\"argv\": [\"ls\"], \"env\": {\"A=B\": \"\"}}", 400),
        ("POST /v1/run", "{\"argv\": [\"ls\"], \"timeout_seconds\": -1}", 400),
        ("POST /v1/run", "{\"argv\": [\"ls\"], \"timeout_seconds\": 1e300}", 400),
        ("POST /v1/run", "{\"argv\": [\"ls\"], \"stdin_base64\": \"%\"}", 400),
        ("POST /v1/run", "{\"argv\": [\"ls\"], \"stdin\": \"\", \"stdin_base64\": \"\"}", 400),
        ("POST /v1/run", "{\"argv\": [\"ls\"], \"cwd\": \"../..\"}", 400),
        ("POST /v1/run", &deep, 400),
        ("POST /v1/run", &long, 400),
        ("POST /v1/run", &json!({ "argv": many }).to_string(), 400),
        ("POST /v1/run?x=1", "{\"argv\": [\"ls\"]}", 400),
        ("POST /v1/sandboxes", "{\"name\": \"../x\"}", 400),
        ("POST /v1/sandboxes", "{\"workspace_mode\": \"rw\"}", 400),
        ("POST /v1/sandboxes", "{\"allow_hosts\": [\"example.com\"]}", 400),
        ("GET /v1/sandboxes/..%2f..%2fetc", "", 404),
        ("GET /v1/receipts/%00", "", 404),
        ("GET /v1/receipts?%ff", "", 400),
        ("GET /v1/nothing", "", 404),
        ("GET /v1/", "", 404),
        ("GET /v1", "", 404),
        ("DELETE /v1/run", "", 405),
        ("BREW /v1/run", "", 405),
    ] {
        let (answered, _) = server.request(what, &FIELDS, body).refusal();
        let shown: String = body.chars().take(80).collect();
        assert_eq!(answered, status, "{what} {shown}");
    }
    let plain = server.request("POST /v1/run", &[BEARER, ("Content-Type", "text/plain")], "{\"script\": \"ls\"}");
    assert_eq!(plain.refusal().0, 415);
    // A page cannot send what a form could: the type is checked, and the token before everything.
    assert_eq!(server.request("POST /v1/run", &[("Content-Type", "application/json")], "{\"script\": \"ls\"}").refusal().0, 401);
    assert_eq!(server.request("GET /v1/health", &[BEARER, ("Origin", "http://evil.example")], "").refusal().0, 403);
    assert_eq!(server.metric("stockade_http_answers_total{status=\"5xx\"}"), 0);
    assert_eq!(receipts(&ground).len(), 0, "nothing was even asked for");
    assert_eq!(told(&server, "POST /v1/run", &json!({"script": "echo hi"}), 200)["stdout"], "hi\n");
}

/// Where `cargo xtask test` put the Python packages; unset, the machine's own are used.
#[expect(clippy::disallowed_methods, reason = "which packages to use is the caller's to say")]
fn packages() -> Option<PathBuf> {
    std::env::var_os("STOCKADE_TEST_PYTHON_PACKAGES").map(PathBuf::from)
}

#[test]
fn schemathesis_finds_no_5xx() {
    // The packages may lie below a home that only its owner can enter.
    let ground = Ground::new(Who::Root);
    rules(&ground, DEVELOPER);
    let server = Server::new(&ground);
    // Something for it to find.
    told(&server, "POST /v1/sandboxes", &Value::Null, 201);
    let mut command = ground.outside("python3");
    if let Some(packages) = packages() {
        command.env("PYTHONPATH", packages);
    }
    let document = format!("http://127.0.0.1:{}/v1/openapi.json", server.port);
    command.args(["-B", "-m", "schemathesis.cli", "run", &document, "--no-color", "--seed", "8", "--workers", "1"]);
    command.args(["--header", &format!("Authorization: Bearer {}", server.token), "--header", "X-Stockade-Client: tests"]);
    command.args(["--checks", "not_a_server_error,content_type_conformance,response_schema_conformance,status_code_conformance"]);
    command.args(["--phases", "examples,coverage,fuzzing,stateful", "--mode", "all", "--max-examples", "20", "--max-time", "60"]);
    let outcome = finish_within(&mut command, PATIENCE);
    assert_eq!(outcome.code, Some(0), "{}\n{}\nhint: cargo xtask test installs it", outcome.stdout, outcome.stderr);
    let calls = server.metric("stockade_http_answers_total{status=\"2xx\"}") + server.metric("stockade_http_answers_total{status=\"4xx\"}");
    assert!(calls > 500, "only {calls} requests: {}", outcome.stdout);
    assert_eq!(server.metric("stockade_http_answers_total{status=\"5xx\"}"), 0, "{}", outcome.stdout);
    let left = told(&server, "GET /v1/sandboxes", &Value::Null, 200);
    for sandbox in left["sandboxes"].as_array().expect("a list") {
        told(&server, &format!("DELETE /v1/sandboxes/{}", sandbox["sandbox_id"].as_str().expect("an id")), &Value::Null, 200);
    }
}
