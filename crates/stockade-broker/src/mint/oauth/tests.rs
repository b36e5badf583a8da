//! OAuth servers against a stand-in: each grant, rotation, the device flow, and answers that are not what was asked for.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use stockade_store::settings::{Provider, SecretSource};

use super::super::stand_in::{StandIn, ask};
use super::device::{DeviceLogin, DevicePoll, device_begin, device_poll};
use super::*;
use crate::sources::{Surroundings, of_caller};
use crate::store::Store;

const TOKEN: &str = "access-0123456789abcdef";
const SECRET: &str = "client secret/0123456789";
const REFRESH: &str = "refresh-0123456789abcdef";
const ROTATED: &str = "rotated-0123456789abcdef";
const FORM: &str = "application/x-www-form-urlencoded";

fn granted() -> Value {
    json!({"access_token": TOKEN, "token_type": "bearer", "expires_in": 300})
}

fn with(member: &str, value: Value) -> Value {
    let mut answer = granted();
    answer[member] = value;
    answer
}

fn setting(address: &str, grant: &Value, more: &Value) -> Value {
    let mut setting = json!({"source": "oauth", "tokenEndpoint": format!("{address}/token"), "clientId": "c:1", "grant": grant});
    setting.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    setting
}

fn value(text: &str) -> SecretValue {
    SecretValue::new(text.as_bytes().to_vec()).unwrap()
}

fn basic() -> String {
    format!("Basic {}", STANDARD.encode("c%3A1:client%20secret%2F0123456789"))
}

/// Asks by a refresh token that somebody has at hand, with a store beneath a directory.
fn refresh_in(state: &Path, address: &str, grant: &Value) -> Result<Minted, MintError> {
    let written = json!({ "T": setting(address, grant, &json!({})) });
    let settings = stockade_store::settings::secrets::from_json(written.as_object().unwrap()).unwrap();
    let SecretSource::Provider(provider) = &settings[0].source else { panic!("no provider") };
    let Provider::Oauth(oauth) = &**provider else { panic!("another provider") };
    let around = Surroundings { store: Store::beneath(state), path: "/bin".into(), home: "/".into() };
    let now = SystemTime::now();
    let look_up = |_: &SecretName| Ok(Arc::new(of_caller(&value(REFRESH), now)));
    mint(oauth, &Asking::new(&"0123456789abcdef".parse().unwrap(), "test.call", now, &around, &look_up))
}

#[test]
fn a_client_gets_a_token_for_itself_and_gives_it_back() {
    let server = StandIn::new(|asked| if asked.target == "/token" { (200, with("scope", json!("a"))) } else { (200, Value::Null) });
    let more = json!({"clientSecret": "S", "scope": "a b", "audience": "aud", "resource": "https://r/",
                      "revocationEndpoint": format!("{}/revoke", server.address)});
    let minted = ask(&setting(&server.address, &json!({"type": "client-credentials"}), &more), &[("S", SECRET)]).unwrap();
    assert_eq!(
        (minted.value.to_text().as_str(), minted.scope.as_str()),
        (TOKEN, "client c:1; scope: a; audience: aud; resource: https://r/")
    );
    let left = minted.expires.unwrap().duration_since(SystemTime::now()).unwrap().as_secs();
    assert!((250..=300).contains(&left));
    (minted.revoke.unwrap())().unwrap();
    let asked = server.asked();
    for (asked, target, body) in [
        (&asked[0], "/token", "grant_type=client_credentials&scope=a%20b&audience=aud&resource=https%3A%2F%2Fr%2F".to_owned()),
        (&asked[1], "/revoke", format!("token={TOKEN}&token_type_hint=access_token")),
    ] {
        assert_eq!((asked.method.as_str(), asked.target.as_str(), asked.body.as_str()), ("POST", target, body.as_str()));
        assert_eq!((asked.header("authorization"), asked.header("content-type")), (basic().as_str(), FORM));
    }
}

