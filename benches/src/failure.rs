//! Why the harness itself cannot go on. A contestant that fails is no failure of the harness: the table says so instead.

use std::path::Path;

/// A step of the harness that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line.
    #[error("{0}\nhint: cargo xtask bench --help")]
    Arguments(String),
    /// A file or directory.
    #[error("cannot {doing} `{path}`: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// A path that the library does not take.
    #[error("`{path}` is not a usable path: {why}")]
    Path {
        /// Which.
        path: String,
        /// Why not.
        why: String,
    },
    /// The rules or packs of the measure cannot be made.
    #[error("deciding: {0}")]
    Decisions(String),
    /// The results cannot be written down.
    #[error("writing the results: {0}")]
    Results(#[from] serde_json::Error),
}

impl Failure {
    /// Turns an I/O error into a failure that says what was being done to which path.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Io { doing, path, source }
    }
}
