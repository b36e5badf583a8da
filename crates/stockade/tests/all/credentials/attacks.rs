//! Providers that do what they should not: nothing runs, and what is said and written down holds no value.

use serde_json::{Value, json};

use super::as_both;
use super::stage::{CLIENT_SECRET, Stage, bound};
use crate::wall::Who;

/// Asks a provider that answers so; what is said of it.
fn refused(stage: &Stage, way: &str) -> String {
    stage.settings(&json!({ "API": {
        "source": "oauth", "tokenEndpoint": format!("http://{}/evil/{way}", stage.plain), "clientId": "client", "clientSecret": "PROOF",
        "grant": {"type": "client-credentials"},
    } }));
    let flags = bound("API", &stage.plain, &[]);
    let mut words: Vec<&str> = vec!["run", "--workspace-mode", "rw"];
    words.extend(flags.iter().map(String::as_str));
    words.extend(["--", "touch", "it-ran"]);
    let outcome = stage.stockade(&words);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(125), ""), "{way}: {outcome:?}");
    assert!(!stage.world.work.join("it-ran").exists(), "{way}: nothing runs");
    stage.nowhere(&[&outcome.stderr]);
    let receipt = stage.receipt();
    let credential = json!({"adapter": "oauth", "id": "API", "scope": stage.plain, "delivery": "proxy-only"});
    assert_eq!((&receipt["kind"], &receipt["credentials"]), (&json!("outcome"), &json!([credential])), "{receipt}");
    assert!(receipt["result"]["exit_code"].is_null() && receipt["argv"].is_null(), "{receipt}");
    let mut lines = outcome.stderr.lines();
    let (first, hint) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    assert!(hint.starts_with("  hint: "), "{}", outcome.stderr);
    assert_eq!(receipt["result"]["failure"], Value::from(first.trim_start_matches("stockade: ")), "{receipt}");
    let told = first.strip_prefix("stockade: secret: `oauth` gave no value for the secret `API`: asking the token endpoint: ");
    told.unwrap_or_else(|| panic!("{way}: {first}")).to_owned()
}

#[test]
fn a_bad_answer_ends_the_call_before_it_begins() {
    as_both(|stage| {
        stage.store("PROOF", CLIENT_SECRET);
        for (way, says) in [
            ("redirect", "`127.0.0.1` answers 302, a redirect, which is not followed"),
            ("garbage", "what it answers is not JSON (no reason that can be read)"),
            ("echo", "it answers 500: what is [redacted]?: grant_type=client_credentials Basic [redacted]"),
            ("endless", "`127.0.0.1` answers with more than 1 MiB"),
        ] {
            assert_eq!(refused(stage, way), says, "{way}");
        }
        // Nobody else was asked.
        assert!(stage.asked().iter().all(|one| one["path"].as_str().is_some_and(|path| path.starts_with("/evil/"))), "{:?}", stage.asked());
        let verified = stage.stockade(&["receipts", "verify"]);
        assert_eq!(verified.code, Some(0), "{verified:?}");
    });
}

#[test]
fn silence_ends_the_call_in_time() {
    let stage = Stage::new(Who::Ordinary);
    stage.store("PROOF", CLIENT_SECRET);
    let begun = std::time::Instant::now();
    assert_eq!(refused(&stage, "hang"), "`127.0.0.1` did not answer within 15 seconds");
    assert!(begun.elapsed().as_secs() < 25, "{:?}", begun.elapsed());
}