#[test]
fn a_token_is_exchanged() {
    let jwt = "urn:ietf:params:oauth:token-type:jwt";
    let answer = with("issued_token_type", json!(jwt));
    let server = StandIn::new(move |_| (200, answer.clone()));
    let grant = json!({"type": "exchange", "subjectToken": "S", "subjectTokenType": "urn:x", "requestedTokenType": jwt});
    let minted = ask(&setting(&server.address, &grant, &json!({})), &[("S", REFRESH)]).unwrap();
    assert!(minted.scope == "client c:1" && minted.revoke.is_none());
    let asked = &server.asked()[0];
    let kinds = "subject_token_type=urn%3Ax&requested_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Ajwt";
    let grant_type = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange";
    assert_eq!(asked.body, format!("{grant_type}&subject_token={REFRESH}&{kinds}&client_id=c%3A1"));
    assert_eq!(asked.header("authorization"), "");
    ask(&setting(&server.address, &json!({"type": "exchange", "subjectToken": "S"}), &json!({})), &[("S", REFRESH)]).unwrap();
    let kinds = "subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token";
    assert_eq!(server.asked()[1].body, format!("{grant_type}&subject_token={REFRESH}&{kinds}&client_id=c%3A1"));
}

#[test]
fn a_rotated_refresh_token_takes_the_place_of_the_old_one() {
    let root = tempfile::tempdir().unwrap();
    let server = StandIn::new(|asked| {
        let given = if asked.body.contains(REFRESH) { ROTATED } else { "third-0123456789abcdef" };
        // What is given is refused, and the new refresh token is kept all the same.
        let kind = if asked.body.contains(ROTATED) { "mac" } else { "Bearer" };
        (200, json!({"access_token": TOKEN, "token_type": kind, "refresh_token": given}))
    });
    let name: SecretName = "R1".parse().unwrap();
    let kept = || Store::beneath(root.path()).get(&name).unwrap().map(|value| value.to_text().to_string());
    let grant = json!({"type": "refresh-token", "refreshToken": "R1"});
    assert!(refresh_in(root.path(), &server.address, &grant).unwrap().expires.is_none());
    assert_eq!(kept().as_deref(), Some(ROTATED));
    let error = refresh_in(root.path(), &server.address, &grant).err().unwrap();
    assert!(error.why.contains("not of the type Bearer"), "{error}");
    assert_eq!(kept().as_deref(), Some("third-0123456789abcdef"));
    let bodies: Vec<String> = server.asked().into_iter().map(|asked| asked.body).collect();
    assert_eq!(bodies, [REFRESH, ROTATED].map(|used| format!("grant_type=refresh_token&refresh_token={used}&client_id=c%3A1")));
}

/// What a server does that rotates: a refresh token that comes a second time is a theft.
#[test]
fn two_who_refresh_at_once_never_spend_the_same_token() {
    let root = tempfile::tempdir().unwrap();
    let name: SecretName = "R3".parse().unwrap();
    let first = value("refresh-number-0000000000");
    Store::beneath(root.path()).set(&name, &first, SystemTime::now()).unwrap();
    let given = std::sync::Mutex::new(0);
    let server = StandIn::new(move |asked| {
        let mut given = given.lock().unwrap();
        let good = format!("refresh-number-{:010}", *given);
        // Long enough for everybody else to have read the token that is used here.
        std::thread::sleep(std::time::Duration::from_millis(30));
        if !asked.body.contains(&good) {
            return (400, json!({"error": "invalid_grant"}));
        }
        *given += 1;
        (200, with("refresh_token", json!(format!("refresh-number-{:010}", *given))))
    });
    let grant = json!({"type": "refresh-token", "refreshToken": "R3"});
    // Each has a store of its own, and with it descriptors of its own, as processes have.
    let refresh = || refresh_in(root.path(), &server.address, &grant).map(drop);
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..6).map(|_| scope.spawn(refresh)).collect();
        for one in asked {
            one.join().unwrap().unwrap();
        }
    });
    let kept = Store::beneath(root.path()).get(&name).unwrap().unwrap();
    assert_eq!(kept.to_text().as_str(), "refresh-number-0000000006");
}

