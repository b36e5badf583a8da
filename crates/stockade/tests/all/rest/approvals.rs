//! Approving over REST: the token lets one look, and only the approver's passphrase decides.

use serde_json::{Value, json};

use super::{ask, told};
use crate::approvals::{PASSPHRASE, ask_for, set_credential, with_passphrase};
use crate::http::server::Server;
use crate::mcp::{ASKS, receipts, rules};
use crate::wall::ground::finish;
use crate::wall::{Ground, Who};

/// An agent's call that the rules ask about, and how it is answered.
fn call(server: &Server) -> u16 {
    ask(server, "POST /v1/run", &json!({"script": "touch x"})).status
}

/// A request that waits, and the digest of what it shows.
fn waiting(server: &Server) -> (String, String) {
    assert_eq!(call(server), 403);
    let listed = told(server, "GET /v1/approvals", &Value::Null, 200);
    let request = &listed["approvals"][0];
    assert_eq!((&request["state"], listed["approvals"].as_array().map(Vec::len)), (&json!("pending"), Some(1)), "{listed}");
    (request["id"].as_str().expect("an id").to_owned(), request["shown_sha256"].as_str().expect("a digest").to_owned())
}

#[test]
fn the_token_alone_decides_nothing() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, ASKS);
    let server = Server::new(&ground);
    let (id, shown) = waiting(&server);
    let whole = told(&server, &format!("GET /v1/approvals/{id}"), &Value::Null, 200);
    assert!(whole["shown"].as_str().expect("text").contains("touch"), "{whole}");
    // Where no credential is set up, the same user would be enough at a terminal; here it is not.
    for verb in ["approve", "deny"] {
        let body = if verb == "approve" { json!({"passphrase": "x", "shown_sha256": shown}) } else { json!({"passphrase": "x"}) };
        let refused = told(&server, &format!("POST /v1/approvals/{id}/{verb}"), &body, 403);
        assert!(refused["error"]["message"].as_str().expect("words").contains("no approver credential"), "{refused}");
        told(&server, &format!("POST /v1/approvals/{id}/{verb}"), &json!({}), 400);
    }
    set_credential(&ground);
    for _ in 0..3 {
        told(&server, &format!("POST /v1/approvals/{id}/approve"), &json!({"passphrase": "guessed", "shown_sha256": shown}), 403);
    }
    let statuses: Vec<u16> =
        (0..12).map(|_| ask(&server, &format!("POST /v1/approvals/{id}/deny"), &json!({"passphrase": "guessed again"})).status).collect();
    assert!(statuses.contains(&429) && statuses.iter().all(|status| matches!(status, 403 | 429)), "{statuses:?}");
    assert_eq!(told(&server, &format!("GET /v1/approvals/{id}"), &Value::Null, 200)["state"], "pending");
    assert_eq!(call(&server), 403);
    assert!(receipts(&ground).iter().all(|receipt| receipt["kind"] != "approval"), "nothing was decided");
    // Whoever has the token cannot keep the person from saying yes at their terminal.
    let approved = with_passphrase(&ground, PASSPHRASE, &["approvals", "approve", &id]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    assert_eq!(call(&server), 200);
}

