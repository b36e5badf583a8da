//! The seam to whoever writes down that something is about to run. A sandbox knows that somebody does, not where or how.
//!
//! ```text
//!  sandbox has its id ─▶ wall is being raised ─▶ stands ─▶ program starts
//!                              └─ intent written ──┘ no answer, or no: nothing starts
//! ```
//!
//! Writing takes about as long as the guest needs to build its root, so both happen at the same time.

use std::cell::OnceCell;

use stockade_core::id::SandboxId;
use stockade_core::spec::SandboxSpec;

/// Writes intents.
pub trait Intent {
    /// Writes down that a program is about to start in this sandbox, which is as the specification says. Called once; nothing starts unless it
    /// succeeded.
    fn write(&self, sandbox: &SandboxId, spec: &SandboxSpec) -> Result<(), IntentError>;
}

/// Why an intent could not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct IntentError {
    /// The step that failed.
    pub step: String,
    /// What happened.
    pub message: String,
    /// What a person can do about it.
    pub hint: Option<String>,
}

/// An intent that must be written before anything starts, by whoever comes to it first.
pub(crate) struct Pledge<'a> {
    intent: Option<&'a dyn Intent>,
    sandbox: &'a SandboxId,
    spec: &'a SandboxSpec,
    answer: OnceCell<Result<(), IntentError>>,
}

impl<'a> Pledge<'a> {
    /// Nothing is written yet; without an intent nothing will be.
    pub(crate) fn new(intent: Option<&'a dyn Intent>, sandbox: &'a SandboxId, spec: &'a SandboxSpec) -> Self {
        Self { intent, sandbox, spec, answer: OnceCell::new() }
    }

    /// Writes it, unless that was done or tried; says what came of it.
    pub(crate) fn redeem(&self) -> Result<(), IntentError> {
        self.answer.get_or_init(|| self.intent.map_or(Ok(()), |intent| intent.write(self.sandbox, self.spec))).clone()
    }
}
