//! The one error of this tool: a sentence for the developer who runs it.

use std::fmt;

/// Why a command of this tool failed.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    /// A failure with this message.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// Turns an I/O error into a failure that says what was being done to which path.
    pub(crate) fn io(doing: &str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let text = format!("cannot {doing} `{}`", path.display());
        move |error| Self(format!("{text}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