#[test]
fn a_refresh_token_that_cannot_be_kept_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let grant = json!({"type": "device", "deviceEndpoint": "https://i/d", "refreshToken": "R2"});
    let same = StandIn::new(|_| (200, with("refresh_token", json!(REFRESH))));
    refresh_in(root.path(), &same.address, &grant).unwrap();
    assert!(Store::beneath(root.path()).list().unwrap().is_empty(), "the same one is not written");
    let broken = StandIn::new(|_| (200, with("refresh_token", json!(format!("{ROTATED}\n")))));
    let error = refresh_in(root.path(), &broken.address, &grant).err().unwrap().to_string();
    assert!(error.starts_with("keeping the new refresh token: the value has a line break") && !error.contains(ROTATED), "{error}");
    // The store's place becomes a file between reading and writing.
    let place = root.path().join("secrets");
    let rotates = StandIn::new(move |_| {
        std::fs::rename(&place, place.with_extension("away")).unwrap();
        std::fs::write(&place, "in the way").unwrap();
        (200, with("refresh_token", json!(ROTATED)))
    });
    let error = refresh_in(root.path(), &rotates.address, &grant).err().unwrap().to_string();
    assert!(error.starts_with("keeping the new refresh token: the secret store failed for `R2`: ") && !error.contains(ROTATED), "{error}");
}

#[test]
fn failures_name_the_step_and_no_value() {
    let grant = json!({"type": "client-credentials"});
    for (status, answer, says) in [
        (
            400,
            json!({"error": "invalid_client", "error_description": format!("no {SECRET}")}),
            "it answers 400: invalid_client: no [redacted]",
        ),
        (401, json!({"error": basic()}), "it answers 401: Basic [redacted]"),
        (200, json!({"error": "bad_verification_code"}), "lacks something, or has something of another kind (bad_verification_code)"),
        (200, json!([TOKEN]), "lacks something"),
        (200, with("token_type", json!("DPoP")), "not of the type Bearer"),
        (200, with("expires_in", json!(4_000_000_000_u64)), "longer"),
        (200, with("scope", json!("a admin")), "`admin`"),
        (200, with("access_token", json!(format!("{TOKEN}\u{0}"))), "control character"),
        (302, Value::Null, "redirect"),
    ] {
        let server = StandIn::new(move |_| (status, answer.clone()));
        let setting = setting(&server.address, &grant, &json!({"clientSecret": "S", "scope": "a"}));
        let error = ask(&setting, &[("S", SECRET)]).err().unwrap().to_string();
        assert!(error.starts_with("asking the token endpoint: ") && error.contains(says), "{error}");
        assert!(!error.contains("0123456789"), "{error}");
    }
    let error = ask(&setting("http://127.0.0.1:1", &grant, &json!({"clientSecret": "S"})), &[]).err().unwrap().to_string();
    assert_eq!(error, "secrets: no `S`");
    let server = StandIn::new(|asked| {
        (if asked.target == "/token" { 200 } else { 400 }, if asked.target == "/token" { granted() } else { json!({"error": asked.body}) })
    });
    let more = json!({"revocationEndpoint": format!("{}/revoke", server.address)});
    let minted = ask(&setting(&server.address, &grant, &more), &[]).unwrap();
    let error = (minted.revoke.unwrap())().unwrap_err().to_string();
    assert!(error.starts_with("giving the token back: it answers 400: token=[redacted]&"), "{error}");
}

fn begin(server: &StandIn, secret: Option<&str>) -> Result<DeviceLogin, MintError> {
    let grant = json!({"type": "device", "deviceEndpoint": format!("{}/device", server.address), "refreshToken": "R"});
    let mut setting = setting(&server.address, &grant, &json!({"scope": "offline_access"}));
    if secret.is_some() {
        setting["clientSecret"] = json!("S");
    }
    setting.as_object_mut().unwrap().remove("source");
    device_begin(&serde_json::from_value(setting).unwrap(), secret.map(value).as_ref(), SystemTime::now())
}

