//! OAuth 2.0 (RFC 6749): a token for the client itself, by a refresh token, or in exchange for another (RFC 8693). The login on another device
//! by which a refresh token is had in the first place is [`device`]'s.
//!
//! A server that rotates refresh tokens takes the old one as a theft from then on. So the new one is written to the secret store before
//! anything else is looked at, one asks at a time, whichever process it is of, and what the store has goes before a value that somebody still had
//! at hand.

mod client;
pub(crate) mod device;
#[cfg(test)]
mod tests;

use std::time::Duration;

use stockade_store::settings::providers::{Oauth, OauthGrant};

use super::token::{ACCESS_TOKEN, Asked, Token, TokenAnswer};
use super::told::{self, Text};
use super::{Asking, MintError, Minted, Revoke, http};
use crate::{SecretName, SecretValue};
use client::Client;

const STEP: &str = "asking the token endpoint";
const ROTATE: &str = "keeping the new refresh token";
/// No token may be good for longer.
const MAX_TIME: Duration = Duration::from_hours(24 * 366);
/// The grant of RFC 8693.
const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// Asks for a token.
pub(super) fn mint(oauth: &Oauth, asking: &Asking<'_>) -> Result<Minted, MintError> {
    let secret = oauth.client_secret.as_ref().map(|name| asking.secret(name)).transpose()?;
    let client = Client::new(oauth, secret.as_ref().map(|lease| &lease.value));
    for value in client.hidden() {
        asking.hide(&value);
    }
    let token = match &oauth.grant {
        OauthGrant::ClientCredentials {} => ask(oauth, &client, asking, &[("grant_type", "client_credentials")], None)?.1,
        OauthGrant::RefreshToken { refresh_token } | OauthGrant::Device { refresh_token, .. } => {
            refresh(oauth, &client, asking, refresh_token)?
        }
        OauthGrant::Exchange { subject_token, subject_token_type, requested_token_type } => {
            let subject = asking.secret(subject_token)?.value.to_text();
            let mut fields = vec![
                ("grant_type", EXCHANGE),
                ("subject_token", subject.as_str()),
                ("subject_token_type", subject_token_type.as_deref().unwrap_or(ACCESS_TOKEN)),
            ];
            fields.extend(requested_token_type.as_deref().map(|kind| ("requested_token_type", kind)));
            // Where no kind was asked for, what comes is sent as Bearer, and so must be one.
            ask(oauth, &client, asking, &fields, requested_token_type.as_deref())?.1
        }
    };
    let token = token?;
    let scope = describe(oauth, &token);
    let revoke = oauth.revocation_endpoint.as_ref().map(|url| revoke(url.clone(), client, &token.value));
    Ok(Minted { revoke, ..Minted::new(token.value, token.expires, scope) })
}

/// What came: a refresh token that takes the place of the one that was used, and the token if it is as it should be.
type Told = (Option<Text>, Result<Token, MintError>);

fn ask(oauth: &Oauth, client: &Client, asking: &Asking<'_>, fields: &[(&str, &str)], kind: Option<&str>) -> Result<Told, MintError> {
    let mut fields = fields.to_vec();
    for (name, value) in [("scope", &oauth.scope), ("audience", &oauth.audience), ("resource", &oauth.resource)] {
        fields.extend(value.as_deref().map(|value| (name, value)));
    }
    let answer = asking.send(STEP, &client.request(&oauth.token_endpoint, &fields), oauth.ca_file.as_deref())?;
    let mut answer = TokenAnswer::read(STEP, &answer, asking)?;
    let rotated = answer.refresh_token.take();
    Ok((rotated, answer.check(STEP, asking.now, Asked { scope: oauth.scope.as_deref(), most: MAX_TIME, kind })))
}

fn refresh(oauth: &Oauth, client: &Client, asking: &Asking<'_>, name: &SecretName) -> Result<Result<Token, MintError>, MintError> {
    let at_hand = asking.secret(name)?;
    let _turn = asking.around.store.turn(name).map_err(|error| not_kept("waiting for the refresh token", name, &error))?;
    let kept = asking.around.store.get(name).map_err(|error| not_kept("reading the refresh token", name, &error))?;
    let used = kept.unwrap_or_else(|| at_hand.value.duplicate());
    asking.hide(&used);
    let text = used.to_text();
    let fields = [("grant_type", "refresh_token"), ("refresh_token", text.as_str())];
    let (rotated, token) = ask(oauth, client, asking, &fields, None)?;
    if let Some(rotated) = rotated {
        let rotated = rotated.into_value(ROTATE)?;
        if rotated != used {
            asking.around.store.set(name, &rotated, asking.now).map_err(|error| not_kept(ROTATE, name, &error))?;
        }
    }
    Ok(token)
}

fn not_kept(step: &str, name: &SecretName, error: &crate::store::StoreError) -> MintError {
    let failed = MintError::new(step, format!("the secret store failed for `{name}`: {}", crate::server::with_causes(error)));
    match error.hint() {
        Some(hint) => failed.with_hint(hint),
        None => failed,
    }
}

fn describe(oauth: &Oauth, token: &Token) -> String {
    let scope = token.scope.as_ref().or(oauth.scope.as_ref());
    let more = [("scope", scope), ("audience", oauth.audience.as_ref()), ("resource", oauth.resource.as_ref())];
    let more = more.iter().filter_map(|(name, value)| Some(format!("{name}: {}", (*value)?)));
    let text = std::iter::once(format!("client {}", oauth.client_id)).chain(more).collect::<Vec<_>>().join("; ");
    told::scope(&text)
}

/// RFC 7009.
fn revoke(url: String, client: Client, token: &SecretValue) -> Revoke {
    let token = token.duplicate();
    Box::new(move || {
        let text = token.to_text();
        let request = client.request(&url, &[("token", text.as_str()), ("token_type_hint", "access_token")]);
        let mut hidden = client.hidden();
        hidden.push(token);
        told::give_back(&http::send, "giving the token back", &request, client.ca_file(), &hidden, None)
    })
}
