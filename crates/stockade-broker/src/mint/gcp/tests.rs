//! Google Cloud against a stand-in: each kind of key, impersonation, boundaries, and answers that are not what was asked for.

use super::super::http::encode;
use super::super::stand_in::{Asked as Seen, StandIn, ask};
use super::*;

const FIRST: &str = "ya29.first-0123456789";
const SECOND: &str = "ya29.second-0123456789";
const THIRD: &str = "ya29.third-0123456789";
const REFRESH: &str = "1//refresh-0123456789";
const CLIENT_SECRET: &str = "GOCSPX-0123456789";

/// Google: what it answers at each of its three addresses.
fn google(grant: Value, iam: Value, sts: Value) -> StandIn {
    StandIn::new(move |asked| match asked.target.as_str() {
        "/token" => (200, grant.clone()),
        "/v1/token" => (200, sts.clone()),
        _ => (200, iam.clone()),
    })
}

fn granted() -> Value {
    json!({"access_token": FIRST, "token_type": "Bearer", "expires_in": 3599})
}

fn impersonated(minutes: i64) -> Value {
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(minutes);
    json!({"accessToken": SECOND, "expireTime": end.to_string()})
}

fn narrowed() -> Value {
    json!({"access_token": THIRD, "token_type": "Bearer", "issued_token_type": ACCESS_TOKEN})
}

fn account(address: &str) -> String {
    json!({"type": "service_account", "client_email": "ci@p.iam.gserviceaccount.com", "private_key_id": "k1", "project_id": "p",
           "private_key": jwt::keys::pkcs8(), "token_uri": format!("{address}/token")})
    .to_string()
}

fn user(address: &str) -> String {
    json!({"type": "authorized_user", "client_id": "c1", "client_secret": CLIENT_SECRET, "refresh_token": REFRESH,
           "token_uri": format!("{address}/token"), "account": ""})
    .to_string()
}

fn asked_with(google: &StandIn, key: &str, more: &Value) -> Result<Minted, MintError> {
    let mut setting = json!({"source": "gcp", "key": "K", "iamEndpoint": google.address, "stsEndpoint": google.address});
    setting.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    ask(&setting, &[("K", key)])
}

fn form(fields: &[(&str, &str)]) -> String {
    fields.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect::<Vec<_>>().join("&")
}

fn left(minted: &Minted) -> u64 {
    minted.expires.unwrap().duration_since(std::time::SystemTime::now()).unwrap().as_secs()
}

fn assertion(asked: &Seen) -> Value {
    let grant = format!("grant_type={}&assertion=", encode("urn:ietf:params:oauth:grant-type:jwt-bearer"));
    let (header, claims) = jwt::keys::verified(asked.body.strip_prefix(&grant).unwrap());
    assert_eq!(header, json!({"alg": "RS256", "typ": "JWT", "kid": "k1"}));
    claims
}

#[test]
fn a_service_account_gets_a_token() {
    let google = google(granted(), Value::Null, Value::Null);
    let minted = asked_with(&google, &account(&google.address), &json!({"scopes": ["s1", "s2"]})).unwrap();
    assert_eq!((minted.value.to_text().as_str(), minted.scope.as_str()), (FIRST, "ci@p.iam.gserviceaccount.com; scopes: s1 s2"));
    assert!((3500..3600).contains(&left(&minted)));
    let asked = &google.asked()[0];
    assert_eq!((asked.method.as_str(), asked.header("content-type")), ("POST", "application/x-www-form-urlencoded"));
    let claims = assertion(asked);
    let now = claims["iat"].as_u64().unwrap();
    let url = format!("{}/token", google.address);
    assert_eq!(claims, json!({"iss": "ci@p.iam.gserviceaccount.com", "scope": "s1 s2", "aud": url, "iat": now, "exp": now + 3600}));
}

#[test]
fn a_person_gets_a_token() {
    let told = json!({"access_token": FIRST, "token_type": "Bearer", "expires_in": 60, "scope": "s1", "id_token": "x"});
    let google = google(told, Value::Null, Value::Null);
    let minted = asked_with(&google, &user(&google.address), &json!({})).unwrap();
    assert_eq!(minted.scope, "the user of client c1; scopes: s1");
    let fields = [
        ("grant_type", "refresh_token"),
        ("client_id", "c1"),
        ("client_secret", CLIENT_SECRET),
        ("refresh_token", REFRESH),
        ("scope", "s1 s2"),
    ];
    assert_eq!(google.asked()[0].body, form(&fields[..4]));
    asked_with(&google, &user(&google.address), &json!({"scopes": ["s1", "s2"]})).unwrap();
    assert_eq!(google.asked()[1].body, form(&fields));
    let error = asked_with(&google, &user(&google.address), &json!({"scopes": ["s2"]})).err().unwrap();
    assert_eq!(error.why, "it gives the scope `s1`, which was not asked for");
}

