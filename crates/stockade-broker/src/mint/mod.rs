//! Minting: a provider is asked for the smallest, shortest-lived credential that its setting describes. One file for each.
//!
//! An adapter builds requests, reads answers and nothing else: connections, limits, time and what may be repeated of an answer are [`http`]'s
//! and [`Asking`]'s. What a provider says is shown to people bounded, escaped, and without any value that was used to ask.

mod aws;
mod gcp;
mod github;
pub(crate) mod http;
mod infisical;
mod jwt;
mod keychain;
mod kubernetes;
pub(crate) mod oauth;
mod onepassword;
pub(crate) mod pem;
mod program;
#[cfg(test)]
pub(crate) mod stand_in;
mod token;
mod told;
mod vault;
mod xml;

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use stockade_store::settings::Provider;

use crate::broker::SandboxLabel;
use crate::sources::{Lease, Surroundings};
use crate::{SecretName, SecretValue};
use http::{Answer, Request};

/// The most of a provider's own words that is repeated.
const MAX_SAID: usize = 300;

/// A credential that was minted.
pub(crate) struct Minted {
    /// The value. For AWS the JSON of its container credentials endpoint.
    pub(crate) value: SecretValue,
    /// Parts of the value that must not be written down either.
    pub(crate) parts: Vec<SecretValue>,
    /// What a placeholder is to look like, where that is not the value itself.
    pub(crate) face: Option<SecretValue>,
    /// When it ends.
    pub(crate) expires: Option<SystemTime>,
    /// Whom it speaks for and what it is good for, as the provider sees it; for receipts.
    pub(crate) scope: String,
    /// Gives it back.
    pub(crate) revoke: Option<Revoke>,
    /// What went wrong on the way though the value is good; told once. Holds no value.
    pub(crate) note: Option<String>,
}

impl Minted {
    /// A value that is all there is.
    pub(crate) fn new(value: SecretValue, expires: Option<SystemTime>, scope: impl Into<String>) -> Self {
        Self { value, parts: Vec::new(), face: None, expires, scope: scope.into(), revoke: None, note: None }
    }
}

/// Gives a credential back. Called at most once, when its call has ended.
pub(crate) type Revoke = Box<dyn FnOnce() -> Result<(), MintError> + Send>;

/// Why there is no credential: which step, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {why}")]
pub struct MintError {
    /// What was being done.
    pub step: String,
    /// What happened; holds no value.
    pub why: String,
    /// What a person can do about it.
    pub hint: Option<String>,
    /// Whether anybody has looked at what was asked with.
    pub verdict: Verdict,
}

/// What a failure says of that with which a provider was asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    #[default]
    Open,
    /// The provider has looked at it, and refuses it.
    Refused,
}

impl Verdict {
    /// Of an answer that is no credential. A server that has too much to do has looked at nothing.
    pub(crate) fn of_status(status: u16) -> Self {
        match status {
            408 | 425 | 429 => Self::Open,
            400..500 => Self::Refused,
            _ => Self::Open,
        }
    }
}

impl MintError {
    /// A failure of one step.
    pub(crate) fn new(step: &str, why: impl Into<String>) -> Self {
        Self { step: step.to_owned(), why: why.into(), hint: None, verdict: Verdict::Open }
    }

    /// An answer that is no credential, and the provider's own words, which must be clean.
    pub(crate) fn answered(step: &str, status: u16, said: &str) -> Self {
        Self { verdict: Verdict::of_status(status), ..Self::new(step, format!("it answers {status}: {said}")) }
    }

    /// Where what was had by then could not be given back either.
    pub(crate) fn and_not_given_back(self, left: &Self) -> Self {
        Self { why: format!("{}; what was had for it could not be given back: {left}", self.why), ..self }
    }

    /// With what to do about it.
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// Has a request answered.
pub(crate) type Wire<'a> = dyn Fn(&Request<'_>, Option<&Path>) -> Result<Answer, http::HttpError> + 'a;

/// Looks up the secrets that a provider is asked with.
pub(crate) type LookUp<'a> = dyn Fn(&SecretName) -> Result<Arc<Lease>, MintError> + 'a;

