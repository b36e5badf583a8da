//! Spans of calls, sent as they end.

use serde_json::{Value, json};

use super::{Receiver, keep_secret, set};
use crate::daemon::Daemon;
use crate::http::server::Server;
use crate::mcp::{Client, receipts, rules};
use crate::wall::ground::eventually;
use crate::wall::{Ground, Who, as_both};

/// What only the collector and the secret store know.
const TOKEN: &str = "collector-token-0123456789abcdef";
const RULES: &str = r#"
permit (principal is Stockade::Human, action, resource);
permit (principal is Stockade::Agent, action == Stockade::Action::"exec", resource)
  unless { resource == Stockade::Program::"touch" };
"#;

/// A collector that wants a token.
fn collector(ground: &Ground) -> Receiver {
    let receiver = Receiver::new(ground);
    keep_secret(ground, "COLLECTOR", TOKEN);
    set(ground, "telemetry.otlp.secret", "COLLECTOR");
    set(ground, "telemetry.otlp.url", &format!("http://127.0.0.1:{}", receiver.port));
    receiver
}

/// All spans that came.
fn spans(receiver: &Receiver) -> Vec<Value> {
    let all = receiver.got();
    let spans = all.iter().flat_map(|row| row["body"]["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans").clone());
    spans.collect()
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let found = span["attributes"].as_array().expect("attributes").iter().find(|one| one["key"] == key);
    found.map_or(&Value::Null, |one| &one["value"])
}

#[test]
fn each_call_that_ended_is_one_span() {
    as_both(|ground| {
        rules(ground, RULES);
        let receiver = collector(ground);
        let mut client = Client::new(ground);
        client.shell("exit 3");
        client.shell("touch x");
        client.shell(&format!("true {}", "x".repeat(20_000)));
        eventually("all spans came", || spans(&receiver).len() >= 3);
        let found = spans(&receiver);
        assert_eq!(found.len(), 3, "{found:#?}");
        let rows = receiver.got();
        for row in &rows {
            assert_eq!(
                (&row["path"], &row["headers"]["authorization"]),
                (&json!("/v1/traces"), &json!(format!("Bearer {TOKEN}"))),
                "{row}"
            );
            assert_eq!(row["body"]["resourceSpans"][0]["resource"]["attributes"][0]["value"]["stringValue"], "stockade", "{row}");
        }
        let exit = &found[0];
        assert_eq!((attribute(exit, "process.exit.code"), &exit["status"]["code"]), (&json!({"intValue": "3"}), &json!(0)), "{exit}");
        assert_eq!(
            (&found[1]["status"]["code"], attribute(&found[1], "stockade.receipt.kind")),
            (&json!(2), &json!({"stringValue": "denied"}))
        );
        // A span is its receipt.
        let ended = |one: &&Value| matches!(one["kind"].as_str(), Some("outcome" | "denied"));
        let ids: Vec<Value> = receipts(ground).iter().filter(ended).map(|one| one["receipt_id"].clone()).collect();
        let sent: Vec<Value> = found.iter().map(|span| attribute(span, "stockade.receipt.id")["stringValue"].clone()).collect();
        assert_eq!(sent, ids);
        // Long arguments stay in the receipt.
        assert_eq!(attribute(&found[2], "process.command_args"), &Value::Null);
        assert!(rows.iter().all(|row| row["bytes"].as_u64().is_some_and(|bytes| bytes < 64 << 10)), "{rows:#?}");
        assert_eq!(client.close().0, Some(0));
        eventually("nothing is left", || ground.sandboxes().is_empty());
    });
}

#[test]
fn spans_join_the_trace_of_who_asked_and_last_ones_are_sent_at_the_end() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, RULES);
    let receiver = collector(&ground);
    let server = Server::new(&ground);
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let fields = [
        ("Authorization", "Bearer TOKEN"),
        ("Content-Type", "application/json"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ];
    let answer = server.request("POST /v1/run", &fields, "{\"argv\": [\"true\"]}");
    assert_eq!(answer.status, 200, "{answer:?}");
    server.signal(rustix::process::Signal::TERM);
    server.ended();
    let found = spans(&receiver);
    let of_caller: Vec<&Value> = found.iter().filter(|span| span["traceId"] == trace).collect();
    assert_eq!((of_caller.len(), &of_caller[0]["parentSpanId"]), (1, &json!("b7ad6b7169203331")), "{found:#?}");
}

#[test]
fn runs_of_the_daemon_are_sent_too() {
    as_both(|ground| {
        let receiver = collector(ground);
        let daemon = Daemon::of(ground);
        let ran = ground.run(&[], &["true"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        eventually("its span came", || spans(&receiver).iter().any(|span| span["name"] == "true"));
        assert_eq!(daemon.end(), Some(0));
    });
}

/// A collector that is gone costs calls nothing, and what does not fit is counted.
#[test]
fn a_collector_that_is_gone_holds_nothing_up() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, RULES);
    drop(collector(&ground));
    let mut client = Client::new(&ground);
    let begun = std::time::Instant::now();
    for _ in 0..20 {
        assert_eq!(client.shell("true")["structuredContent"]["exit_code"], 0);
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(40), "{:?}", begun.elapsed());
    let begun = std::time::Instant::now();
    let (code, said) = client.close();
    assert!(code == Some(0) && begun.elapsed() < std::time::Duration::from_secs(15), "{:?}", begun.elapsed());
    assert!(said.contains("outbound: ") && said.contains("`traces` given up"), "{said}");
}
