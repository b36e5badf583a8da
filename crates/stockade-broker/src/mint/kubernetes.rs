//! Kubernetes: a token of a service account through the API server's `TokenRequest`.
//!
//! An API server may give a token another time than was asked for, and says so. It is taken if that is no more than an hour, or than twice what
//! was asked for where that is longer: servers round up, but one that answers with a day or a year for ten minutes has not understood.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, json};
use stockade_store::settings::providers::Kubernetes;

use super::http::{Request, below};
use super::told::{self, Text};
use super::{Asking, MintError, Minted};

const STEP: &str = "asking for a token of the service account";
/// API servers refuse less.
const MIN_SECONDS: u32 = 600;
/// What is taken in any case.
const ALWAYS: Duration = Duration::from_hours(1);

#[derive(Deserialize)]
struct Granted {
    spec: Option<Spec>,
    status: Status,
}

#[derive(Deserialize)]
struct Spec {
    audiences: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Text,
    expiration_timestamp: String,
}

/// Asks for a token.
pub(super) fn mint(kubernetes: &Kubernetes, asking: &Asking<'_>) -> Result<Minted, MintError> {
    let Kubernetes { namespace, service_account, audiences, .. } = kubernetes;
    if !is_name(namespace) || !is_name(service_account) {
        return Err(MintError::new(STEP, "the namespace or the service account is no name that Kubernetes has"));
    }
    let token = asking.secret(&kubernetes.token)?;
    let seconds = kubernetes.seconds.unwrap_or(MIN_SECONDS).max(MIN_SECONDS);
    let mut spec = Map::new();
    spec.insert("expirationSeconds".to_owned(), seconds.into());
    if !audiences.is_empty() {
        spec.insert("audiences".to_owned(), json!(audiences));
    }
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let url = below(&kubernetes.server, &format!("api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"));
    let request = Request::json(&url, &body).header("authorization", format!("Bearer {}", *token.value.to_text()));
    let answer = asking.send(STEP, &request, kubernetes.ca_file.as_deref())?;
    let Granted { spec, status } = answer.json().map_err(|why| MintError::new(STEP, why))?;
    let granted = spec.and_then(|spec| spec.audiences).filter(|granted| !granted.is_empty());
    if let Some(other) = granted.iter().flatten().find(|granted| !audiences.is_empty() && !audiences.contains(granted)) {
        return Err(MintError::new(STEP, format!("it is for the audience `{}`, which was not asked for", told::scope(other))));
    }
    let most = ALWAYS.max(Duration::from_secs(u64::from(seconds)) * 2);
    let expires = told::until(STEP, asking.now, &status.expiration_timestamp, most)?;
    let audiences = match granted.as_ref().unwrap_or(audiences).as_slice() {
        [] => "the API server's own".to_owned(),
        some => some.join(", "),
    };
    let scope = told::scope(&format!("system:serviceaccount:{namespace}:{service_account}; audiences: {audiences}"));
    Ok(Minted::new(status.token.into_value(STEP)?, Some(expires), scope))
}

