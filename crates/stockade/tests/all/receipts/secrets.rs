//! No receipt holds a secret's value, in whatever form it came.

use super::{all, holds};
use crate::wall::as_both;
use crate::wall::ground::finish;

const VALUE: &str = "ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6";

#[test]
fn values_are_taken_out_of_arguments_output_and_names() {
    as_both(|ground| {
        let base64 = ground.host(&format!("printf %s 'user:{VALUE}' | base64 -w0"));
        let script = format!("echo out {VALUE}; echo x > 'file-{VALUE}'; : {base64}");
        let mut command = ground.running(&["--json", "--secret", "TOKEN@127.0.0.1:1"], &["bash", "-c", &script]);
        let outcome = finish(command.env("TOKEN", VALUE));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let found = all(ground);
        assert_eq!(found.len(), 2);
        for receipt in &found {
            let text = receipt.to_string();
            assert!(!text.contains(VALUE) && !text.contains(&base64[..32]), "{text}");
            assert!(text.contains("[redacted:TOKEN]"), "{text}");
            assert!(receipt["redactions"][0]["count"].as_u64() >= Some(3), "{receipt}");
            assert_eq!(receipt["credentials"][0]["id"], "TOKEN");
        }
        assert_eq!(found[1]["changes"][0]["path"], "file-[redacted:TOKEN]");
        holds(ground);
        // Nothing that is kept beside the ledger has it either.
        let kept = ground.host("cd \"$XDG_STATE_HOME/stockade\" && grep -rlF 'aB3dE6gH9jK2mN5p' receipts digests || true");
        assert_eq!(kept, "");
        let payload = found[1]["result"]["stdout_sha256"].as_str().expect("a digest").to_owned();
        let kept = ground.state.join(format!("stockade/receipts/payloads/{}/{}", &payload[..2], &payload[2..]));
        assert_eq!(std::fs::read_to_string(kept).expect("kept"), "out [redacted:TOKEN]\n");
    });
}

#[test]
fn a_denied_call_keeps_its_secrets_too() {
    as_both(|ground| {
        let rules = "permit (principal, action == Stockade::Action::\"exec\", resource == Stockade::Program::\"ls\");\n\
                     permit (principal, action == Stockade::Action::\"connect\", resource);\n";
        ground.plant(&ground.home.join(".config/stockade/policy/rules.cedar"), rules, 0o600);
        let mut command = ground.running(&["--secret", "TOKEN@127.0.0.1:1"], &["curl", &format!("-HAuthorization: {VALUE}")]);
        assert_eq!(finish(command.env("TOKEN", VALUE)).code, Some(126));
        let found = all(ground);
        assert_eq!((found.len(), found[0]["argv"][1].as_str()), (1, Some("-HAuthorization: [redacted:TOKEN]")), "{found:?}");
    });
}
