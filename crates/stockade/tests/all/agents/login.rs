//! Logins: inside, the file holds placeholders; outside, egress puts tokens in, takes new ones out of what a server hands out, and keeps them.

use serde_json::{Value, json};

use super::Stage;
use crate::wall::Who;
use crate::wall::ground::as_both;

const ACCESS: &str = "sk-ant-oat01-0ldAcc3ssT0kenOfTheHost-aB3dE6gH9jK2mN5pQ8sT1vW4yZ7b";
const REFRESH: &str = "sk-ant-ort01-0ldR3freshT0kenOfTheHost-cD4eF7hI0kL3nO6qR9tU2wX5zA8c";

/// Asks, renews, asks again, and shows what it has.
const AGENT: &str = r#"
import json, os, urllib.request
path = os.environ["HOME"] + "/.mine/login.json"
login = json.load(open(path))
base = os.environ["BASE"]
def post(where, body, headers):
    request = urllib.request.Request(base + where, json.dumps(body).encode(), dict(headers, **{"content-type": "application/json"}))
    try:
        return json.load(urllib.request.urlopen(request))
    except urllib.error.HTTPError as error:
        return error.read().decode()
ask = {"model": "m", "tools": [{"name": "t"}], "messages": []}
print(login["oauth"]["plan"], sorted(login["oauth"]))
post("/v1/messages", ask, {"authorization": "Bearer " + login["oauth"]["access"]})
new = post("/oauth/token", {"grant_type": "refresh_token", "refresh_token": login["oauth"]["refresh"]}, {})
print("same", new["access_token"] == login["oauth"]["access"], new["refresh_token"] == login["oauth"]["refresh"], new["expires_in"])
post("/v1/messages", ask, {"authorization": "Bearer " + new["access_token"]})
print(json.dumps(login), json.dumps(new), dict(os.environ))
# Another way to the same server's tokens.
print("sideways", post("/oauth//token", {"grant_type": "refresh_token", "refresh_token": login["oauth"]["refresh"]}, {}))
"#;

#[test]
fn a_login_stays_outside_and_is_renewed_there() {
    as_both(|ground| {
        let stage = Stage::new(ground.who, |_| json!([]));
        let host = format!("127.0.0.1:{}", stage.port);
        let token =
            |secret: &str, pointer: &str, member: &str| json!({"secret": secret, "pointer": pointer, "member": member, "hosts": [host]});
        let profile = json!({
            "name": "mine", "title": "Mine", "programs": [],
            "set": {"BASE": format!("http://{host}")},
            "directory": {"path": ".mine"},
            "logins": [{
                "file": "login.json", "renewed_by": [host], "renewed_at": "/oauth/token", "expiry": "/oauth/until",
                "tokens": [token("MINE_ACCESS", "/oauth/access", "access_token"), token("MINE_REFRESH", "/oauth/refresh", "refresh_token")],
            }],
        });
        let path = stage.base.join("mine.json");
        stage.plant(&path, &profile.to_string(), 0o644);
        let login =
            json!({"oauth": {"access": ACCESS, "refresh": REFRESH, "until": 1, "plan": "max", "other_token": "something-else-secret"}});
        let file = stage.home.join(".mine/login.json");
        stage.plant(&file, &login.to_string(), 0o600);
        let outcome = stage.agent(&["--profile", path.to_str().unwrap()], &["python3", "-c", AGENT]);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.stdout.starts_with("max ['access', 'plan', 'refresh', 'until']\nsame True True 3600\n"), "{outcome:?}");
        for value in [ACCESS, REFRESH, "something-else-secret", "n3wAcc3ss", "n3wR3fresh"] {
            assert!(!outcome.stdout.contains(value) && !outcome.stderr.contains(value), "{value}: {outcome:?}");
        }
        let seen = stage.seen();
        let asked: Vec<&Value> =
            seen.iter().filter(|line| line["path"] == "/v1/messages").map(|line| &line["keys"]["authorization"]).collect();
        assert_eq!(asked.len(), 2, "{seen:?}");
        assert_eq!(asked[0], &json!(format!("Bearer {ACCESS}")));
        assert!(asked[1].as_str().unwrap().contains("n3wAcc3ss"), "{seen:?}");
        let renewals: Vec<&Value> = seen.iter().filter(|line| line["path"] == "/oauth/token").collect();
        assert_eq!(renewals[0]["refreshed"], REFRESH, "{seen:?}");
        // The server would have answered there too, so the token does not go there.
        let sideways: Vec<&Value> = seen.iter().filter(|line| line["path"] == "/oauth//token").collect();
        assert!(sideways.iter().all(|line| !line["refreshed"].as_str().unwrap_or_default().contains("R3fresh")), "{seen:?}");
        let after: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert!(after["oauth"]["access"].as_str().unwrap().contains("n3wAcc3ss"), "{after}");
        assert!(after["oauth"]["refresh"].as_str().unwrap().contains("n3wR3fresh"), "{after}");
        assert!(after["oauth"]["until"].as_u64().unwrap() > 1_700_000_000_000 && after["oauth"]["plan"] == "max", "{after}");
    });
}

#[test]
fn a_login_that_cannot_be_read_is_told() {
    as_both(|ground| {
        let stage = Stage::new(ground.who, |_| json!([]));
        let file = stage.home.join(".claude/.credentials.json");
        let check = |why: &str| {
            let outcome = stage.agent(&["--profile", "claude"], &["cat", ".claude/.credentials.json"]);
            let told = format!("the login in `{}` cannot be used: {why}", file.display());
            assert!(outcome.stderr.contains(&told), "{told}: {outcome:?}");
        };
        stage.plant(&file, "{\"claudeAiOauth\": {\"accessToken\": \"half", 0o600);
        check("it is not JSON");
        stage.plant(&file, "{}", 0o400);
        if stage.who == Who::Ordinary {
            check("it cannot be opened to be read and written");
        }
        std::fs::remove_file(&file).expect("removed");
        std::os::unix::fs::symlink("/etc/hostname", &file).expect("linked");
        check("it cannot be opened to be read and written");
    });
}
