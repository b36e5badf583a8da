//! Strangers: other users of the machine, pages in a browser, and whatever else finds the port. Nothing runs for them, each refusal is JSON,
//! and the server goes on.

use std::io::{Read as _, Write as _};

use serde_json::json;

use super::DEVELOPER;
use super::server::{BEARER, MCP, Server, modern_body, modern_fields};
use crate::mcp::{receipts, rules};
use crate::wall::Who;
use crate::wall::ground::Ground;

fn ground() -> Ground {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, DEVELOPER);
    ground
}

#[test]
fn without_the_token_there_is_nothing_but_health() {
    let ground = ground();
    let server = Server::new(&ground);
    let health = server.request("GET /healthz", &[], "");
    assert_eq!((health.status, health.body.as_str()), (200, "{\"status\":\"ok\"}"));
    assert_eq!(server.request("POST /healthz", &[], "").refusal().0, 405);
    let body = modern_body("tools/call", json!({"name": "shell", "arguments": {"script": "echo > made"}}));
    let fields = modern_fields("tools/call", "shell");
    for shown in
        [None, Some("Bearer"), Some("Bearer stk_"), Some("Bearer TOKEN "), Some("Bearer TOKENx"), Some("Basic TOKEN"), Some("TOKEN")]
    {
        let mut fields: Vec<(&str, &str)> = fields.iter().copied().filter(|field| *field != BEARER).collect();
        fields.extend(shown.map(|shown| ("Authorization", shown)));
        // A field's value has no blanks at its ends, whoever sends them.
        let expected = if shown == Some("Bearer TOKEN ") { 200 } else { 401 };
        let answer = server.request("POST /mcp", &fields, &body);
        assert_eq!(answer.status, expected, "{shown:?}: {answer:?}");
        if expected == 401 {
            assert_eq!(answer.field("www-authenticate").as_deref(), Some("Bearer realm=\"stockade\""), "{answer:?}");
            answer.refusal();
        }
    }
    for path in ["/", "/mcp", "/metrics", "/v1", "/.well-known/oauth-protected-resource", "/healthz/", "/../mcp"] {
        assert_eq!(server.request(&format!("GET {path}"), &[], "").refusal().0, 401, "{path}");
    }
    assert_eq!(server.request("GET /nothing", &[BEARER], "").refusal().0, 404);
    assert_eq!(server.request("OPTIONS /mcp", &[("Origin", "http://evil.example")], "").refusal().0, 403);
    assert_eq!(receipts(&ground).iter().filter(|receipt| receipt["kind"] == "intent").count(), 1, "but the one with the token");
}

#[test]
fn pages_in_a_browser_are_refused_whatever_name_they_use() {
    let ground = ground();
    let server = Server::new(&ground);
    let port = server.port;
    let get = |fields: &[(&str, &str)]| server.request("GET /metrics", &[&[BEARER], fields].concat(), "").status;
    for host in
        ["evil.example", "127.0.0.1", "localhost", "127.0.0.1:1", "127.0.0.1.evil.example:PORT", "[::1]:PORT", "a@127.0.0.1:PORT", ""]
    {
        assert_eq!(get(&[("Host", &host.replace("PORT", &port.to_string()))]), 403, "{host}");
    }
    for host in [format!("localhost:{port}"), format!("127.0.0.1:{port}")] {
        assert_eq!(get(&[("Host", &host)]), 200, "{host}");
        assert_eq!(get(&[("Host", &host), ("Origin", &format!("http://{host}"))]), 200, "{host}");
    }
    for origin in ["http://evil.example", "null", "", "http://localhost", "https://127.0.0.1:PORT", "http://127.0.0.1:PORT/", "file://"] {
        assert_eq!(get(&[("Origin", &origin.replace("PORT", &port.to_string()))]), 403, "{origin}");
    }
    assert_eq!(server.request(&format!("GET http://evil.example:{port}/metrics"), &[BEARER], "").status, 403);
    // No other page may read what is answered.
    let answer = server.request("GET /healthz", &[("Origin", &format!("http://localhost:{port}"))], "");
    assert!(answer.status == 200 && !answer.head.contains("access-control"), "{answer:?}");
}

