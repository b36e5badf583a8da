//! What can go wrong with another program's settings.

use std::path::PathBuf;

/// Why an agent's settings were not changed.
#[derive(Debug, thiserror::Error)]
pub enum IntegrationError {
    /// Cannot be read.
    #[error("cannot read `{0}`")]
    Read(PathBuf, #[source] std::io::Error),
    /// Cannot be written.
    #[error("cannot write `{0}`")]
    Write(PathBuf, #[source] std::io::Error),
    /// Not what this program can change without harm.
    #[error("cannot change `{path}`: {why}")]
    Settings {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A path that is not text cannot stand in settings.
    #[error("the path of this program is not text: `{0}`")]
    Program(PathBuf),
    /// Nor can a variable's.
    #[error("the value of the environment variable {0} is not text")]
    Variable(&'static str),
    /// Nowhere to keep the file as it was.
    #[error("the file as it was cannot be kept: {0}")]
    State(String),
}
