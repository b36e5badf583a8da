//! kubectl: with a token that the API server mints for a service account, and with one that is kept.

use serde_json::{Value, json};

use super::as_both;
use super::stage::bound;

/// Looks at pods, and at the configuration that says how.
const LOOK: &str = "kubectl get pods && kubectl version -o json | grep -o v1.30.0 && grep -c -i -E 'token|password|client-key' $KUBECONFIG";

fn check(said: &str) {
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 4 && lines[0].starts_with("NAME") && lines[1].starts_with("pod-of-the-cluster"), "{said}");
    assert_eq!((lines[2], lines[3]), ("v1.30.0", "0"), "the configuration holds no secret");
}

#[test]
fn kubectl_works_with_a_token_that_is_minted() {
    as_both(|stage| {
        let account = json!({
            "source": "kubernetes", "server": format!("https://{}", stage.secure), "caFile": stage.outside("ca.pem"),
            "namespace": "team", "serviceAccount": "robot", "token": "ASKER", "audiences": ["cluster"],
        });
        stage.store("ASKER", crate::egress::world::VALUE);
        stage.settings(&json!({ "CLUSTER": account }));
        check(&stage.inside(&bound("CLUSTER", &stage.secure, &[]), &format!("{LOOK} || true")));
        let asked = stage.asked();
        let mint: Value = serde_json::from_str(asked[0]["body"].as_str().expect("a body")).expect("JSON");
        assert_eq!(mint["spec"], json!({"audiences": ["cluster"], "expirationSeconds": 600}));
        assert!(asked[1..].iter().all(|one| one["authorization"] == "Bearer tok0-mInTeD7qX9zK4wR8vB2nL5"), "{asked:?}");
        let receipt = stage.receipt();
        let credential = &receipt["credentials"][0];
        let expires: jiff::Timestamp = credential["expires"].as_str().expect("an end").parse().expect("a time");
        let left = expires.duration_since(jiff::Timestamp::now()).as_secs();
        assert!((500..=600).contains(&left), "{credential}");
        let scope = format!("{}: system:serviceaccount:team:robot; audiences: cluster", stage.secure);
        assert_eq!(
            (&credential["adapter"], &credential["id"], &credential["delivery"], &credential["scope"]),
            (&json!("kubernetes"), &json!("CLUSTER"), &json!("proxy-only"), &json!(scope))
        );
    });
}

#[test]
fn kubectl_works_with_a_token_that_is_kept() {
    as_both(|stage| {
        stage.settings(&json!({ "CLUSTER": {
            "source": "env", "variable": "TOKEN", "delivery": "kubernetes", "authorities": stage.outside("ca.pem"),
        } }));
        let host = stage.secure.replace("127.0.0.1", "api.test");
        check(&stage.inside(&bound("CLUSTER", &host, &[&stage.secure]), &format!("{LOOK} || true")));
    });
}

#[test]
fn kubectl_works_with_a_token_that_is_minted_with_a_variable_of_the_caller() {
    as_both(|stage| {
        stage.settings(&json!({
            "CLUSTER": {
                "source": "kubernetes", "server": format!("https://{}", stage.secure), "caFile": stage.outside("ca.pem"),
                "namespace": "team", "serviceAccount": "robot", "token": "ASKER", "audiences": ["cluster"],
            },
            "ASKER": { "source": "env", "variable": "TOKEN" },
        }));
        check(&stage.inside(&bound("CLUSTER", &stage.secure, &[]), &format!("{LOOK} || true")));
        // It is not shown inside by another way either.
        let flags = [bound("CLUSTER", &stage.secure, &[]), vec!["--env".to_owned(), "TOKEN".to_owned()]].concat();
        let outcome = stage.stockade(&[&["run"][..], &crate::egress::world::words(&flags), &["--", "true"]].concat());
        assert!(outcome.code == Some(125) && outcome.stderr.contains("would show the value of `--secret CLUSTER`"), "{outcome:?}");
    });
}
