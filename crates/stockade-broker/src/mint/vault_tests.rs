//! A Vault on loopback, honest and otherwise.

use std::time::SystemTime;

use super::*;
use crate::mint::stand_in::{Asked, StandIn, ask};

const TOKEN: &str = "hvs.a-token-that-is-kept";
const LOGIN_TOKEN: &str = "hvs.a-token-of-one-login";
const SECRET_ID: &str = "a-secret-id-that-is-kept";
const VALUE: &str = "the-value-of-the-field";
const SECRETS: &[(&str, &str)] = &[("VT", TOKEN), ("SID", SECRET_ID)];

fn by_token(address: &str, path: &str) -> Value {
    json!({"source": "vault", "address": address, "path": path, "field": "password", "auth": {"method": "token", "token": "VT"}})
}

fn by_role(address: &str, path: &str) -> Value {
    json!({"source": "vault", "address": address, "path": path, "field": "password", "namespace": "team/a",
           "auth": {"method": "approle", "roleId": "role-1", "secretId": "SID"}})
}

fn lines(asked: &[Asked]) -> Vec<String> {
    asked.iter().map(|one| format!("{} {} {} {}", one.method, one.target, one.header("x-vault-token"), one.body)).collect()
}

/// Logs in with this, reads this, and gives back with this.
fn provider(login: Value, read: (u16, Value), back: u16) -> StandIn {
    StandIn::new(move |asked| match (asked.method.as_str(), asked.target.as_str()) {
        ("POST", "/v1/auth/approle/login") => (200, login.clone()),
        ("GET", _) => read.clone(),
        _ => (back, Value::Null),
    })
}

fn logged_in() -> Value {
    json!({"auth": {"client_token": LOGIN_TOKEN, "lease_duration": 1200, "token_type": "service", "policies": ["p"]}})
}

fn leased(seconds: u64) -> Value {
    json!({"lease_id": "database/creds/reader/x1", "lease_duration": seconds, "renewable": true, "data": {"username": "u", "password": VALUE}})
}

fn refused(asked: Result<Minted, MintError>) -> String {
    let error = asked.err().unwrap();
    let told = format!("{error} {error:?}");
    assert!([TOKEN, LOGIN_TOKEN, SECRET_ID, VALUE].iter().all(|value| !told.contains(value)), "{told}");
    told
}

#[test]
fn a_kept_secret_of_both_versions_is_read_with_a_token() {
    let second = json!({"lease_id": "", "lease_duration": 0, "data": {"data": {"password": VALUE}, "metadata": {"version": 3}}});
    let first =
        json!({"lease_id": "", "lease_duration": 2_764_800, "data": {"password": VALUE, "data": {"password": "x"}, "metadata": {}}});
    for (path, answer, scope) in
        [("secret/data/my app", second, "secret/data/my app field password; version 3"), ("kv/my app", first, "kv/my app field password")]
    {
        let vault = provider(Value::Null, (200, answer), 204);
        let minted = ask(&by_token(&format!("{}/", vault.address), path), SECRETS).unwrap();
        assert_eq!((minted.value.to_text().as_str(), minted.expires, minted.scope.as_str()), (VALUE, None, scope));
        assert!(minted.revoke.is_none());
        let asked = vault.asked();
        assert_eq!(lines(&asked), [format!("GET /v1/{} {TOKEN} ", path.replace(' ', "%20"))]);
        assert_eq!((asked[0].header("x-vault-request"), asked[0].header("x-vault-namespace")), ("true", ""));
    }
}

#[test]
fn an_application_logs_in_and_gives_back_its_lease_and_its_login() {
    let vault = provider(logged_in(), (200, leased(3600)), 204);
    let minted = ask(&by_role(&vault.address, "database/creds/reader"), SECRETS).unwrap();
    assert_eq!(minted.value.to_text().as_str(), VALUE);
    assert_eq!(minted.scope, "database/creds/reader field password; lease 1200 s", "the lease ends with the login");
    let left = minted.expires.unwrap().duration_since(SystemTime::now()).unwrap().as_secs();
    assert!((1190..=1200).contains(&left), "{left}");
    minted.revoke.unwrap()().unwrap();
    let asked = vault.asked();
    let expected = [
        format!("POST /v1/auth/approle/login  {}", json!({"role_id": "role-1", "secret_id": SECRET_ID})),
        format!("GET /v1/database/creds/reader {LOGIN_TOKEN} "),
        format!("PUT /v1/sys/leases/revoke {LOGIN_TOKEN} {}", json!({"lease_id": "database/creds/reader/x1"})),
        format!("PUT /v1/auth/token/revoke-self {LOGIN_TOKEN} "),
    ];
    assert_eq!(lines(&asked), expected);
    assert!(asked.iter().all(|one| one.header("x-vault-namespace") == "team/a" && one.header("x-vault-request") == "true"));
}

#[test]
fn a_lease_had_with_a_token_is_given_back_and_the_token_stays() {
    let vault = provider(Value::Null, (200, leased(3600)), 204);
    let minted = ask(&by_token(&vault.address, "database/creds/reader"), SECRETS).unwrap();
    assert_eq!(minted.scope, "database/creds/reader field password; lease 3600 s");
    minted.revoke.unwrap()().unwrap();
    let last = format!("PUT /v1/sys/leases/revoke {TOKEN} {}", json!({"lease_id": "database/creds/reader/x1"}));
    assert_eq!(lines(&vault.asked()).split_off(1), [last]);

    let vault = provider(Value::Null, (200, leased(3600)), 403);
    let minted = ask(&by_token(&vault.address, "database/creds/reader"), SECRETS).unwrap();
    assert_eq!(
        minted.revoke.unwrap()().unwrap_err().to_string(),
        "giving a lease back to Vault: it answers 403: no reason that can be read"
    );
}

