//! Where a value came from.

use std::fmt;
use std::path::{Path, PathBuf};

use stockade_core::escape::escape_bytes;
use stockade_core::limits::Origin;

/// Whose file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// The person's own.
    User,
    /// The repository's.
    Project,
    /// The administrator's.
    Machine,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Built in.
    Default,
    /// A settings file.
    File {
        /// Whose.
        layer: Layer,
        /// Which.
        path: PathBuf,
        /// The line of the value.
        line: usize,
    },
    /// A flag, such as `--memory`.
    Flag(&'static str),
}

/// A value and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it came from.
    pub source: Source,
}

impl Source {
    /// One word: `default`, `user`, `project`, `machine` or `flag`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File { layer, .. } => layer.word(),
            Self::Flag(_) => "flag",
        }
    }

    /// Whether somebody asked for the value.
    pub fn origin(&self) -> Origin {
        match self {
            Self::Default => Origin::Default,
            Self::File { .. } | Self::Flag(_) => Origin::Asked,
        }
    }
}

impl Layer {
    /// One word: `user`, `project` or `machine`.
    pub fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
            Self::Machine => "machine",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { layer, path, line } => write!(f, "{} {}:{line}", layer.word(), shown(path)),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

impl<T> Sourced<T> {
    /// The same source, another form of the value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Sourced<U> {
        Sourced { value: change(self.value), source: self.source }
    }
}

/// A path, safe to show.
pub(crate) fn shown(path: &Path) -> String {
    escape_bytes(path.as_os_str().as_encoded_bytes())
}
