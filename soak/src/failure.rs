//! Why the soak itself could not go on. What it found out about Stockade is a [`Finding`](crate::report::Finding), not a failure.

use std::path::{Path, PathBuf};

/// A step of the soak that failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line.
    #[error("{0}")]
    Usage(String),
    /// Only root can make the cage and be an ordinary user too.
    #[error("the soak runs as root, so that it can be an ordinary user as well\nhint: sudo")]
    NotRoot,
    /// Something was done to a path.
    #[error("{doing} `{path}`: {error}", path = path.display())]
    Path {
        /// What.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The kernel's answer.
        error: std::io::Error,
    },
    /// A program of the machine could not be started.
    #[error("starting `{program}`: {error}")]
    Start {
        /// Which.
        program: String,
        /// The kernel's answer.
        error: std::io::Error,
    },
    /// Without any fault at all the ground does not work, so that nothing could be concluded.
    #[error("without a fault, {what}: {told}")]
    Unsound {
        /// What was tried.
        what: String,
        /// What came of it.
        told: String,
    },
    /// The soak's own control groups are still in use after its end.
    #[error("the control group `{0}` cannot be removed")]
    GroupLeft(PathBuf),
}

impl Failure {
    /// Something done to a path failed.
    pub fn at(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Path { doing, path, error }
    }
}
