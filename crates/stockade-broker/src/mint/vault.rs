//! Vault and `OpenBao`: one field of what a path gives, read with a token or as an application (`AppRole`).
//!
//! A lease is given back when its call ends. So is the login of an application, or at once where nothing hangs on it: Vault ends the leases of a
//! token with the token, so a lease is never said to outlive the login that it was had with.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use stockade_core::escape::escape;
use stockade_store::settings::providers::{Vault, VaultAuth};

use super::http::{self, Request, below, encode};
use super::told::{self, give_back};
use super::{Asking, MintError, Minted, Wire};
use crate::SecretValue;

/// The longest lease that is believed: ten years.
const MAX_LEASE: u64 = 10 * 365 * 86_400;
const LOGIN: &str = "logging in to Vault";
const READ: &str = "reading from Vault";

/// What is read.
#[derive(Deserialize)]
struct Read {
    lease_id: Option<String>,
    lease_duration: Option<u64>,
    data: Option<Value>,
}

#[derive(Deserialize)]
struct LoggedIn {
    auth: Login,
}

#[derive(Deserialize)]
struct Login {
    client_token: String,
    lease_duration: u64,
    token_type: Option<String>,
}

/// Whose the token is that one asks with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    /// Somebody else's: it stays.
    Given,
    /// Had for this asking: it is given back.
    Ours,
    /// Had for this asking, of a kind (`batch`) that cannot be given back.
    Batch,
}

/// Someone who is logged in, and what they have.
struct Session {
    address: String,
    namespace: Option<String>,
    ca_file: Option<PathBuf>,
    token: SecretValue,
    whose: Token,
    /// For how long the login is good.
    lasts: Option<u64>,
    lease: Option<String>,
}

/// Reads the field.
pub(crate) fn mint(vault: &Vault, asking: &Asking<'_>) -> Result<Minted, MintError> {
    let path = encoded("path", &vault.path)?;
    let mut session = Session::begin(vault, asking)?;
    match session.read(vault, &path, asking) {
        // Whatever there is by now is of no use to anyone.
        Err(error) => Err(match session.end(asking.wire) {
            Ok(()) => error,
            Err(left) => error.and_not_given_back(&left),
        }),
        Ok(minted) if session.lease.is_some() => Ok(Minted { revoke: Some(Box::new(move || session.end(&http::send))), ..minted }),
        Ok(minted) if session.whose == Token::Ours && session.end(asking.wire).is_err() => {
            Ok(Minted { revoke: Some(Box::new(move || session.end(&http::send))), ..minted })
        }
        Ok(minted) => Ok(minted),
    }
}

impl Session {
    fn begin(vault: &Vault, asking: &Asking<'_>) -> Result<Self, MintError> {
        let (address, namespace, ca_file) = (vault.address.clone(), vault.namespace.clone(), vault.ca_file.clone());
        let (role_id, secret_id, mount) = match &vault.auth {
            VaultAuth::Token { token } => {
                let token = asking.secret(token)?.value.duplicate();
                return Ok(Self { address, namespace, ca_file, token, whose: Token::Given, lasts: None, lease: None });
            }
            VaultAuth::Approle { role_id, secret_id, mount } => (role_id, secret_id, mount.as_deref().unwrap_or("approle")),
        };
        let url = below(&address, &format!("v1/auth/{}/login", encoded("mount", mount)?));
        let secret = asking.secret(secret_id)?;
        let body = json!({ "role_id": role_id, "secret_id": &*secret.value.to_text() });
        let request = headers(Request::json(&url, &body), namespace.as_deref());
        let answer = asking.send(LOGIN, &request, ca_file.as_deref())?;
        let LoggedIn { auth } = answer.json().map_err(|why| MintError::new(LOGIN, why))?;
        let whose = if auth.token_type.as_deref() == Some("batch") { Token::Batch } else { Token::Ours };
        let token = asking.take(LOGIN, auth.client_token)?;
        let lasts = Some(auth.lease_duration).filter(|seconds| *seconds > 0);
        Ok(Self { address, namespace, ca_file, token, whose, lasts, lease: None })
    }