#[test]
fn the_approver_says_yes_to_what_they_saw_or_no() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, ASKS);
    set_credential(&ground);
    let server = Server::new(&ground);
    let (id, shown) = waiting(&server);
    let place = format!("POST /v1/approvals/{id}");
    let unseen = json!({"passphrase": PASSPHRASE, "shown_sha256": "0".repeat(64)});
    told(&server, &format!("{place}/approve"), &unseen, 409);
    let never = json!({"passphrase": PASSPHRASE, "shown_sha256": shown, "until_seconds": 0});
    told(&server, &format!("{place}/approve"), &never, 400);
    let approved = told(&server, &format!("{place}/approve"), &json!({"passphrase": PASSPHRASE, "shown_sha256": shown}), 200);
    assert_eq!((&approved["state"], &approved["decided"]["method"]), (&json!("approved"), &json!("passphrase")), "{approved}");
    told(&server, &format!("{place}/approve"), &json!({"passphrase": PASSPHRASE, "shown_sha256": shown}), 409);
    assert_eq!(call(&server), 200);
    let (id, _) = waiting(&server);
    let denied = told(&server, &format!("POST /v1/approvals/{id}/deny"), &json!({"passphrase": PASSPHRASE}), 200);
    assert_eq!((&denied["state"], &denied["decided"]["method"]), (&json!("denied"), &json!("passphrase")), "{denied}");
    assert_eq!(call(&server), 403);
    assert_eq!(told(&server, "GET /v1/approvals", &Value::Null, 200)["approvals"], json!([]));
    assert_eq!(told(&server, "GET /v1/approvals?all=true", &Value::Null, 200)["approvals"].as_array().map(Vec::len), Some(2));
    told(&server, "GET /v1/approvals?all=maybe", &Value::Null, 400);
    told(&server, "GET /v1/approvals/nobody", &Value::Null, 404);
    let text = serde_json::to_string(&receipts(&ground)).expect("JSON");
    assert!(!text.contains(PASSPHRASE), "the passphrase is nowhere");
}

/// What a person asked for shows their variables; the token is an agent's.
#[test]
fn what_a_person_asked_for_is_not_shown() {
    let ground = Ground::new(Who::Ordinary);
    ask_for(&ground, "touch");
    set_credential(&ground);
    let server = Server::new(&ground);
    assert_eq!(ground.run(&["--env", "PASSWORD=hunter2hunter2"], &["touch", "x"]).code, Some(126));
    let listed = finish(&mut ground.stockade(["approvals", "list", "--json"]));
    let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let id = listed["approvals"][0]["id"].as_str().expect("it waits").to_owned();
    assert_eq!(told(&server, "GET /v1/approvals?all=true", &Value::Null, 200)["approvals"], json!([]));
    told(&server, &format!("GET /v1/approvals/{id}"), &Value::Null, 404);
    told(&server, &format!("POST /v1/approvals/{id}/deny"), &json!({"passphrase": PASSPHRASE}), 404);
}

/// A call of an agent that waits: its yes is for the very input that it came with, and the answer says that it ran.
#[test]
fn what_is_approved_is_bound_to_what_it_reads() {
    let ground = Ground::new(Who::Ordinary);
    rules(&ground, ASKS);
    let server = Server::new(&ground);
    let call = |input: &str| json!({"script": "touch x; cat", "stdin": input});
    let asked = told(&server, "POST /v1/run", &call("one\n"), 403);
    let id = asked["decision"]["approval_id"].as_str().unwrap_or_else(|| panic!("{asked}")).to_owned();
    assert_eq!(finish(&mut ground.stockade(["approvals", "approve", &id, "--yes"])).code, Some(0));
    let other = told(&server, "POST /v1/run", &call("two\n"), 403);
    assert_ne!(other["decision"]["approval_id"], id, "another input is another call");
    let none = told(&server, "POST /v1/run", &json!({"script": "touch x; cat"}), 403);
    assert!(none["decision"]["approval_id"] != id && none["decision"]["approval_id"] != other["decision"]["approval_id"], "{none}");
    // The same bytes, written otherwise, are the same input.
    let ran = told(&server, "POST /v1/run", &json!({"script": "touch x; cat", "stdin_base64": "b25lCg=="}), 200);
    assert_eq!((&ran["exit_code"], &ran["stdout"]), (&json!(0), &json!("one\n")), "{ran}");
    let all = receipts(&ground);
    let intent = all.iter().find(|receipt| receipt["kind"] == "intent" && receipt["receipt_id"] == ran["receipt_id"]).expect("an intent");
    assert_eq!(
        intent["stdin_sha256"], "2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806",
        "what it read is in the receipt"
    );
    told(&server, "POST /v1/run", &call("one\n"), 403);
}