/// Whether this is the name of a namespace or an account: nothing that would make another path of it.
fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    text.bytes().all(inner) && !text.starts_with(['-', '.']) && !text.ends_with(['-', '.']) && !text.is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::stand_in::{StandIn, ask};
    use super::*;

    const TOKEN: &str = "eyJ-token-0123456789";
    const OURS: &str = "our-own-token-0123456789";

    fn setting(server: &str, more: &Value) -> Value {
        let mut setting = json!({"source": "kubernetes", "server": server, "namespace": "build", "serviceAccount": "ci", "token": "T"});
        setting.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        setting
    }

    fn answer(minutes: i64, audiences: &Value) -> Value {
        let end = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(minutes);
        json!({"kind": "TokenRequest", "spec": {"audiences": audiences}, "status": {"token": TOKEN, "expirationTimestamp": end.to_string()}})
    }

    fn told(status: u16, answer: Value, more: &Value) -> (StandIn, Result<Minted, MintError>) {
        let provider = StandIn::new(move |_| (status, answer.clone()));
        let minted = ask(&setting(&provider.address, more), &[("T", OURS)]);
        (provider, minted)
    }

    #[test]
    fn an_account_gets_a_token() {
        for (more, granted, spec, scope) in [
            (
                json!({}),
                json!(["https://kubernetes.default.svc"]),
                json!({"expirationSeconds": 600}),
                "system:serviceaccount:build:ci; audiences: https://kubernetes.default.svc",
            ),
            (json!({}), Value::Null, json!({"expirationSeconds": 600}), "system:serviceaccount:build:ci; audiences: the API server's own"),
            (
                json!({"audiences": ["a", "b"], "seconds": 60}),
                json!(["a"]),
                json!({"expirationSeconds": 600, "audiences": ["a", "b"]}),
                "system:serviceaccount:build:ci; audiences: a",
            ),
            (
                json!({"audiences": ["a"], "seconds": 1200}),
                Value::Null,
                json!({"expirationSeconds": 1200, "audiences": ["a"]}),
                "system:serviceaccount:build:ci; audiences: a",
            ),
        ] {
            let (provider, minted) = told(201, answer(10, &granted), &more);
            let minted = minted.unwrap();
            assert_eq!((minted.value.to_text().as_str(), minted.scope.as_str()), (TOKEN, scope));
            let left = minted.expires.unwrap().duration_since(std::time::SystemTime::now()).unwrap().as_secs();
            assert!((500..=600).contains(&left) && minted.revoke.is_none());
            let asked = &provider.asked()[0];
            assert_eq!((asked.method.as_str(), asked.target.as_str()), ("POST", "/api/v1/namespaces/build/serviceaccounts/ci/token"));
            assert_eq!(
                (asked.header("authorization"), asked.header("content-type")),
                (format!("Bearer {OURS}").as_str(), "application/json")
            );
            let body: Value = serde_json::from_str(&asked.body).unwrap();
            assert_eq!(body, json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}));
        }
    }

    #[test]
    fn times_are_bounded_by_what_was_asked_for() {
        for (minutes, seconds, taken) in
            [(60, 600, true), (70, 600, false), (70, 3600, true), (130, 3600, false), (60 * 24 * 365, 3607, false)]
        {
            let (_, minted) = told(201, answer(minutes, &Value::Null), &json!({"seconds": seconds}));
            assert_eq!(
                minted.map(|_| ()).map_err(|error| error.why.contains("longer")),
                if taken { Ok(()) } else { Err(true) },
                "{minutes}"
            );
        }
    }

    #[test]
    fn failures_name_the_step_and_no_value() {
        let forbidden = json!({"kind": "Status", "reason": "Forbidden", "message": format!("who is {OURS}?")});
        for (status, answer, more, says) in [
            (403, forbidden, json!({}), "it answers 403: who is [redacted]?: Forbidden"),
            (201, answer(10, &json!(["other"])), json!({"audiences": ["a"]}), "the audience `other`"),
            (201, json!({"status": {"token": TOKEN}}), json!({}), "lacks something"),
            (201, json!({"status": {"token": TOKEN, "expirationTimestamp": "x"}}), json!({}), "no date"),
            (
                201,
                json!({"status": {"token": "a\nb-0123456789abcdef", "expirationTimestamp": "2020-01-01T00:00:00Z"}}),
                json!({}),
                "line break",
            ),
            (201, Value::Null, json!({}), "not JSON"),
            (201, answer(10, &Value::Null), json!({"namespace": "../x"}), "is no name"),
            (201, answer(10, &Value::Null), json!({"serviceAccount": ".."}), "is no name"),
        ] {
            let error = told(status, answer, &more).1.err().unwrap().to_string();
            assert!(error.starts_with("asking for a token of the service account: "), "{error}");
            assert!(error.contains(says) && !error.contains("0123456789"), "{error}");
        }
        let error = ask(&setting("http://127.0.0.1:1", &json!({})), &[]).err().unwrap().to_string();
        assert_eq!(error, "secrets: no `T`");
    }
}
