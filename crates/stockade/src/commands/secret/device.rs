//! `secret set` of a secret whose settings say that a person agrees on another device: shows the code, waits, and has the refresh token to keep.

use std::time::SystemTime;

use stockade_broker::store::Store;
use stockade_broker::{DevicePoll, MintError, SecretName, SecretValue, device_begin, device_poll};
use stockade_core::escape::escape;
use stockade_store::settings::providers::{Oauth, OauthGrant};
use stockade_store::settings::{Provider, SecretSource};

use super::{failure, settings};
use crate::Context;
use crate::failure::Failure;

const STEP: &str = "device login";

/// What the settings say about a login by device, and the secret that its refresh token is kept as; `None` where they say something else.
pub(super) fn wanted(name: &SecretName, context: &Context) -> Result<Option<(Oauth, SecretName)>, Failure> {
    let found = settings(context)?.into_iter().find(|setting| setting.name == *name);
    Ok(match found.map(|setting| setting.source) {
        Some(SecretSource::Provider(provider)) => match *provider {
            Provider::Oauth(oauth) => match oauth.grant.clone() {
                OauthGrant::Device { refresh_token, .. } => Some((oauth, refresh_token)),
                OauthGrant::ClientCredentials {} | OauthGrant::RefreshToken { .. } | OauthGrant::Exchange { .. } => None,
            },
            _ => None,
        },
        Some(SecretSource::Store | SecretSource::Env { .. } | SecretSource::File { .. } | SecretSource::Command { .. }) | None => None,
    })
}

/// Shows the code and waits until the person has agreed, refused, or let it run out.
pub(super) fn log_in(oauth: &Oauth, store: &Store, context: &Context) -> Result<SecretValue, Failure> {
    let told = |error: MintError| {
        let failure = Failure::new(STEP, error.to_string());
        match error.hint {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    };
    let secret = match &oauth.client_secret {
        None => None,
        Some(name) => {
            let kept = store.get(name).map_err(|error| failure(&error))?;
            let missing = || Failure::new(STEP, format!("the client's secret `{name}` is not in the secret store"));
            Some(kept.ok_or_else(|| missing().with_hint(format!("stockade secret set {name}")))?)
        }
    };
    let mut login = device_begin(oauth, secret.as_ref(), SystemTime::now()).map_err(told)?;
    let printer = &context.printer;
    printer.note(format!("open {} and type {}", escape(&login.verification_uri), escape(&login.user_code)));
    if let Some(whole) = &login.verification_uri_complete {
        printer.note(format!("or open {}", escape(whole)));
    }
    let mut wait = login.interval;
    loop {
        std::thread::sleep(wait);
        match device_poll(&mut login, SystemTime::now()).map_err(told)? {
            DevicePoll::Wait(longer) => wait = longer,
            DevicePoll::Agreed(value) => return Ok(value),
        }
    }
}
