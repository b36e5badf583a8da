//! The server over HTTP is confined as the daemon is, while it listens, runs programs and has sandboxes made.

use serde_json::json;

use super::DEVELOPER;
use super::server::{BEARER, Server};
use crate::daemon::held::is_held;
use crate::mcp::rules;
use crate::wall::as_both;

#[test]
fn the_kernel_holds_it_while_it_serves() {
    as_both(|ground| {
        rules(ground, DEVELOPER);
        let server = Server::new(ground);
        is_held(ground, server.pid());
        assert_eq!(server.call("shell", &json!({"script": "echo ran"}))["content"][0]["text"], "ran\n");
        let fields = [BEARER, ("Content-Type", "application/json")];
        let made = server.request("POST /v1/sandboxes", &fields, "{}");
        assert_eq!(made.status, 201, "{made:?}");
        let id = made.json()["sandbox_id"].as_str().expect("an id").to_owned();
        let ran = server.request(&format!("POST /v1/sandboxes/{id}/exec"), &fields, r#"{"argv": ["echo", "inside"]}"#);
        assert_eq!((ran.status, &ran.json()["stdout"]), (200, &json!("inside\n")), "{ran:?}");
        assert_eq!(server.request(&format!("DELETE /v1/sandboxes/{id}"), &fields, "").status, 200);
        is_held(ground, server.pid());
    });
}
