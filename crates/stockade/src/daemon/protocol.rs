//! What a client and the daemon say to each other, in letters. Both are this program; another version is answered with "do it yourself".

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::proof::Tried;

/// Which version speaks.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a client asks for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ask {
    /// See [`VERSION`].
    pub(super) version: String,
    /// What.
    pub(super) what: What,
}

/// What a client asks for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(super) enum What {
    /// A command line of `run`; its three standard streams come along.
    Run {
        /// The whole line.
        words: Vec<OsString>,
        /// Where it was typed.
        directory: PathBuf,
        /// The variables that a run looks at, as far as they are set.
        variables: Vec<(OsString, OsString)>,
    },
    /// That the daemon tries what it may not.
    Prove,
}

/// A signal that the client got, for the program.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Signalled {
    /// Which.
    pub(super) signal: i32,
}

/// What the daemon answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(super) enum Answer {
    /// It was done, or refused, and everything was said.
    Done {
        /// The exit code.
        code: u8,
    },
    /// Nothing was done, said or written.
    Yourself {
        /// Why, for those who want to know.
        why: String,
    },
    /// What came of trying.
    Proved {
        /// Each thing.
        tried: Vec<Tried>,
    },
}
