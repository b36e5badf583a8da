//! Why the suite itself could not do its work; a case that deviates is not an error but an observation.

use std::path::PathBuf;

/// Why the suite could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// A file of cases does not parse.
    #[error("`{file}`: {why}")]
    Cases {
        /// The file.
        file: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A file or directory of the lab.
    #[error("{step} `{path}`: {source}")]
    File {
        /// What was done.
        step: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A program of the suite did not start or did not answer.
    #[error("{step}: {why}")]
    Program {
        /// What was done.
        step: &'static str,
        /// Why it failed.
        why: String,
    },
    /// A sandbox did not start.
    #[error("starting a sandbox: {0}")]
    Sandbox(String),
    /// The suite needs to become another user.
    #[error("`{0}` needs root")]
    NeedsRoot(&'static str),
}

impl SuiteError {
    /// For `map_err` around file operations.
    pub(crate) fn file(step: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { step, path, source }
    }
}