    fn read(&mut self, vault: &Vault, path: &str, asking: &Asking<'_>) -> Result<Minted, MintError> {
        let url = below(&self.address, &format!("v1/{path}"));
        let answer = asking.send(READ, &self.ask(Request::get(&url)), self.ca_file.as_deref()).map_err(|error| {
            error.with_hint(format!("see whether `{}` may be read; in a KV engine of version 2 a path is MOUNT/data/NAME", vault.path))
        })?;
        let failed = |why: &str| MintError::new(READ, why);
        let read: Read = answer.json().map_err(|why| failed(&why))?;
        self.lease = read.lease_id.filter(|lease| !lease.is_empty());
        let Some(Value::Object(mut fields)) = read.data else { return Err(failed("what it answers has no fields")) };
        let mut scope = format!("{} field {}", vault.path, vault.field);
        // Version 2 wraps the fields. A secret of version 1 may look like that too, but is not kept beneath `data/`.
        let wrapped = vault.path.split('/').skip(1).any(|segment| segment == "data");
        if wrapped && let (Some(Value::Object(_)), Some(Value::Object(about))) = (fields.get("data"), fields.get("metadata")) {
            if let Some(version) = about.get("version").and_then(Value::as_u64) {
                let _ = write!(scope, "; version {version}");
            }
            if let Some(Value::Object(inner)) = fields.remove("data") {
                fields = inner;
            }
        }
        let mut expires = None;
        if self.lease.is_some() {
            let seconds = read.lease_duration.unwrap_or(0).min(self.lasts.unwrap_or(u64::MAX));
            if !(1..=MAX_LEASE).contains(&seconds) {
                return Err(failed("it gives a lease that is over already, or lasts longer than ten years"));
            }
            let _ = write!(scope, "; lease {seconds} s");
            expires = Some(asking.now + Duration::from_secs(seconds));
        }
        let field = escape(&vault.field);
        match fields.remove(&vault.field) {
            Some(Value::String(text)) => Ok(Minted::new(asking.take(READ, text)?, expires, told::scope(&scope))),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                Err(failed(&format!("the field `{field}` is not text")))
            }
            None => Err(failed(&format!("there is no field `{field}` in what it answers"))),
        }
    }

    /// Gives back the lease, then the login.
    fn end(&self, wire: &Wire<'_>) -> Result<(), MintError> {
        let (ca_file, hidden) = (self.ca_file.as_deref(), std::slice::from_ref(&self.token));
        let mut left = Ok(());
        if let Some(lease) = &self.lease {
            let url = below(&self.address, "v1/sys/leases/revoke");
            let request = self.ask(Request::json(&url, &json!({ "lease_id": lease })).method("PUT"));
            left = give_back(wire, "giving a lease back to Vault", &request, ca_file, hidden, None);
        }
        match self.whose {
            Token::Given | Token::Batch => left,
            // The leases of a login end with it, also where a policy does not let it end one by itself.
            Token::Ours => {
                let url = below(&self.address, "v1/auth/token/revoke-self");
                give_back(wire, "logging out of Vault", &self.ask(Request::get(&url).method("PUT")), ca_file, hidden, None)
            }
        }
    }

    fn ask<'a>(&self, request: Request<'a>) -> Request<'a> {
        headers(request, self.namespace.as_deref()).header("x-vault-token", self.token.to_text().as_str())
    }
}

fn headers<'a>(request: Request<'a>, namespace: Option<&str>) -> Request<'a> {
    let request = request.header("x-vault-request", "true");
    match namespace {
        None => request,
        Some(namespace) => request.header("x-vault-namespace", namespace),
    }
}

/// A path that means what it says.
fn encoded(what: &str, path: &str) -> Result<String, MintError> {
    let bad = |segment: &str| {
        matches!(segment, "" | "." | "..") || segment.chars().any(|letter| letter.is_control() || matches!(letter, '?' | '#' | '\\'))
    };
    if path.split('/').any(bad) {
        let why = format!("`{what}` is `{}`: write segments with `/` between them, without `.`, `..`, `?`, `#` or `\\`", escape(path));
        return Err(MintError::new("the setting", why));
    }
    Ok(path.split('/').map(encode).collect::<Vec<_>>().join("/"))
}

#[cfg(test)]
#[path = "vault_tests.rs"]
mod tests;
