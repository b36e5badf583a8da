//! AWS's own command line against STS and S3 of moto, which checks every signature. The person's key stays outside; inside there are made-up keys
//! whose requests are signed anew, or keys of a role that end soon.

#![allow(clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdin, Stdio};

use serde_json::{Value, json};

use crate::wall::Ground;
use crate::wall::ground::{as_both, finish};

/// Where `cargo xtask test` puts the packages that `requirements.txt` names.
const PACKAGES: &str = "/var/cache/stockade-test/python-aws";

/// The cloud, for as long as this lives.
struct Cloud {
    child: Child,
    // Closing it ends the cloud.
    _input: Option<ChildStdin>,
    port: u16,
    id: String,
    key: String,
    role: String,
}

impl Drop for Cloud {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cloud(ground: &Ground) -> Cloud {
    let program = ground.base.join("cloud.py");
    ground.plant(&program, include_str!("cloud.py"), 0o644);
    let mut command = ground.outside("python3");
    command.arg(program).env("PYTHONPATH", PACKAGES).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the cloud starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("its keys");
    let words: Vec<&str> = line.split_whitespace().collect();
    let [port, id, key, role] = words[..] else { panic!("no cloud: {line:?}") };
    Cloud {
        _input: child.stdin.take(),
        child,
        port: port.parse().expect("a port"),
        id: id.to_owned(),
        key: key.to_owned(),
        role: role.to_owned(),
    }
}

fn keep(ground: &Ground, name: &str, value: &str) {
    let file = ground.base.join("value");
    ground.plant(&file, value, 0o600);
    let outcome = finish(ground.stockade(["secret", "set", name]).stdin(std::fs::File::open(file).expect("a file")));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

fn settings(ground: &Ground, secret: &Value) {
    let text = json!({ "secrets": { "AWS": secret } }).to_string();
    ground.plant(&ground.home.join(".config/stockade/settings.json"), &text, 0o600);
}

/// Runs a script in which `$AWS` is AWS's command line.
fn inside(ground: &Ground, cloud: &Cloud, script: &str) -> Value {
    let (bound, mount) = (format!("AWS@127.0.0.1:{}", cloud.port), format!("{PACKAGES}:{PACKAGES}:ro"));
    let script = format!("AWS='python3 -m awscli --endpoint-url http://127.0.0.1:{}'; {script}", cloud.port);
    let path = format!("PYTHONPATH={PACKAGES}");
    let words = ["run", "--json", "--secret", &bound, "--mount", &mount, "--env", &path, "--env", "AWS_DEFAULT_REGION=us-east-1"];
    let outcome = finish(&mut ground.stockade(words.into_iter().chain(["--", "bash", "-c", &script])));
    let value: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
    assert!(!outcome.stdout.contains(&cloud.key) && !outcome.stderr.contains(&cloud.key), "{outcome:?}");
    value
}

/// The credential in the receipt of the last call.
fn credential(ground: &Ground) -> Value {
    let outcome = finish(&mut ground.stockade(["receipts", "list", "--json"]));
    let receipts: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let all = receipts["receipts"].as_array().expect("a list");
    let last = all.iter().filter(|receipt| receipt["kind"] == "outcome").max_by_key(|receipt| receipt["seq"].as_u64());
    let id = last.expect("an outcome")["receipt_id"].as_str().expect("an id").to_owned();
    let shown = finish(&mut ground.stockade(["receipts", "show", "--json", &id]));
    let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    shown["receipts"][0]["credentials"][0].clone()
}

const USE: &str = "set -e; $AWS sts get-caller-identity; $AWS s3api create-bucket --bucket of-an-agent >/dev/null; echo kept >/tmp/x;
    $AWS s3 cp --quiet /tmp/x 's3://of-an-agent/a b'; $AWS s3 cp --quiet 's3://of-an-agent/a b' -; env";

#[test]
fn a_role_is_assumed_for_the_call_and_requests_are_signed_outside() {
    as_both(|ground| {
        let cloud = cloud(ground);
        keep(ground, "KEY_ID", &cloud.id);
        keep(ground, "KEY", &cloud.key);
        settings(
            ground,
            &json!({
                "source": "aws", "role": cloud.role, "accessKeyId": "KEY_ID", "secretAccessKey": "KEY",
                "endpoint": format!("http://127.0.0.1:{}", cloud.port),
            }),
        );
        let ran = inside(ground, &cloud, USE);
        let said = ran["stdout"].as_str().expect("text");
        assert!(ran["exit_code"] == 0 && said.contains("assumed-role/agent/stockade-") && said.contains("\nkept\n"), "{ran:#}");
        // Nothing that is worth anything is inside.
        assert!(said.contains("AWS_ACCESS_KEY_ID=") && !said.contains(&cloud.id) && !said.contains("AWS_SESSION_TOKEN"), "{said}");
        let told = credential(ground);
        let scope = told["scope"].as_str().expect("text");
        assert!(told["adapter"] == "aws" && told["delivery"] == "proxy-only" && told["expires"].is_string(), "{told:#}");
        assert!(scope.contains("assumed-role/agent/stockade-"), "{scope}");
    });
}

#[test]
fn keys_of_a_role_are_handed_in_where_settings_say_so_and_only_to_who_has_the_calls_token() {
    as_both(|ground| {
        let cloud = cloud(ground);
        keep(ground, "KEY_ID", &cloud.id);
        keep(ground, "KEY", &cloud.key);
        settings(
            ground,
            &json!({
                "source": "aws", "role": cloud.role, "accessKeyId": "KEY_ID", "secretAccessKey": "KEY", "delivery": "aws-endpoint",
                "endpoint": format!("http://127.0.0.1:{}", cloud.port),
            }),
        );
        let asked = "curl -s -o /dev/null -w '%{http_code} ' \"$AWS_CONTAINER_CREDENTIALS_FULL_URI\"";
        let ran = inside(ground, &cloud, &format!("{asked}; {asked} -H 'Authorization: guessed'; {USE}"));
        let said = ran["stdout"].as_str().expect("text");
        assert!(ran["exit_code"] == 0 && said.starts_with("403 403 ") && said.contains("\nkept\n"), "{ran:#}");
        let told = credential(ground);
        assert!(told["adapter"] == "aws" && told["delivery"] == "reference" && told["expires"].is_string(), "{told:#}");
        let rows = ran["network"].as_array().expect("a list");
        assert!(rows.iter().any(|row| row["path"] == "/aws/AWS" && row["verdict"] == "allow" && row["secret"] == "AWS"), "{ran:#}");
    });
}

#[test]
fn a_key_that_is_kept_signs_outside_and_is_never_handed_in() {
    as_both(|ground| {
        let cloud = cloud(ground);
        keep(ground, "AWS", &json!({ "AccessKeyId": cloud.id, "SecretAccessKey": cloud.key }).to_string());
        settings(ground, &json!({ "source": "store", "delivery": "aws-keys" }));
        let ran = inside(ground, &cloud, USE);
        let said = ran["stdout"].as_str().expect("text");
        assert!(ran["exit_code"] == 0 && said.contains("user/person") && said.contains("\nkept\n"), "{ran:#}");
        settings(ground, &json!({ "source": "store", "delivery": "aws-endpoint" }));
        let ran = inside(ground, &cloud, "true");
        let message = ran["error"]["message"].as_str().expect("text");
        assert!(message.contains("only a credential that a provider mints"), "{ran:#}");
    });
}

#[test]
fn what_sts_refuses_is_told_and_nothing_runs() {
    as_both(|ground| {
        let cloud = cloud(ground);
        keep(ground, "KEY_ID", &cloud.id);
        keep(ground, "KEY", "not-the-key-of-that-id-but-as-long-as-one");
        settings(
            ground,
            &json!({
                "source": "aws", "role": cloud.role, "accessKeyId": "KEY_ID", "secretAccessKey": "KEY",
                "endpoint": format!("http://127.0.0.1:{}", cloud.port),
            }),
        );
        let ran = inside(ground, &cloud, "touch ran");
        let message = ran["error"]["message"].as_str().expect("text");
        assert!(message.contains("`aws` gave no value for the secret `AWS`") && message.contains("403"), "{ran:#}");
        assert!(!message.contains("not-the-key"), "{ran:#}");
    });
}
