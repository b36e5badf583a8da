//! GitHub: an App proves itself with a JWT and gets a token of one installation, for the repositories and permissions that the setting names.
//!
//! What the answer grants is compared with what was asked for: a token that is good for more is refused, and given back at once.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, json};
use stockade_store::settings::providers::Github;
use zeroize::Zeroizing;

use super::http::{self, Request, below};
use super::told::{self, Text};
use super::{Asking, MintError, Minted, Revoke, jwt};
use crate::SecretValue;

const API: &str = "https://api.github.com";
const STEP: &str = "asking for an installation token";
/// The App's proof is good from before now, since clocks differ …
const BEFORE: u64 = 60;
/// … until this many seconds from now; GitHub takes no more than ten minutes.
const AFTER: u64 = 540;
/// GitHub's tokens are good for an hour.
const MAX_TIME: Duration = Duration::from_hours(1);
/// GitHub gives this with any other permission, asked for or not.
const ALWAYS: (&str, &str) = ("metadata", "read");

#[derive(Deserialize)]
struct Granted {
    token: Text,
    expires_at: String,
    #[serde(default)]
    permissions: BTreeMap<String, String>,
    repository_selection: Option<String>,
    repositories: Option<Vec<Repository>>,
}

#[derive(Deserialize)]
struct Repository {
    name: String,
}

/// Asks for a token.
pub(super) fn mint(github: &Github, asking: &Asking<'_>) -> Result<Minted, MintError> {
    let base = github.endpoint.as_deref().unwrap_or(API);
    let key = asking.secret(&github.key)?;
    let now = told::seconds(asking.now);
    let claims = json!({"iat": now.saturating_sub(BEFORE), "exp": now + AFTER, "iss": github.app});
    let proof = jwt::rs256(&key.value.to_text(), None, &claims).map_err(|why| MintError::new("signing with the App's key", why))?;
    asking.hide_text(STEP, &proof)?;
    let mut body = Map::new();
    if !github.repositories.is_empty() {
        body.insert("repositories".to_owned(), json!(github.repositories));
    }
    if !github.permissions.is_empty() {
        body.insert("permissions".to_owned(), json!(github.permissions));
    }
    let url = below(base, &format!("app/installations/{}/access_tokens", github.installation));
    let answer = asking.send(STEP, &headers(Request::json(&url, &body.into()), &proof), github.ca_file.as_deref())?;
    let granted: Granted = answer.json().map_err(|why| MintError::new(STEP, why))?;
    let checked = check(github, &granted).and_then(|scope| {
        let expires = told::until(STEP, asking.now, &granted.expires_at, MAX_TIME)?;
        Ok((scope, expires))
    });
    let value = granted.token.into_value(STEP)?;
    let revoke = revoke(github, &value);
    match checked {
        Ok((scope, expires)) => Ok(Minted { revoke: Some(revoke), ..Minted::new(value, Some(expires), scope) }),
        Err(error) => {
            // It is refused whether this works or not.
            drop(revoke());
            Err(error)
        }
    }
}

fn headers<'a>(request: Request<'a>, token: &str) -> Request<'a> {
    request
        .header("authorization", format!("Bearer {token}"))
        .header("accept", "application/vnd.github+json")
        .header("x-github-api-version", "2022-11-28")
}

/// Describes what was granted, if it is no more than what was asked for.
fn check(github: &Github, granted: &Granted) -> Result<String, MintError> {
    let wider =
        |what: &str, name: &str| MintError::new(STEP, format!("it grants the {what} `{}`, which was not asked for", told::scope(name)));
    let all = granted.repository_selection.as_deref() == Some("all");
    let repositories = match &granted.repositories {
        Some(granted) if !github.repositories.is_empty() => {
            let asked = |name: &str| github.repositories.iter().any(|asked| asked.eq_ignore_ascii_case(name));
            if let Some(other) = granted.iter().find(|granted| !asked(&granted.name)) {
                return Err(wider("repository", &other.name));
            }
            if all {
                return Err(MintError::new(STEP, "it grants every repository of the installation, and only some were asked for"));
            }
            names(granted)
        }
        Some(granted) if !granted.is_empty() => names(granted),
        None if !github.repositories.is_empty() => {
            return Err(MintError::new(STEP, "it does not say which repositories it grants, and only some were asked for"));
        }
        Some(_) | None => "all of the installation's".to_owned(),
    };
    if !github.permissions.is_empty() {
        for (name, level) in &granted.permissions {
            let asked = github.permissions.get(name).is_some_and(|asked| within(level, asked));
            if !asked && (name.as_str(), level.as_str()) != ALWAYS {
                return Err(wider("permission", &format!("{name}:{level}")));
            }
        }
    }
    let permissions: Vec<String> = granted.permissions.iter().map(|(name, level)| format!("{name}:{level}")).collect();
    let permissions = if permissions.is_empty() { "not told".to_owned() } else { permissions.join(", ") };
    let Github { app, installation, .. } = github;
    Ok(told::scope(&format!("app {app}, installation {installation}; repositories: {repositories}; permissions: {permissions}")))
}

