//! Tokens that are minted for a call: of an OAuth client, with a refresh token that changes each time, of a GitHub App.

use serde_json::{Value, json};

use super::as_both;
use super::stage::{CLIENT_SECRET, REFRESH, Stage, bound};

/// What the guarded place says to whom it lets in, and that the answer shows the placeholder.
fn opened(stage: &Stage, name: &str) -> String {
    let script = format!("curl -sS --fail -H \"Authorization: Bearer ${name}\" http://{}/guarded; echo; echo ${name}", stage.plain);
    let said = stage.inside(&bound(name, &stage.plain, &[]), &script);
    let (answer, placeholder) = said.trim_end().split_once('\n').expect("two lines");
    let answer: Value = serde_json::from_str(answer).expect("JSON");
    assert_eq!(answer["echo"], format!("Bearer {placeholder}"));
    answer["opened"].as_str().expect("whose it is").to_owned()
}

fn oauth(stage: &Stage, grant: &Value) -> Value {
    json!({ "source": "oauth", "tokenEndpoint": format!("http://{}/oauth/token", stage.plain), "clientId": "client", "clientSecret": "PROOF",
            "grant": grant, "scope": "read" })
}

fn requests(stage: &Stage, path: &str) -> usize {
    stage.asked().iter().filter(|one| one["path"] == path).count()
}

#[test]
fn a_client_gets_a_token_that_is_given_back() {
    as_both(|stage| {
        stage.store("PROOF", CLIENT_SECRET);
        let mut client = oauth(stage, &json!({"type": "client-credentials"}));
        client["revocationEndpoint"] = format!("http://{}/oauth/revoke", stage.plain).into();
        stage.settings(&json!({ "API": client }));
        assert_eq!(opened(stage, "API"), "client");
        let credential = &stage.receipt()["credentials"][0];
        assert_eq!((&credential["adapter"], &credential["delivery"]), (&json!("oauth"), &json!("proxy-only")), "{credential}");
        assert!(
            credential["expires"].is_string() && credential["scope"].as_str().is_some_and(|scope| scope.contains("read")),
            "{credential}"
        );
        assert_eq!((requests(stage, "/oauth/token"), requests(stage, "/oauth/revoke")), (1, 1), "given back once the call ended");
    });
}

#[test]
fn a_refresh_token_is_replaced_in_the_store_each_time() {
    as_both(|stage| {
        stage.store("PROOF", CLIENT_SECRET);
        stage.store("REFRESH", REFRESH);
        stage.settings(&json!({ "API": oauth(stage, &json!({"type": "refresh-token", "refreshToken": "REFRESH"})) }));
        assert_eq!(opened(stage, "API"), "refreshed 1");
        assert_eq!(opened(stage, "API"), "refreshed 2", "with the second refresh token: the first one is worth nothing any more");
    });
}

#[test]
fn an_app_gets_a_token_for_one_repository_that_is_given_back() {
    as_both(|stage| {
        stage.settings(&json!({
            "KEY": { "source": "file", "path": stage.outside("private.pem") },
            "API": { "source": "github", "app": "4711", "installation": 42, "key": "KEY", "repositories": ["one"],
                     "permissions": {"contents": "read"}, "endpoint": format!("http://{}", stage.plain) },
        }));
        assert_eq!(opened(stage, "API"), "app");
        let asked: Value = serde_json::from_str(stage.asked()[0]["body"].as_str().expect("a body")).expect("JSON");
        assert_eq!(asked, json!({"repositories": ["one"], "permissions": {"contents": "read"}}));
        let credential = &stage.receipt()["credentials"][0];
        assert_eq!(credential["adapter"], "github");
        assert!(credential["scope"].as_str().is_some_and(|scope| scope.contains("one") && scope.contains("contents:read")), "{credential}");
        assert_eq!(requests(stage, "/installation/token"), 1, "given back once the call ended");
    });
}
