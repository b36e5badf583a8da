//! Values that come by the way: a login's token is taken, used, and given back, and nothing repeats it.

use std::path::Path;
use std::sync::Arc;

use super::http::{self, Request};
use super::{Asking, MintError};
use crate::SecretValue;
use crate::sources::of_caller;

impl Asking<'_> {
    /// A value that a provider gave, checked. From now on it is taken out of what the provider says.
    pub(crate) fn take(&self, step: &str, text: String) -> Result<SecretValue, MintError> {
        let value = SecretValue::new(text.into_bytes()).map_err(|bad| MintError::new(step, bad.to_string()))?;
        self.used.borrow_mut().push(Arc::new(of_caller(&value, self.now)));
        Ok(value)
    }
}

/// Gives something back when the asking is over. What the provider says to that is not repeated: nobody is left who knows what to take out of it.
pub(crate) fn give_back(step: &str, request: &Request<'_>, ca_file: Option<&Path>) -> Result<(), MintError> {
    let answer = http::send(request, ca_file).map_err(|error| MintError::new(step, error.to_string()))?;
    if (200..300).contains(&answer.status) { Ok(()) } else { Err(MintError::new(step, format!("it answers {}", answer.status))) }
}
