//! Google Cloud: an access token of a service account or of a person, then if wished of another account that is acted as, then if wished
//! narrowed by a credential access boundary. The tokens between are used here and go nowhere else.

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use stockade_store::settings::providers::Gcp;

use super::http::{Request, below};
use super::token::{ACCESS_TOKEN, Asked, Token, TokenAnswer};
use super::told::{self, Text};
use super::{Asking, MintError, Minted, jwt};

const KEY: &str = "reading the key file";
const GRANT: &str = "asking Google for a token";
const IMPERSONATE: &str = "asking to act as the service account";
const NARROW: &str = "narrowing the token";

const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
const IAM: &str = "https://iamcredentials.googleapis.com";
const STS: &str = "https://sts.googleapis.com";
const ALL: &str = "https://www.googleapis.com/auth/cloud-platform";
/// All that a token needs with which another account is acted as.
const ACT_AS: &str = "https://www.googleapis.com/auth/iam";
/// For how long an assertion is good, and a token where the setting does not say.
const HOUR: u32 = 3600;
/// No token of Google is good for longer.
const MAX_TIME: Duration = Duration::from_hours(12);

/// A key file.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Key {
    ServiceAccount { client_email: String, private_key: Text, private_key_id: Option<String>, token_uri: String },
    AuthorizedUser { client_id: String, client_secret: Text, refresh_token: Text, token_uri: Option<String> },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Impersonated {
    access_token: Text,
    expire_time: String,
}

/// Asks for a token.
pub(super) fn mint(gcp: &Gcp, asking: &Asking<'_>) -> Result<Minted, MintError> {
    let file = asking.secret(&gcp.key)?;
    let key: Key = serde_json::from_slice(file.value.expose()).map_err(|_| {
        MintError::new(KEY, "it is no JSON of the type service_account or authorized_user with all that these have")
            .with_hint("keep the key file on one line: jq -c . key.json | stockade secret set NAME")
    })?;
    let scopes = if gcp.scopes.is_empty() { ALL.to_owned() } else { gcp.scopes.join(" ") };
    let (mut who, mut token) = match &key {
        Key::ServiceAccount { client_email, private_key, private_key_id, token_uri } => {
            let scope = if gcp.impersonate.is_some() { ACT_AS } else { &scopes };
            let now = told::seconds(asking.now);
            let claims = json!({"iss": client_email, "scope": scope, "aud": token_uri, "iat": now, "exp": now + u64::from(HOUR)});
            let signed = jwt::rs256(private_key.as_str(), private_key_id.as_deref(), &claims);
            let signed = signed.map_err(|why| MintError::new("signing with the service account's key", why))?;
            asking.hide_text(GRANT, &signed)?;
            let fields = [("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"), ("assertion", signed.as_str())];
            (client_email.clone(), grant(gcp, asking, token_uri, &fields, Some(scope))?)
        }
        Key::AuthorizedUser { client_id, client_secret, refresh_token, token_uri } => {
            asking.hide_text(KEY, client_secret.as_str())?;
            asking.hide_text(KEY, refresh_token.as_str())?;
            let mut fields = vec![
                ("grant_type", "refresh_token"),
                ("client_id", client_id),
                ("client_secret", client_secret.as_str()),
                ("refresh_token", refresh_token.as_str()),
            ];
            // What a person agreed to at the login is all there is to choose from: only what the setting names is asked for.
            let scope = (gcp.impersonate.is_none() && !gcp.scopes.is_empty()).then_some(scopes.as_str());
            fields.extend(scope.map(|scope| ("scope", scope)));
            let token = grant(gcp, asking, token_uri.as_deref().unwrap_or(TOKEN_URI), &fields, scope)?;
            (format!("the user of client {client_id}"), token)
        }
    };
    if let Some(account) = &gcp.impersonate {
        token = impersonate(gcp, asking, account, &token)?;
        who = format!("{account} through {who}");
    }
    let mut scope = format!("{who}; scopes: {}", token.scope.as_deref().unwrap_or(&scopes));
    if let Some(boundary) = &gcp.boundary {
        token = narrow(gcp, asking, boundary, &token)?;
        scope.push_str("; within a boundary");
    }
    Ok(Minted::new(token.value, token.expires, told::scope(&scope)))
}

/// A token of the key's own identity.
fn grant(gcp: &Gcp, asking: &Asking<'_>, url: &str, fields: &[(&str, &str)], scope: Option<&str>) -> Result<Token, MintError> {
    let answer = asking.send(GRANT, &Request::form(url, fields), gcp.ca_file.as_deref())?;
    let asked = Asked { scope, most: MAX_TIME, kind: None };
    TokenAnswer::read(GRANT, &answer, asking)?.check(GRANT, asking.now, asked)
}

/// A token of another account.
fn impersonate(gcp: &Gcp, asking: &Asking<'_>, account: &str, token: &Token) -> Result<Token, MintError> {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@');
    if !account.bytes().all(inner) || account.starts_with('.') {
        return Err(MintError::new(IMPERSONATE, "this is no address of a service account"));
    }
    asking.hide(&token.value);
    let seconds = gcp.seconds.unwrap_or(HOUR);
    let scopes = if gcp.scopes.is_empty() { vec![ALL.to_owned()] } else { gcp.scopes.clone() };
    let base = gcp.iam_endpoint.as_deref().unwrap_or(IAM);
    let url = below(base, &format!("v1/projects/-/serviceAccounts/{account}:generateAccessToken"));
    let request = Request::json(&url, &json!({"scope": scopes, "lifetime": format!("{seconds}s")}))
        .header("authorization", format!("Bearer {}", *token.value.to_text()));
    let answer = asking.send(IMPERSONATE, &request, gcp.ca_file.as_deref())?;
    let Impersonated { access_token, expire_time } = answer.json().map_err(|why| MintError::new(IMPERSONATE, why))?;
    let expires = told::until(IMPERSONATE, asking.now, &expire_time, Duration::from_secs(seconds.into()))?;
    Ok(Token { value: access_token.into_value(IMPERSONATE)?, expires: Some(expires), scope: None })
}

/// The same token, good for less. Where the answer names no end it is the end of the token that was narrowed.
fn narrow(gcp: &Gcp, asking: &Asking<'_>, boundary: &Value, token: &Token) -> Result<Token, MintError> {
    asking.hide(&token.value);
    let options = match boundary.get("accessBoundary") {
        Some(_) => boundary.to_string(),
        None => json!({ "accessBoundary": boundary }).to_string(),
    };
    let url = below(gcp.sts_endpoint.as_deref().unwrap_or(STS), "v1/token");
    let subject = token.value.to_text();
    let fields = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("subject_token_type", ACCESS_TOKEN),
        ("requested_token_type", ACCESS_TOKEN),
        ("subject_token", subject.as_str()),
        ("options", options.as_str()),
    ];
    let answer = asking.send(NARROW, &Request::form(&url, &fields), gcp.ca_file.as_deref())?;
    let asked = Asked { scope: None, most: MAX_TIME, kind: Some(ACCESS_TOKEN) };
    let narrowed = TokenAnswer::read(NARROW, &answer, asking)?.check(NARROW, asking.now, asked)?;
    if narrowed.value == token.value {
        return Err(MintError::new(NARROW, "it gives back the token that was to be narrowed"));
    }
    Ok(Token { expires: narrowed.expires.or(token.expires), ..narrowed })
}
