//! Package managers with the variables that they read themselves.

use serde_json::json;

use super::as_both;
use super::stage::{Stage, bound};

fn given(stage: &Stage, delivery: &str) {
    stage.settings(&json!({ "REGISTRY": { "source": "env", "variable": "TOKEN", "delivery": delivery } }));
}

#[test]
fn npm_says_who_it_is() {
    as_both(|stage| {
        given(stage, "npm");
        let registry = format!("--registry http://{}/ --no-update-notifier", stage.plain);
        let script = format!("npm whoami {registry} && npm view {registry} from-outside version");
        assert_eq!(stage.inside(&bound("REGISTRY", &stage.plain, &[]), &script), "somebody-at-npm\n1.2.3\n");
    });
}

#[test]
fn pip_finds_and_fetches() {
    as_both(|stage| {
        given(stage, "pip");
        let script = "set -e; export PIP_DISABLE_PIP_VERSION_CHECK=1; cd /tmp
             python3 -m pip download --quiet --no-cache-dir --no-deps from-outside >&2; ls *.whl";
        assert_eq!(stage.inside(&bound("REGISTRY", &stage.plain, &[]), script), "from_outside-1.0-py3-none-any.whl\n");
    });
}

#[test]
fn cargo_has_a_placeholder_that_a_request_swaps() {
    as_both(|stage| {
        given(stage, "cargo");
        let script = format!(
            "curl -sS --fail -H \"Authorization: $CARGO_REGISTRY_TOKEN\" http://{}/crates/; echo ${{#CARGO_REGISTRY_TOKEN}}",
            stage.plain
        );
        assert_eq!(stage.inside(&bound("REGISTRY", &stage.plain, &[]), &script), "{\"ok\": true}40\n");
    });
}
