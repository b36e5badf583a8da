//! docker's own command: its credential helper, and a registry that it asks itself, without a daemon.

use serde_json::{Value, json};

use super::as_both;
use super::stage::bound;

#[test]
fn docker_asks_its_helper_and_the_registry_lets_it_in() {
    as_both(|stage| {
        stage.settings(&json!({ "IMAGES": {
            "source": "env", "variable": "TOKEN", "delivery": "docker", "user": "me", "authorities": stage.outside("ca.pem"),
        } }));
        let registry = &stage.secure;
        let script = format!(
            "docker manifest inspect {registry}/image:latest | tr -d ' \\t\\n'; echo
             echo {registry} | docker-credential-stockade get; echo
             docker-credential-stockade list; echo
             echo other.example | docker-credential-stockade get; echo; cat $DOCKER_CONFIG/config.json"
        );
        let said = stage.inside(&bound("IMAGES", registry, &[]), &script);
        let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| line.into())).collect();
        assert_eq!((lines.len(), &lines[0]["schemaVersion"]), (5, &json!(2)), "{said}");
        let placeholder = lines[1]["Secret"].as_str().expect("a placeholder");
        assert!(placeholder.starts_with("ghp_") && lines[1]["Username"] == "me" && lines[1]["ServerURL"] == registry.as_str(), "{said}");
        assert_eq!(lines[2], json!({ format!("https://{registry}"): "me" }));
        assert_eq!(lines[3], "credentials not found in native keychain");
        assert_eq!(lines[4], json!({ "credHelpers": { registry: "stockade" } }));
        let manifest = stage.asked().into_iter().rfind(|one| one["path"] == "/v2/image/manifests/latest");
        assert!(manifest.expect("it was asked for")["authorization"].as_str().is_some_and(|by| by.starts_with("Basic ")));
    });
}
