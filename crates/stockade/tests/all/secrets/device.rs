//! A login by device: `secret set` shows the code, waits for the person, and keeps what renews the token; the token itself is minted for a call.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::json;

use crate::wall::ground::{as_both, finish};

#[test]
fn a_person_agrees_on_another_device_and_calls_have_tokens_from_then_on() {
    as_both(|ground| {
        let program = ground.base.join("issuer.py");
        ground.plant(&program, include_str!("device.py"), 0o644);
        let mut issuer = ground.outside("python3").arg(program).stdout(Stdio::piped()).spawn().expect("the issuer starts");
        let mut line = String::new();
        BufReader::new(issuer.stdout.take().expect("a pipe")).read_line(&mut line).expect("its port");
        let host = format!("127.0.0.1:{}", line.trim());
        let grant = json!({ "type": "device", "deviceEndpoint": format!("http://{host}/device"), "refreshToken": "API_REFRESH" });
        let api = json!({ "source": "oauth", "tokenEndpoint": format!("http://{host}/token"), "clientId": "stockade", "grant": grant });
        let settings = json!({ "secrets": { "API": api } }).to_string();
        ground.plant(&ground.home.join(".config/stockade/settings.json"), &settings, 0o600);
        let set = finish(&mut ground.stockade(["secret", "set", "API"]));
        assert_eq!(set.code, Some(0), "{set:?}");
        assert!(set.stderr.contains("WDJB-MJHT") && set.stderr.contains("/activate") && set.stderr.contains("`API_REFRESH`"), "{set:?}");
        let script = format!("curl -s -H \"Authorization: Bearer $API\" http://{host}/; echo; echo $API");
        let ran = finish(&mut ground.stockade(["run", "--secret", &format!("API@{host}"), "--", "bash", "-c", &script]));
        assert!(ran.code == Some(0) && ran.stdout.starts_with("{\"good\": true}\n"), "{ran:?}");
        for text in [&set.stdout, &set.stderr, &ran.stdout, &ran.stderr] {
            assert!(!text.contains("-token-of-some-length") && !text.contains("device-code-of"), "{text}");
        }
        issuer.kill().expect("killed");
        issuer.wait().expect("ended");
    });
}
