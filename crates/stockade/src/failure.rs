//! How a command of Stockade fails: one value, one way to print it, one mapping to exit codes.
//!
//! A program's own exit code is no failure; commands return it as an `ExitCode`.

use std::process::ExitCode;

use serde_json::json;

use crate::printer::Printer;

/// The step that fails where a provider has looked at what it was asked with, and refuses it.
pub(crate) const PROVIDER_REFUSES: &str = "provider";

/// Why a command did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What kind, and so which exit code.
    pub(crate) kind: FailureKind,
    /// The step that failed, in a word or two: `arguments`, `settings`, `mount workspace`.
    pub(crate) step: String,
    /// What happened: lower case, no full stop.
    pub(crate) message: String,
    /// What a person can do about it.
    pub(crate) hint: Option<String>,
}

/// The kinds of failure that have an exit code of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// Stockade itself failed, or the request was malformed.
    Broken,
    /// The program is missing inside, cannot be executed, or is not on the exec list.
    NoProgram,
    /// There is no room for it until something else ends.
    Full,
    /// Whoever would do it ends, and had not begun.
    Ending,
}

impl FailureKind {
    /// The exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Broken | Self::Full | Self::Ending => 125,
            Self::NoProgram => 127,
        }
    }
}

impl Failure {
    /// Stockade itself failed, or the request was malformed (125).
    pub(crate) fn new(step: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of(FailureKind::Broken, step, message)
    }

    /// The program cannot be run inside (127).
    pub(crate) fn no_program(step: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of(FailureKind::NoProgram, step, message)
    }

    /// There is no room for it now (125).
    pub(crate) fn full(step: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of(FailureKind::Full, step, message)
    }

    /// The server that was to do it ends (125).
    pub(crate) fn ending() -> Self {
        Self::of(FailureKind::Ending, "server", "the server is ending, and this call had not begun")
            .with_hint("repeat it when there is a server again")
    }

    /// An error with its chain of causes, as a failure of `step` (125).
    pub(crate) fn from_error(step: impl Into<String>, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            message.push_str(": ");
            message.push_str(&inner.to_string());
            cause = inner.source();
        }
        Self::new(step, message)
    }

    /// The same failure with advice.
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// `{"error": {"step", "message", "hint"}}`
    pub(crate) fn to_json(&self) -> serde_json::Value {
        json!({"error": {"step": self.step, "message": self.message, "hint": self.hint}})
    }

    /// Prints the failure (stderr, or stdout as JSON) and gives the exit code.
    pub(crate) fn report(&self, printer: &Printer) -> ExitCode {
        printer.failure(self);
        ExitCode::from(self.kind.code())
    }

    fn of(kind: FailureKind, step: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, step: step.into(), message: message.into(), hint: None }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new("stockade", format!("{error:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_contract() {
        let kinds = [FailureKind::Broken, FailureKind::NoProgram, FailureKind::Full];
        assert_eq!(kinds.map(FailureKind::code), [125, 127, 125]);
    }

    #[test]
    fn json_has_the_three_fields() {
        let bare = Failure::new("settings", "no such key").to_json();
        assert_eq!(bare, json!({"error": {"step": "settings", "message": "no such key", "hint": null}}));
        let hinted = Failure::new("settings", "no such key").with_hint("see `stockade config list`").to_json();
        assert_eq!(hinted, json!({"error": {"step": "settings", "message": "no such key", "hint": "see `stockade config list`"}}));
    }

    #[test]
    fn causes_are_told() {
        let error = anyhow::anyhow!("permission denied").context("cannot read `x`");
        assert_eq!(Failure::from_error("read", error.as_ref()).message, "cannot read `x`: permission denied");
        assert_eq!(Failure::from(error).message, "cannot read `x`: permission denied");
    }
}
