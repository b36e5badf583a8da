//! What providers answer, read as the broker reads it, without any provider: for whoever tries hostile answers. Opens no connection.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use stockade_store::settings::Provider;

use crate::mint::http::{Answer, HttpError, Request};
use crate::mint::{self, Asking, MintError};
use crate::sources::{self, Surroundings};
use crate::{SecretName, SecretValue};

/// What a provider's answers come to.
#[derive(Debug)]
pub struct Told {
    /// The value.
    pub value: SecretValue,
    /// Parts of it that must not be written down either.
    pub parts: Vec<SecretValue>,
    /// When it ends.
    pub expires: Option<SystemTime>,
    /// What receipts say of it.
    pub scope: String,
    /// What went wrong on the way.
    pub note: Option<String>,
}

/// Asks a provider with these secrets, and has it say these things one after the other: a status and a body. After the last it is silent.
pub fn read(
    provider: &Provider,
    secrets: &[(SecretName, SecretValue)],
    answers: Vec<(u16, Vec<u8>)>,
    around: &Surroundings,
    now: SystemTime,
) -> Result<Told, MintError> {
    let answers = RefCell::new(VecDeque::from(answers));
    let wire = |_: &Request<'_>, _: Option<&std::path::Path>| {
        let said = answers.borrow_mut().pop_front();
        said.map(|(status, body)| Answer::new(status, body)).ok_or_else(|| HttpError::Slow("the provider".to_owned()))
    };
    let look_up = |name: &SecretName| {
        let known = secrets.iter().find(|(known, _)| known == name);
        let (_, value) = known.ok_or_else(|| MintError::new("secrets", format!("there is no `{name}`")))?;
        Ok(Arc::new(sources::of_caller(value, now)))
    };
    let sandbox = "0123456789abcdef".parse().map_err(|_| MintError::new("secrets", "there is no such sandbox"))?;
    let asking = Asking::new(&sandbox, "answers", now, around, &look_up).over(&wire);
    let minted = mint::mint(provider, &asking)?;
    Ok(Told { value: minted.value, parts: minted.parts, expires: minted.expires, scope: minted.scope, note: minted.note })
}