/// One asking: for whom, when, with what.
pub(crate) struct Asking<'a> {
    /// The sandbox that it is for.
    pub(crate) sandbox: &'a SandboxLabel,
    /// What the call is.
    pub(crate) purpose: &'a str,
    /// Now.
    pub(crate) now: SystemTime,
    /// The store and where programs are.
    pub(crate) around: &'a Surroundings,
    look_up: &'a LookUp<'a>,
    wire: &'a Wire<'a>,
    used: RefCell<Vec<Arc<Lease>>>,
}

impl<'a> Asking<'a> {
    pub(crate) fn new(
        sandbox: &'a SandboxLabel,
        purpose: &'a str,
        now: SystemTime,
        around: &'a Surroundings,
        look_up: &'a LookUp<'a>,
    ) -> Self {
        Self { sandbox, purpose, now, around, look_up, wire: &http::send, used: RefCell::default() }
    }

    /// With answers from elsewhere.
    pub(crate) fn over(self, wire: &'a Wire<'a>) -> Self {
        Self { wire, ..self }
    }

    /// The value of a secret that the setting names.
    pub(crate) fn secret(&self, name: &SecretName) -> Result<Arc<Lease>, MintError> {
        let lease = (self.look_up)(name)?;
        self.used.borrow_mut().push(Arc::clone(&lease));
        Ok(lease)
    }

    /// Asks over HTTP; any answer of 2xx is one.
    pub(crate) fn send(&self, step: &str, request: &Request<'_>, ca_file: Option<&Path>) -> Result<Answer, MintError> {
        let answer = self.exchange(step, request, ca_file)?;
        if (200..300).contains(&answer.status) {
            return Ok(answer);
        }
        Err(MintError::answered(step, answer.status, &self.clean(&answer.said())))
    }

    /// Asks over HTTP, and takes any answer.
    pub(crate) fn exchange(&self, step: &str, request: &Request<'_>, ca_file: Option<&Path>) -> Result<Answer, MintError> {
        (self.wire)(request, ca_file).map_err(|error| MintError::new(step, self.clean(&error.to_string())))
    }

    /// Words without what was used to ask.
    fn without_values(&self, said: &str) -> String {
        let mut said = said.to_owned();
        for lease in self.used.borrow().iter() {
            for value in std::iter::once(&lease.value).chain(&lease.parts) {
                said = said.replace(&*value.to_text(), "[redacted]");
            }
        }
        said
    }

    /// Words that may be shown: bounded, escaped, without what was used to ask.
    pub(crate) fn clean(&self, said: &str) -> String {
        let said = self.without_values(said);
        let cut: String = said.chars().take(MAX_SAID).collect();
        stockade_core::escape::escape(&cut)
    }
}

/// Asks a provider.
pub(crate) fn mint(provider: &Provider, asking: &Asking<'_>) -> Result<Minted, MintError> {
    // Providers say themselves what a credential is good for or why there is none, and could say what they were asked with.
    let minted = ask(provider, asking).map_err(|error| MintError { why: asking.without_values(&error.why), ..error })?;
    let scope = asking.without_values(&minted.scope);
    Ok(Minted { scope, ..minted })
}

fn ask(provider: &Provider, asking: &Asking<'_>) -> Result<Minted, MintError> {
    match provider {
        Provider::Keychain(keychain) => keychain::mint(keychain, asking),
        Provider::Onepassword(onepassword) => onepassword::mint(onepassword, asking),
        Provider::Vault(vault) => vault::mint(vault, asking),
        Provider::Infisical(infisical) => infisical::mint(infisical, asking),
        Provider::Aws(aws) => aws::mint(aws, asking),
        Provider::Gcp(gcp) => gcp::mint(gcp, asking),
        Provider::Kubernetes(kubernetes) => kubernetes::mint(kubernetes, asking),
        Provider::Github(github) => github::mint(github, asking),
        Provider::Oauth(oauth) => oauth::mint(oauth, asking),
    }
}

/// Whether what a provider gives belongs to one call: it can be given back at its end.
pub(crate) fn gives_back(provider: &Provider) -> bool {
    match provider {
        Provider::Vault(_) | Provider::Github(_) => true,
        Provider::Oauth(oauth) => oauth.revocation_endpoint.is_some(),
        Provider::Keychain(_)
        | Provider::Onepassword(_)
        | Provider::Infisical(_)
        | Provider::Aws(_)
        | Provider::Gcp(_)
        | Provider::Kubernetes(_) => false,
    }
}