fn begun() -> Value {
    json!({"device_code": "device-0123456789", "user_code": "ABCD-EFGH", "verification_uri": "https://i.example/device", "expires_in": 900})
}

#[test]
fn a_person_agrees_on_another_device() {
    let polls = std::sync::atomic::AtomicUsize::new(0);
    let server = StandIn::new(move |asked| {
        if asked.target == "/device" {
            return (200, begun());
        }
        match polls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => (400, json!({"error": "authorization_pending"})),
            1 => (200, json!({"error": "slow_down"})),
            _ => (200, with("refresh_token", json!(REFRESH))),
        }
    });
    let mut login = begin(&server, Some(SECRET)).unwrap();
    assert_eq!((login.user_code.as_str(), login.verification_uri.as_str()), ("ABCD-EFGH", "https://i.example/device"));
    assert_eq!((login.interval, login.expires_in), (Duration::from_secs(5), Duration::from_mins(15)));
    let mut poll = || device_poll(&mut login, SystemTime::now());
    assert_eq!(poll(), Ok(DevicePoll::Wait(Duration::from_secs(5))));
    assert_eq!(poll(), Ok(DevicePoll::Wait(Duration::from_secs(10))));
    assert_eq!(poll(), Ok(DevicePoll::Agreed(value(REFRESH))));
    let asked = server.asked();
    assert_eq!((asked[0].body.as_str(), asked[0].header("authorization")), ("scope=offline_access", basic().as_str()));
    let body = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code&device_code=device-0123456789";
    assert_eq!((asked[1].target.as_str(), asked[1].body.as_str(), asked[1].header("authorization")), ("/token", body, basic().as_str()));
}

#[test]
fn a_login_on_another_device_ends() {
    for (status, answer, says) in [
        (400, json!({"error": "expired_token"}), "is over"),
        (400, json!({"error": "access_denied"}), "did not agree"),
        (400, json!({"error": "invalid_grant", "error_description": "device-0123456789"}), "it answers 400: invalid_grant: [redacted]"),
        (500, json!({}), "it answers 500"),
        (200, granted(), "no refresh token"),
        (200, with("refresh_token", json!("a\nb-0123456789abcdef")), "line break"),
    ] {
        let server = StandIn::new(move |asked| if asked.target == "/device" { (200, begun()) } else { (status, answer.clone()) });
        let error = device_poll(&mut begin(&server, None).unwrap(), SystemTime::now()).unwrap_err().to_string();
        assert!(error.starts_with("waiting for the login on another device: ") && error.contains(says), "{error}");
        assert!(!error.contains("0123456789"), "{error}");
    }
    let server = StandIn::new(|_| (200, begun()));
    let mut login = begin(&server, None).unwrap();
    assert!(device_poll(&mut login, SystemTime::now() + Duration::from_mins(16)).is_err_and(|error| error.why.contains("is over")));
    assert_eq!(server.asked().len(), 1, "nobody is asked after the end");
}

#[test]
fn a_login_that_shows_something_else_is_refused() {
    for (member, shown) in [
        ("user_code", json!("")),
        ("user_code", json!("A\u{202e}B")),
        ("verification_uri", json!("http://i.example/device")),
        ("verification_uri", json!("javascript:alert(1)")),
        ("verification_uri_complete", json!("https://u:p@i.example/")),
        ("device_code", json!(7)),
    ] {
        let mut answer = begun();
        answer[member] = shown;
        let server = StandIn::new(move |_| (200, answer.clone()));
        assert!(begin(&server, None).is_err_and(|error| error.step == "beginning the login on another device"), "{member}");
    }
    let server = StandIn::new(|asked| (401, json!({"error": asked.header("authorization")})));
    let error = begin(&server, Some(SECRET)).err().unwrap().to_string();
    assert_eq!(error, "beginning the login on another device: it answers 401: Basic [redacted]");
}