#[test]
fn a_login_that_nothing_hangs_on_is_given_back_at_once_or_else_later() {
    let kept = json!({"data": {"password": VALUE}});
    for (kind, back, calls, later) in [("service", 204, 3, false), ("service", 500, 3, true), ("batch", 204, 2, false)] {
        let login = json!({"auth": {"client_token": LOGIN_TOKEN, "lease_duration": 0, "token_type": kind}});
        let vault = provider(login, (200, kept.clone()), back);
        let minted = ask(&by_role(&vault.address, "kv/app"), SECRETS).unwrap();
        assert_eq!((vault.asked().len(), minted.revoke.is_some()), (calls, later), "{kind} {back}");
    }
}

#[test]
fn what_fails_after_the_login_ends_it_and_names_no_value() {
    let echo = json!({"errors": [format!("permission denied for {LOGIN_TOKEN} of {SECRET_ID}")]});
    let wrapped = json!({"data": null, "wrap_info": {"token": VALUE}});
    for (read, says) in [
        ((403, echo), "it answers 403: permission denied for [redacted] of [redacted]"),
        ((404, json!({"errors": []})), "MOUNT/data/NAME"),
        ((200, Value::String("<html>".to_owned())), "not JSON"),
        ((200, json!([VALUE])), "of another kind"),
        ((200, wrapped), "no fields"),
        ((200, json!({"data": {"other": VALUE}})), "no field `password`"),
        ((200, json!({"data": {"password": 12_345_678_901_234_567_u64}})), "not text"),
        ((200, json!({"data": {"password": format!("{VALUE}\nx")}})), "line break"),
        ((200, json!({"data": {"password": format!("{VALUE}\u{0}x")}})), "control character"),
        ((200, json!({"data": {"password": "short"}})), "shorter"),
        ((200, json!({"lease_id": 7, "data": {"password": VALUE}})), "of another kind"),
        ((200, leased(0)), "over already"),
        ((302, Value::Null), "redirect"),
    ] {
        let vault = provider(logged_in(), read, 204);
        let told = refused(ask(&by_role(&vault.address, "kv/app"), SECRETS));
        assert!(told.contains(says) && told.contains("reading from Vault"), "{told}");
        assert_eq!(vault.asked().last().unwrap().target, "/v1/auth/token/revoke-self", "{says}");
    }
    // What cannot be given back is said, beside what went wrong first.
    for (login, read, says) in [
        (logged_in(), (403, Value::Null), "logging out of Vault: it answers 503"),
        (Value::Null, (200, leased(0)), "giving a lease back to Vault: it answers 503"),
    ] {
        let own = !login.is_null();
        let vault = provider(login, read, 503);
        let setting = if own { by_role(&vault.address, "kv/app") } else { by_token(&vault.address, "kv/app") };
        let told = refused(ask(&setting, SECRETS));
        assert!(told.starts_with("reading from Vault: ") && told.contains(&format!("could not be given back: {says}")), "{told}");
    }
    let vault = provider(logged_in(), (200, leased(0)), 204);
    refused(ask(&by_role(&vault.address, "database/creds/reader"), SECRETS));
    assert_eq!(vault.asked()[2].target, "/v1/sys/leases/revoke", "a lease that is not used is given back");
    let vault = provider(Value::Null, (200, leased(u64::MAX)), 204);
    assert!(refused(ask(&by_token(&vault.address, "a/b"), SECRETS)).contains("ten years"));
}

#[test]
fn nobody_is_asked_where_the_setting_or_the_login_is_wrong() {
    let vault = provider(logged_in(), (200, Value::Null), 204);
    for path in ["/secret/a", "secret/../sys/raw", "secret//a", "a/", "a?b=c", "a#b", "a\\b", "./a"] {
        assert!(refused(ask(&by_token(&vault.address, path), SECRETS)).contains("the setting"), "{path}");
    }
    let mut odd = by_role(&vault.address, "a/b");
    odd["auth"]["mount"] = "../token".into();
    assert!(refused(ask(&odd, SECRETS)).contains("`mount`"));
    assert!(refused(ask(&by_token(&vault.address, "a/b"), &[])).contains("no `VT`"));
    assert!(refused(ask(&by_role(&vault.address, "a/b"), &[])).contains("no `SID`"));
    assert!(vault.asked().is_empty());

    for (login, says) in [
        ((400, json!({"errors": [format!("invalid secret id {SECRET_ID}")]})), "it answers 400: invalid secret id [redacted]"),
        ((200, json!({"auth": null})), "lacks something"),
        ((200, json!({"auth": {"client_token": "x", "lease_duration": 1}})), "shorter"),
        ((200, json!({"auth": {"client_token": LOGIN_TOKEN, "lease_duration": -1}})), "of another kind"),
    ] {
        let vault = StandIn::new(move |_| login.clone());
        let told = refused(ask(&by_role(&vault.address, "a/b"), SECRETS));
        assert!(told.contains(says) && told.contains("logging in to Vault"), "{told}");
        assert_eq!(vault.asked().len(), 1);
    }
}

#[test]
fn an_escaped_path_stays_what_it_is() {
    assert_eq!(encoded("path", "a b/%2e%2e/ü").unwrap(), "a%20b/%252e%252e/%C3%BC");
    assert!(encoded("path", "a\u{7f}b").is_err());
}
