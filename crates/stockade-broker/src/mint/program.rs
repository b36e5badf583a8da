//! Values that a program of the person's own prints. What it says on its other output is not read, so nothing of it is repeated.

use stockade_core::escape::escape;

use super::{Asking, MintError};
use crate::SecretValue;
use crate::sources::command::{self, CommandError};

/// What a person can do about a failure.
pub(crate) struct Hints {
    /// There is no such program.
    pub(crate) missing: String,
    /// It failed, or printed something else.
    pub(crate) failed: String,
}

/// Runs it and takes the one line that it prints.
pub(crate) fn value_of(step: &str, argv: &[String], asking: &Asking<'_>, hints: Hints) -> Result<SecretValue, MintError> {
    let mut printed = command::run(argv, asking.around).map_err(|error| {
        let hint = match error {
            CommandError::NotFound(_) => hints.missing,
            CommandError::Start { .. }
            | CommandError::Read { .. }
            | CommandError::Slow(_)
            | CommandError::Unwanted(_)
            | CommandError::Loud(_)
            | CommandError::Failed { .. } => hints.failed.clone(),
        };
        MintError::new(step, error.to_string()).with_hint(hint)
    })?;
    let value = SecretValue::from_line(std::mem::take(&mut *printed));
    value.map_err(|bad| MintError::new(step, bad.to_string()).with_hint(hints.failed))
}

/// A word that is no option and could not be taken for one.
pub(crate) fn operand(step: &str, what: &str, word: &str) -> Result<String, MintError> {
    if word.is_empty() || word.starts_with('-') || word.chars().any(char::is_control) {
        return Err(MintError::new(step, format!("`{what}` is `{}`, which a program could take for an option", escape(word))));
    }
    Ok(word.to_owned())
}
