//! Infisical: one secret of a project, read as a machine identity (universal auth). The login is given back as soon as it was used.
//!
//! A value that is kept there has no end of its own. It is read by the endpoint of version 4; that of version 3 is deprecated.

use serde::Deserialize;
use serde_json::json;
use stockade_core::escape::escape;
use stockade_store::settings::providers::Infisical;

use super::http::{Request, below, encode};
use super::told;
use super::{Asking, MintError, Minted};
use crate::SecretValue;

/// Where it is if nothing is said.
const ADDRESS: &str = "https://app.infisical.com";
const LOGIN: &str = "logging in to Infisical";
const READ: &str = "reading from Infisical";
const LOGOUT: &str = "logging out of Infisical";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Login {
    access_token: String,
}

#[derive(Deserialize)]
struct Read {
    secret: Kept,
}

#[derive(Deserialize)]
struct Kept {
    #[serde(rename = "secretKey")]
    key: String,
    #[serde(rename = "secretValue")]
    value: String,
    /// Whoever may see that there is a secret, but not what it is, is given a few words in the place of the value.
    #[serde(default, rename = "secretValueHidden")]
    hidden: bool,
}

/// Reads the secret.
pub(crate) fn mint(infisical: &Infisical, asking: &Asking<'_>) -> Result<Minted, MintError> {
    let address = infisical.address.as_deref().unwrap_or(ADDRESS);
    let ca_file = infisical.ca_file.as_deref();
    let url = below(address, "api/v1/auth/universal-auth/login");
    let secret = asking.secret(&infisical.client_secret)?;
    let body = json!({ "clientId": infisical.client_id, "clientSecret": &*secret.value.to_text() });
    let answer = asking.send(LOGIN, &Request::json(&url, &body), ca_file)?;
    let login: Login = answer.json().map_err(|why| MintError::new(LOGIN, why))?;
    let token = asking.take(LOGIN, login.access_token)?;

    let minted = read(infisical, address, &token, asking);
    // It ends by itself too, only later: no reason to do without the value, but one to say so.
    let url = below(address, "api/v1/auth/token/revoke");
    let request = Request::json(&url, &json!({ "accessToken": &*token.to_text() }));
    let left = asking.send(LOGOUT, &request, ca_file);
    let note = left.err().map(|error| format!("a login at Infisical was not given back, and ends by itself later: {error}"));
    minted.map(|minted| Minted { note, ..minted })
}