fn names(repositories: &[Repository]) -> String {
    repositories.iter().map(|repository| repository.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Whether one level of a permission is no more than another.
fn within(granted: &str, asked: &str) -> bool {
    let rank = |level: &str| ["read", "write", "admin"].iter().position(|known| *known == level);
    match (rank(granted), rank(asked)) {
        (Some(granted), Some(asked)) => granted <= asked,
        (None, _) | (_, None) => granted == asked,
    }
}

fn revoke(github: &Github, token: &SecretValue) -> Revoke {
    let url = below(github.endpoint.as_deref().unwrap_or(API), "installation/token");
    let (ca_file, token) = (github.ca_file.clone(), token.duplicate());
    Box::new(move || {
        let text: Zeroizing<String> = token.to_text();
        let request = headers(Request::get(&url).method("DELETE"), &text);
        // GitHub does not know a token that is over.
        told::give_back(&http::send, "giving the installation token back", &request, ca_file.as_deref(), &[token], Some(401))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::stand_in::{StandIn, ask};
    use super::*;

    const TOKEN: &str = "ghs_0123456789abcdefghij";

    fn answer() -> Value {
        let end = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
        json!({"token": TOKEN, "expires_at": end.to_string(), "permissions": {"contents": "read", "metadata": "read"},
               "repository_selection": "selected", "repositories": [{"name": "A", "id": 1}, {"name": "b"}]})
    }

    fn with(member: &str, value: Value) -> Value {
        let mut answer = answer();
        answer[member] = value;
        answer
    }

    fn setting(endpoint: &str) -> Value {
        json!({"source": "github", "app": "1", "installation": 2, "key": "K", "endpoint": endpoint, "repositories": ["a", "b"],
               "permissions": {"contents": "write"}})
    }

    fn told(status: u16, answer: Value) -> (StandIn, Result<Minted, MintError>) {
        let provider = StandIn::new(move |asked| if asked.method == "POST" { (status, answer.clone()) } else { (204, Value::Null) });
        let minted = ask(&setting(&provider.address), &[("K", &jwt::keys::pkcs1())]);
        (provider, minted)
    }

    #[test]
    fn an_app_gets_a_token_and_gives_it_back() {
        let (provider, minted) = told(201, answer());
        let minted = minted.unwrap();
        assert_eq!(minted.value.to_text().as_str(), TOKEN);
        assert_eq!(minted.scope, "app 1, installation 2; repositories: A, b; permissions: contents:read, metadata:read");
        let left = minted.expires.unwrap().duration_since(std::time::SystemTime::now()).unwrap().as_secs();
        assert!((3500..=3600).contains(&left), "{left}");
        (minted.revoke.unwrap())().unwrap();
        let asked = provider.asked();
        let shown: Vec<_> = asked.iter().map(|asked| (asked.method.as_str(), asked.target.as_str())).collect();
        assert_eq!(shown, [("POST", "/app/installations/2/access_tokens"), ("DELETE", "/installation/token")]);
        for asked in &asked {
            assert_eq!((asked.header("accept"), asked.header("x-github-api-version")), ("application/vnd.github+json", "2022-11-28"));
        }
        let body: Value = serde_json::from_str(&asked[0].body).unwrap();
        assert_eq!(body, json!({"repositories": ["a", "b"], "permissions": {"contents": "write"}}));
        let (_, claims) = jwt::keys::verified(asked[0].header("authorization").strip_prefix("Bearer ").unwrap());
        let (begin, end) = (claims["iat"].as_u64().unwrap(), claims["exp"].as_u64().unwrap());
        let now = told::seconds(std::time::SystemTime::now());
        assert!(claims["iss"] == "1" && end - begin == 600 && (now - 65..=now - 60).contains(&begin), "{claims}");
        assert_eq!((asked[1].header("authorization"), asked[1].body.as_str()), (format!("Bearer {TOKEN}").as_str(), ""));
    }

    #[test]
    fn more_than_was_asked_for_is_refused_and_given_back() {
        for (answer, says) in [
            (with("repositories", json!([{"name": "a"}, {"name": "other"}])), "the repository `other`"),
            (with("repository_selection", json!("all")), "every repository"),
            (with("repositories", Value::Null), "does not say which repositories"),
            (with("permissions", json!({"contents": "admin"})), "`contents:admin`"),
            (with("permissions", json!({"contents": "read", "actions": "read"})), "`actions:read`"),
            (with("permissions", json!({"metadata": "write"})), "`metadata:write`"),
            (with("expires_at", json!("2999-01-01T00:00:00Z")), "longer than the 3600"),
            (with("expires_at", json!("soon")), "no date"),
        ] {
            let (provider, minted) = told(201, answer);
            let error = minted.err().unwrap().to_string();
            assert!(error.starts_with("asking for an installation token: ") && error.contains(says), "{error}");
            assert_eq!(provider.asked().last().unwrap().method, "DELETE");
        }
    }

    #[test]
    fn failures_name_the_step_and_no_value() {
        for (status, answer, says) in [
            (201, json!({"token": TOKEN}), "lacks something"),
            (201, with("token", json!(format!("{TOKEN}\n"))), "line break"),
            (404, json!({"message": "Not Found"}), "it answers 404: Not Found"),
        ] {
            let error = told(status, answer).1.err().unwrap().to_string();
            assert!(error.contains(says) && !error.contains(TOKEN), "{error}");
        }
        let provider = StandIn::new(|asked| (401, json!({"message": format!("bad {}", asked.header("authorization"))})));
        let error = ask(&setting(&provider.address), &[("K", &jwt::keys::pkcs8())]).err().unwrap().to_string();
        assert_eq!(error, "asking for an installation token: it answers 401: bad Bearer [redacted]");
        let error = ask(&setting(&provider.address), &[("K", "no key, but long enough")]).err().unwrap().to_string();
        assert_eq!(error, "signing with the App's key: it is no private key in PEM");
        assert_eq!(ask(&setting(&provider.address), &[]).err().unwrap().to_string(), "secrets: no `K`");
    }
}