#[test]
fn heads_and_bodies_are_bounded() {
    let ground = ground();
    let server = Server::new(&ground);
    let many: Vec<(String, String)> = (0..200).map(|n| (format!("X-{n}"), "x".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(server.request("GET /healthz", &many, "").status, 431);
    let long = server.raw(format!("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nX: {}", server.port, "x".repeat(1 << 20)).as_bytes());
    assert!(long.is_empty() || long.starts_with("HTTP/1.1 431"), "{long}");
    let head = |more: &str| {
        let text = server.text("POST /mcp", &MCP, "");
        text.replace("Content-Length: 0\r\n", more)
    };
    // What says how long it is is not read at all; what does not is read up to the limit.
    let said = server.raw(head("Content-Length: 16777217\r\n").as_bytes());
    assert!(said.starts_with("HTTP/1.1 413") && said.contains("16 MiB"), "{said}");
    let mut chunks = head("Transfer-Encoding: chunked\r\n").into_bytes();
    for _ in 0..17 {
        chunks.extend_from_slice(b"100000\r\n");
        chunks.extend(std::iter::repeat_n(b' ', 1 << 20));
        chunks.extend_from_slice(b"\r\n");
    }
    let said = server.raw(&chunks);
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 413"), "{said}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("alive");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(peak < 160 << 10, "{peak} kB");
    assert_eq!(server.call("shell", &json!({"script": "echo hi"}))["structuredContent"]["stdout"], "hi\n");
}

#[test]
fn nonsense_is_a_4xx_in_json_and_never_a_5xx() {
    let ground = ground();
    let server = Server::new(&ground);
    for (what, body) in [
        ("POST /mcp", ""),
        ("POST /mcp", "{"),
        ("POST /mcp", "null"),
        ("POST /mcp", "[]"),
        ("POST /mcp", "{\"jsonrpc\": \"2.0\"}"),
        ("POST /mcp", "{\"jsonrpc\": \"1.0\", \"id\": 1, \"method\": \"ping\"}"),
        ("POST /mcp", "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/list\"}"),
        ("POST /mcp", "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"initialize\", \"params\": {}}"),
        ("POST /mcp", "{\"jsonrpc\": \"2.0\", \"id\": 1, \"result\": {}}"),
        ("POST /mcp", "\u{fffd}\u{0}"),
        ("GET /mcp", ""),
        ("PUT /mcp", ""),
        ("DELETE /mcp", ""),
        ("PATCH /mcp", "{}"),
        ("BREW /mcp", "{}"),
    ] {
        let (status, _) = server.request(what, &MCP, body).refusal();
        assert!((400..500).contains(&status), "{what} {body}: {status}");
    }
    let deep = "[".repeat(100_000);
    assert_eq!(server.request("POST /mcp", &MCP, &deep).refusal().0, 400);
    for (name, value) in [("Mcp-Session-Id", "nobody"), ("MCP-Protocol-Version", "1999-01-01"), ("Mcp-Session-Id", "\u{e9}")] {
        let fields = [&MCP[..], &[(name, value)]].concat();
        let (status, _) = server.request("POST /mcp", &fields, "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\"}").refusal();
        assert!((400..500).contains(&status), "{name}: {value}: {status}");
    }
    // The head must say what the body does.
    let body = modern_body("tools/call", json!({"name": "shell", "arguments": {"script": "echo > made"}}));
    for (method, name) in [("tools/list", "shell"), ("tools/call", "read_file"), ("tools/call", "")] {
        assert_eq!(server.request("POST /mcp", &modern_fields(method, name), &body).refusal().0, 400, "{method} {name}");
    }
    // Heads that are none.
    for raw in [
        "\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}",
        "GET /healthz HTTP/1.1\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let said = server.raw(raw.as_bytes());
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{raw:?}: {said}");
    }
    assert_eq!(server.metric("stockade_http_answers_total{status=\"5xx\"}"), 0);
    assert_eq!(receipts(&ground).len(), 0, "nothing was even asked for");
    assert_eq!(server.call("shell", &json!({"script": "echo hi"}))["structuredContent"]["stdout"], "hi\n");
}

#[test]
fn requests_of_one_connection_are_judged_each_for_itself() {
    let ground = ground();
    let server = Server::new(&ground);
    let mut stream = server.connect();
    let (good, bad) = (format!("Authorization: Bearer {}\r\n", server.token), "");
    for (fields, expected) in [(good.as_str(), "200"), (good.as_str(), "200"), (bad, "401")] {
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost:{}\r\n{fields}\r\n", server.port).expect("sent");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a byte");
            head.extend(byte);
        }
        let head = String::from_utf8(head).expect("UTF-8");
        assert!(head.contains(&format!(" {expected} ")), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length").parse().expect("a number");
        stream.read_exact(&mut vec![0; length]).expect("the body");
    }
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("closed");
    assert_eq!(rest, b"", "whoever is refused connects again");
}

#[test]
fn sessions_are_bounded_and_given_back() {
    let ground = ground();
    let server = Server::new(&ground);
    let sessions: Vec<String> = (0..256).map(|_| server.open()).collect();
    assert_eq!(server.metric("stockade_mcp_sessions"), 256);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "one more", "version": "1"}});
    let one_more = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    assert_eq!(server.legacy(None, &one_more).0.refusal().0, 429);
    // Those without a session are not concerned.
    assert_eq!(server.call("shell", &json!({"script": "echo hi"}))["structuredContent"]["stdout"], "hi\n");
    let gone = server.request("DELETE /mcp", &[&MCP[..], &[("Mcp-Session-Id", sessions[7].as_str())]].concat(), "");
    assert_eq!(gone.status, 202, "{gone:?}");
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(server.legacy(Some(&sessions[7]), &ping).0.refusal().0, 404);
    server.open();
}