fn read(infisical: &Infisical, address: &str, token: &SecretValue, asking: &Asking<'_>) -> Result<Minted, MintError> {
    let Infisical { project, environment, key, .. } = infisical;
    let folder = infisical.folder.as_deref().unwrap_or("/");
    if matches!(key.as_str(), "." | "..") {
        return Err(MintError::new(READ, format!("`{key}` is no name of a secret")));
    }
    let query = format!("projectId={}&environment={}&secretPath={}", encode(project), encode(environment), encode(folder));
    let url = below(address, &format!("api/v4/secrets/{}?{query}", encode(key)));
    let request = Request::get(&url).header("authorization", format!("Bearer {}", &*token.to_text()));
    let Read { secret } = asking.send(READ, &request, infisical.ca_file.as_deref())?.json().map_err(|why| MintError::new(READ, why))?;
    if secret.hidden {
        let hint = "give the machine identity the permission to read values in this folder";
        return Err(MintError::new(READ, format!("the value of `{}` is hidden from this identity", escape(key))).with_hint(hint));
    }
    // Projects may write every name in capitals.
    if !secret.key.eq_ignore_ascii_case(key) {
        return Err(MintError::new(READ, format!("asked for `{}`, it gives another secret", escape(key))));
    }
    let value = asking.take(READ, secret.value)?;
    let scope = format!("project {project} environment {environment} folder {folder} key {key}");
    Ok(Minted::new(value, None, told::scope(&scope)))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::mint::stand_in::{StandIn, ask};

    const CLIENT_SECRET: &str = "a-client-secret-that-is-kept";
    const TOKEN: &str = "eyJ.an-access-token-of-one-login";
    const VALUE: &str = "the-value-of-the-secret";
    const SECRETS: &[(&str, &str)] = &[("CS", CLIENT_SECRET)];

    fn setting(address: &str) -> Value {
        json!({"source": "infisical", "address": address, "clientId": "id-1", "clientSecret": "CS", "project": "p 1", "environment": "prod",
               "folder": "/a&b", "key": "DB/URL"})
    }

    fn provider(read: (u16, Value), back: u16) -> StandIn {
        StandIn::new(move |asked| match asked.target.as_str() {
            "/api/v1/auth/universal-auth/login" => {
                (200, json!({"accessToken": TOKEN, "expiresIn": 7200, "accessTokenMaxTTL": 7200, "tokenType": "Bearer"}))
            }
            "/api/v1/auth/token/revoke" => (back, json!({ "message": TOKEN })),
            _ => read.clone(),
        })
    }

    fn kept(key: &str, value: &str) -> Value {
        json!({"secret": {"id": "1", "version": 2, "secretKey": key, "secretValue": value, "secretComment": ""}})
    }

    fn refused(asked: Result<Minted, MintError>) -> String {
        let error = asked.err().unwrap();
        let told = format!("{error} {error:?}");
        assert!([CLIENT_SECRET, TOKEN, VALUE].iter().all(|value| !told.contains(value)), "{told}");
        told
    }

    #[test]
    fn a_secret_is_read_and_the_login_given_back() {
        for back in [200, 404] {
            let infisical = provider((200, kept("db/url", VALUE)), back);
            let minted = ask(&setting(&infisical.address), SECRETS).unwrap();
            assert_eq!((minted.value.to_text().as_str(), minted.expires), (VALUE, None));
            assert_eq!(minted.scope, "project p 1 environment prod folder /a&b key DB/URL");
            assert!(minted.revoke.is_none());
            let told =
                "a login at Infisical was not given back, and ends by itself later: logging out of Infisical: it answers 404: [redacted]";
            assert_eq!(minted.note.as_deref(), (back == 404).then_some(told));
            let lines: Vec<String> = infisical
                .asked()
                .iter()
                .map(|one| format!("{} {} [{}] {}", one.method, one.target, one.header("authorization"), one.body))
                .collect();
            let expected = [
                format!("POST /api/v1/auth/universal-auth/login [] {}", json!({"clientId": "id-1", "clientSecret": CLIENT_SECRET})),
                format!("GET /api/v4/secrets/DB%2FURL?projectId=p%201&environment=prod&secretPath=%2Fa%26b [Bearer {TOKEN}] "),
                format!("POST /api/v1/auth/token/revoke [] {}", json!({"accessToken": TOKEN})),
            ];
            assert_eq!(lines, expected);
        }
    }

    #[test]
    fn what_fails_names_the_step_and_no_value_and_ends_the_login() {
        let mut hidden = kept("DB/URL", "<hidden-by-infisical>");
        hidden["secret"]["secretValueHidden"] = true.into();
        for (read, says) in [
            (
                (404, json!({"statusCode": 404, "message": format!("no secret for {TOKEN}"), "error": "NotFound"})),
                "404: NotFound: no secret for [redacted]",
            ),
            ((200, hidden), "hidden from this identity"),
            ((200, kept("OTHER", VALUE)), "another secret"),
            ((200, kept("DB/URL", "a value with\na line break")), "line break"),
            ((200, kept("DB/URL", "")), "empty"),
            ((200, json!({"secret": {"secretKey": "DB/URL", "secretValue": [VALUE]}})), "of another kind"),
            ((200, json!({"message": VALUE})), "lacks something"),
            ((200, Value::String(VALUE.to_owned())), "not JSON"),
        ] {
            let infisical = provider(read, 200);
            let told = refused(ask(&setting(&infisical.address), SECRETS));
            assert!(told.contains(says) && told.contains("reading from Infisical"), "{told}");
            assert_eq!(infisical.asked().last().unwrap().target, "/api/v1/auth/token/revoke", "{says}");
        }
    }

    #[test]
    fn a_login_that_fails_is_all_that_happens() {
        for (login, says) in [
            ((401, json!({"message": format!("Invalid credentials {CLIENT_SECRET}")})), "it answers 401: Invalid credentials [redacted]"),
            ((200, json!({"token": TOKEN})), "lacks something"),
            ((200, json!({"accessToken": ""})), "empty"),
        ] {
            let infisical = StandIn::new(move |_| login.clone());
            let told = refused(ask(&setting(&infisical.address), SECRETS));
            assert!(told.contains(says) && told.contains("logging in to Infisical"), "{told}");
            assert_eq!(infisical.asked().len(), 1);
        }
        assert!(refused(ask(&setting("http://127.0.0.1:1"), &[])).contains("no `CS`"));
    }
}