#[test]
fn another_account_is_acted_as_within_a_boundary() {
    let google = google(granted(), impersonated(15), narrowed());
    let boundary = json!({"accessBoundaryRules": [{"availableResource": "//storage.googleapis.com/b"}]});
    let more = json!({"scopes": ["s1"], "impersonate": "x@p.iam", "seconds": 900, "boundary": boundary});
    let minted = asked_with(&google, &account(&google.address), &more).unwrap();
    assert_eq!(minted.value.to_text().as_str(), THIRD);
    assert_eq!(minted.scope, "x@p.iam through ci@p.iam.gserviceaccount.com; scopes: s1; within a boundary");
    assert!((800..=900).contains(&left(&minted)), "the end of the token that was narrowed");
    let asked = google.asked();
    assert_eq!(assertion(&asked[0])["scope"], ACT_AS);
    assert_eq!(asked[1].target, "/v1/projects/-/serviceAccounts/x@p.iam:generateAccessToken");
    assert_eq!(asked[1].header("authorization"), format!("Bearer {FIRST}"));
    assert_eq!(serde_json::from_str::<Value>(&asked[1].body).unwrap(), json!({"scope": ["s1"], "lifetime": "900s"}));
    let fields = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("subject_token_type", ACCESS_TOKEN),
        ("requested_token_type", ACCESS_TOKEN),
        ("subject_token", SECOND),
        ("options", &json!({"accessBoundary": boundary}).to_string()),
    ];
    assert_eq!((asked[2].target.as_str(), asked[2].body.as_str()), ("/v1/token", form(&fields).as_str()));
    let whole = json!({"boundary": {"accessBoundary": boundary}});
    asked_with(&google, &user(&google.address), &whole).unwrap();
    assert!(google.asked()[4].body.ends_with(&form(&fields[4..])));
}

#[test]
fn google_that_lies_is_refused() {
    let act = json!({"impersonate": "x@p.iam"});
    let within = json!({"boundary": {"accessBoundaryRules": []}});
    let other = json!({"access_token": THIRD, "token_type": "Bearer", "issued_token_type": "urn:other"});
    let same = json!({"access_token": FIRST, "token_type": "Bearer", "issued_token_type": ACCESS_TOKEN});
    for (grant, iam, sts, more, says) in [
        (json!({"access_token": FIRST}), Value::Null, Value::Null, json!({}), "asking Google for a token: the JSON that it answers lacks"),
        (json!({"access_token": FIRST, "token_type": "mac"}), Value::Null, Value::Null, json!({}), "not of the type Bearer"),
        (json!({"access_token": FIRST, "token_type": "Bearer", "expires_in": 90_000}), Value::Null, Value::Null, json!({}), "longer"),
        (granted(), impersonated(90), Value::Null, act.clone(), "asking to act as the service account: what it gives is good for longer"),
        (granted(), json!({"accessToken": SECOND}), Value::Null, act.clone(), "lacks"),
        (granted(), impersonated(1), Value::Null, json!({"impersonate": "../x"}), "no address"),
        (granted(), Value::Null, other, within.clone(), "narrowing the token: it gives another kind"),
        (granted(), Value::Null, same, within.clone(), "that was to be narrowed"),
    ] {
        let google = google(grant, iam, sts);
        let error = asked_with(&google, &account(&google.address), &more).err().unwrap().to_string();
        assert!(error.contains(says) && !error.contains("0123456789"), "{error}");
    }
}

#[test]
fn what_was_used_to_ask_is_not_repeated() {
    let echo = StandIn::new(|asked| {
        if asked.target == "/token" && asked.body.contains("assertion") {
            return (200, granted());
        }
        (401, json!({"error": {"status": "DENIED", "message": format!("{CLIENT_SECRET} {REFRESH} {}", asked.header("authorization"))}}))
    });
    let error = asked_with(&echo, &user(&echo.address), &json!({})).err().unwrap().to_string();
    assert_eq!(error, "asking Google for a token: it answers 401: DENIED: [redacted] [redacted] ");
    let error = asked_with(&echo, &account(&echo.address), &json!({"impersonate": "x@p.iam"})).err().unwrap().to_string();
    assert!(error.ends_with("Bearer [redacted]"), "{error}");
}

#[test]
fn other_keys_are_refused() {
    let google = google(granted(), Value::Null, Value::Null);
    let plain = account("http://tokens.example");
    for (key, says) in [
        ("no json, but long enough".to_owned(), "reading the key file: "),
        (json!({"type": "external_account", "audience": "a"}).to_string(), "reading the key file: "),
        (json!({"type": "service_account", "client_email": "a@b"}).to_string(), "reading the key file: "),
        (account("").replace("PRIVATE KEY", "CERTIFICATE"), "signing with the service account's key: "),
        (plain, "is no address of a provider"),
    ] {
        let error = asked_with(&google, &key, &json!({})).err().unwrap().to_string();
        assert!(error.contains(says), "{error}");
    }
    assert_eq!(ask(&json!({"source": "gcp", "key": "K"}), &[]).err().unwrap().to_string(), "secrets: no `K`");
    assert!(google.asked().is_empty());
}
