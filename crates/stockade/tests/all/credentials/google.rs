//! Google's own library: it finds a metadata server, and what it is told there opens what the real token opens.

use serde_json::json;

use super::as_both;
use super::stage::bound;
use crate::egress::programs::packages;

/// Where `cargo xtask test` puts the packages that `requirements.txt` names.
const PACKAGES: &str = "/var/cache/stockade-test/python-credentials";
const REQUIREMENTS: &str = include_str!("requirements.txt");

const CLIENT: &str = r#"
import sys
import google.auth
from google.auth.transport.requests import AuthorizedSession
credentials, project = google.auth.default()
print(type(credentials).__module__, project)
answer = AuthorizedSession(credentials).get(sys.argv[1])
print(answer.status_code, answer.json()["opened"], answer.json()["echo"] == "Bearer " + credentials.token)
print(open("/run/stockade/gcp/CLOUD.token").read() == credentials.token)
"#;

#[test]
fn the_library_uses_a_token_that_a_service_account_is_given() {
    let installed = std::fs::read_to_string(format!("{PACKAGES}/requirements.txt")).unwrap_or_default();
    assert_eq!(installed, REQUIREMENTS, "`cargo xtask test` installs the Python packages of these tests");
    as_both(|stage| {
        let key = std::fs::read_to_string(stage.outside("private.pem")).expect("a key");
        let key = json!({
            "type": "service_account", "client_email": "robot@project.example", "private_key_id": "k1", "private_key": key,
            "token_uri": format!("http://{}/gcp/token", stage.plain),
        });
        let scope = "https://www.googleapis.com/auth/devstorage.read_only";
        stage.settings(&json!({
            "KEY": { "source": "file", "path": stage.keep("key.json", &key.to_string()) },
            "CLOUD": { "source": "gcp", "key": "KEY", "scopes": [scope], "project": "p" },
        }));
        stage.world.file("client.py", CLIENT);
        let others = packages();
        let mut flags = bound("CLOUD", &stage.plain, &[]);
        flags.extend([others, PACKAGES].iter().flat_map(|path| ["--mount".to_owned(), format!("{path}:{path}:ro")]));
        let script = format!("PYTHONPATH={others}:{PACKAGES} python3 client.py http://{}/guarded", stage.plain);
        let said = stage.inside(&flags, &script);
        assert_eq!(said, format!("google.auth.compute_engine.credentials p\n200 {scope} True\nTrue\n"));
        let credential = &stage.receipt()["credentials"][0];
        assert_eq!((&credential["adapter"], &credential["delivery"]), (&json!("gcp"), &json!("proxy-only")), "{credential}");
        assert!(
            credential["scope"].as_str().is_some_and(|told| told.contains("robot@project.example") && told.contains(scope)),
            "{credential}"
        );
    });
}
