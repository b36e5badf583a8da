//! The login on another device (RFC 8628): a person opens an address, types a code and agrees; then the server gives a refresh token.
//!
//! ```text
//!  device_begin ──▶ DeviceLogin ──▶ device_poll ──▶ Wait(for) … ──▶ Agreed(refresh token)
//!                                        └──▶ denied, over, or anything else: an error
//! ```
//!
//! Nothing here waits: who asks sleeps for as long as it is told. It ends by itself, by the server's own end and by [`MAX_POLLS`].

use std::time::{Duration, SystemTime};

use serde::Deserialize;
use stockade_core::escape::escape;
use stockade_store::settings::providers::{Oauth, OauthGrant};

use super::super::http::{self, Answer, HttpError};
use super::super::told::{self, Text};
use super::MintError;
use super::client::Client;
use crate::SecretValue;

const BEGIN: &str = "beginning the login on another device";
const POLL: &str = "waiting for the login on another device";
const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// How long a login may take, whatever the server says.
const MAX_TIME: Duration = Duration::from_mins(30);
/// The longest and the shortest time between two questions, and the one that the server need not name.
const INTERVALS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
const INTERVAL: u64 = 5;
/// What `slow_down` adds.
const SLOWER: Duration = Duration::from_secs(5);
/// The most questions.
const MAX_POLLS: u32 = 600;
/// The longest code and address that a person is shown.
const MAX_SHOWN: usize = 1024;

/// A login that has begun.
pub struct DeviceLogin {
    /// What the person types.
    pub user_code: String,
    /// Where.
    pub verification_uri: String,
    /// The same with the code in it already.
    pub verification_uri_complete: Option<String>,
    /// How long to wait before asking, and between.
    pub interval: Duration,
    /// For how long the code is good.
    pub expires_in: Duration,
    ends: SystemTime,
    polls: u32,
    device_code: SecretValue,
    token_endpoint: String,
    client: Client,
}

/// What came of asking.
#[derive(Debug, PartialEq, Eq)]
pub enum DevicePoll {
    /// The person has not agreed yet: ask again after this long.
    Wait(Duration),
    /// They have, and this is the refresh token to keep.
    Agreed(SecretValue),
}

#[derive(Deserialize)]
struct Begun {
    device_code: Text,
    user_code: String,
    #[serde(alias = "verification_url")]
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

#[derive(Deserialize)]
struct Polled {
    error: Option<String>,
    refresh_token: Option<Text>,
}

/// Begins a login. `client_secret` is the value of the secret that the setting names, where it names one.
pub fn device_begin(oauth: &Oauth, client_secret: Option<&SecretValue>, now: SystemTime) -> Result<DeviceLogin, MintError> {
    let OauthGrant::Device { device_endpoint, .. } = &oauth.grant else {
        return Err(MintError::new(BEGIN, "the setting does not say `device`"));
    };
    if client_secret.is_some() != oauth.client_secret.is_some() {
        return Err(MintError::new(BEGIN, "the client's secret is missing, or is given where the setting names none"));
    }
    let client = Client::new(oauth, client_secret);
    let mut fields = Vec::new();
    for (name, value) in [("scope", &oauth.scope), ("audience", &oauth.audience), ("resource", &oauth.resource)] {
        fields.extend(value.as_deref().map(|value| (name, value)));
    }
    let failed = |why: &str| MintError::new(BEGIN, told::clean(why, &client.hidden()));
    let answer = http::send(&client.request(device_endpoint, &fields), client.ca_file()).map_err(|error| failed(&error.to_string()))?;
    if !(200..300).contains(&answer.status) {
        return Err(failed(&format!("it answers {}: {}", answer.status, answer.said())));
    }
    let begun: Begun = answer.json().map_err(|why| failed(&why))?;
    let addresses = std::iter::once(&begun.verification_uri).chain(&begun.verification_uri_complete);
    if !is_plain(&begun.user_code) || !addresses.into_iter().all(|address| is_plain(address) && http::is_address(address)) {
        return Err(failed("the code or the address that a person is to be shown is not one"));
    }
    let expires_in = Duration::from_secs(begun.expires_in).min(MAX_TIME);
    Ok(DeviceLogin {
        user_code: begun.user_code,
        verification_uri: begun.verification_uri,
        verification_uri_complete: begun.verification_uri_complete,
        interval: Duration::from_secs(begun.interval.unwrap_or(INTERVAL)).clamp(INTERVALS.0, INTERVALS.1),
        expires_in,
        ends: now + expires_in,
        polls: 0,
        device_code: begun.device_code.into_value(BEGIN)?,
        token_endpoint: oauth.token_endpoint.clone(),
        client,
    })
}

/// Asks once whether the person has agreed.
pub fn device_poll(login: &mut DeviceLogin, now: SystemTime) -> Result<DevicePoll, MintError> {
    if now >= login.ends || login.polls >= MAX_POLLS {
        return Err(over());
    }
    login.polls += 1;
    let mut hidden = login.client.hidden();
    hidden.push(login.device_code.duplicate());
    let failed = |why: &str| MintError::new(POLL, told::clean(why, &hidden));
    let code = login.device_code.to_text();
    let fields = [("grant_type", GRANT), ("device_code", code.as_str())];
    let sent = http::send(&login.client.request(&login.token_endpoint, &fields), login.client.ca_file());
    let answer = match sent {
        // RFC 8628, 3.5: one that does not answer is asked less often.
        Err(HttpError::Slow(_) | HttpError::Connect { .. }) => return Ok(login.wait(login.interval * 2)),
        Err(error) => return Err(failed(&error.to_string())),
        Ok(answer) => answer,
    };
    // Some servers tell errors with a status of success.
    let polled: Polled = answer.json().map_err(|why| failed(&format!("it answers {}: {why}", answer.status)))?;
    match (polled.error.as_deref(), polled.refresh_token) {
        (Some("authorization_pending"), _) => Ok(login.wait(login.interval)),
        (Some("slow_down"), _) => Ok(login.wait(login.interval + SLOWER)),
        (Some("expired_token"), _) => Err(over()),
        (Some("access_denied"), _) => Err(MintError::new(POLL, "the person did not agree")),
        (Some(_), _) => Err(failed(&refused(&answer))),
        (None, _) if !(200..300).contains(&answer.status) => Err(failed(&refused(&answer))),
        (None, None) => Err(MintError::new(POLL, "it gives no refresh token")
            .with_hint("many servers give one only for a scope that says so: write offline_access into the setting's `scope`")),
        (None, Some(token)) => token.into_value(POLL).map(DevicePoll::Agreed),
    }
}

impl DeviceLogin {
    fn wait(&mut self, interval: Duration) -> DevicePoll {
        self.interval = interval.min(INTERVALS.1);
        DevicePoll::Wait(self.interval)
    }
}

fn over() -> MintError {
    MintError::new(POLL, "the code is over before the person agreed").with_hint("begin again")
}

fn refused(answer: &Answer) -> String {
    format!("it answers {}: {}", answer.status, answer.said())
}

/// Whether a person sees what is there.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_SHOWN && escape(text) == text
}
