//! Everything that can go wrong with settings, and what a person can do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::source::{Source, shown};
use crate::private_dir::PrivateDirError;

/// A place in a settings file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The file.
    pub path: PathBuf,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What stands there: short, escaped; may be empty.
    pub excerpt: String,
}

/// Where a wrong key or value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In a file.
    File(Box<Location>),
    /// On the command line.
    CommandLine,
}

/// Why settings cannot be used or changed.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file is there but cannot be read.
    #[error("cannot read settings file `{}`", shown(.path))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A directory, a pipe, a device.
    #[error("settings file `{}` is not a regular file", shown(.0))]
    NotAFile(PathBuf),
    /// Everybody could say in it what holds.
    #[error("settings file `{}` can be written by everybody on this machine", shown(.0))]
    OpenToAll(PathBuf),
    /// A project's files may not lead elsewhere.
    #[error("`{}` is a symbolic link or not a directory; a project's settings are not followed out of the project", shown(.0))]
    Link(PathBuf),
    /// More than any settings need.
    #[error("settings file `{}` is larger than 1 MiB", shown(.0))]
    TooLarge(PathBuf),
    /// Nothing in it, perhaps cut off.
    #[error("settings file `{}` is empty", shown(.0))]
    Empty(PathBuf),
    /// Bytes that are no text.
    #[error("{0}: the file is not UTF-8")]
    NotUtf8(Box<Location>),
    /// A NUL byte.
    #[error("{0}: the file has a NUL byte in it")]
    Nul(Box<Location>),
    /// No JSON.
    #[error("{at}: {problem}")]
    Syntax {
        /// Where.
        at: Box<Location>,
        /// What the parser said.
        problem: String,
    },
    /// Nested too deeply.
    #[error("{0}: nested more than 32 deep")]
    TooDeep(Box<Location>),
    /// The whole is not an object.
    #[error("{at}: settings must be an object, not {found}")]
    NotAnObject {
        /// Where.
        at: Box<Location>,
        /// What it is.
        found: String,
    },
    /// Said twice.
    #[error("{at}: `{key}` is there twice")]
    DuplicateKey {
        /// Where, the second time.
        at: Box<Location>,
        /// Which.
        key: String,
    },
    /// No such setting.
    #[error("{at}unknown setting `{key}`; the nearest known one is `{nearest}`")]
    UnknownKey {
        /// Where.
        at: Place,
        /// As written.
        key: String,
        /// A known one.
        nearest: String,
    },
    /// Another type, or out of range.
    #[error("{at}`{key}` must be {expected}, not {found}")]
    WrongType {
        /// Where.
        at: Place,
        /// Which.
        key: String,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The right type, but not usable.
    #[error("{at}the value of `{key}` cannot be used: {problem}")]
    BadValue {
        /// Where.
        at: Place,
        /// Which.
        key: String,
        /// Why.
        problem: String,
    },
    /// Not a project's business.
    #[error("{at}`{key}` may not be set by a project; only a person's own settings may")]
    NotForProjects {
        /// Where.
        at: Place,
        /// Which.
        key: String,
    },
    /// A project would allow more.
    #[error("{at}a project may only tighten `{key}`: {wanted} is looser than {effective} ({})", describe(.source_of_effective))]
    Loosens {
        /// Where.
        at: Place,
        /// Which.
        key: String,
        /// What the project says.
        wanted: String,
        /// What holds without the project.
        effective: String,
        /// Who said that.
        source_of_effective: Box<Source>,
    },
    /// The directory of the settings cannot be made or trusted.
    #[error(transparent)]
    Directory(#[from] PrivateDirError),
    /// The project's directory cannot be made or opened.
    #[error("cannot use directory `{}`", shown(.path))]
    ProjectDirectory {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The lock cannot be taken.
    #[error("cannot lock `{}`", shown(.path))]
    Lock {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else holds the lock.
    #[error("another process has been changing `{}` for too long", shown(.0))]
    Busy(PathBuf),
    /// The new file cannot be written.
    #[error("cannot write settings file `{}`", shown(.path))]
    Write {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is there already, and nobody said that it may be replaced.
    #[error("`{key}` is in `{}` already", shown(.path))]
    EntryThere {
        /// Which file.
        path: PathBuf,
        /// Which entry.
        key: String,
    },
    /// The edit would not say what was asked; nothing was written.
    #[error("cannot change `{key}` in `{}` without disturbing the rest", shown(.path))]
    Edit {
        /// Which file.
        path: PathBuf,
        /// Which setting.
        key: String,
    },
}

impl SettingsError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::UnknownKey { .. } => "run `stockade config list` to see every setting".to_owned(),
            Self::WrongType { key, .. } if is_size(key) => {
                format!("sizes are in MiB: write 512 for 512 MiB, as in `stockade config set {key} 512`")
            }
            Self::WrongType { key, .. } => format!("run `stockade config get {key}` to see the value in force"),
            Self::NotForProjects { key, at } => match at {
                Place::File(location) => {
                    format!("remove it from {}; to set it for yourself run `stockade config set {key} VALUE`", shown(&location.path))
                }
                Place::CommandLine => format!("set it for yourself instead: `stockade config set {key} VALUE`"),
            },
            Self::Loosens { key, .. } => {
                format!("lower it in the project, or allow more yourself with `stockade config set {key} VALUE`")
            }
            Self::Empty(_) => "write `{}` into it, or remove it".to_owned(),
            Self::EntryThere { .. } => "--replace puts the new one in its place".to_owned(),
            Self::Edit { .. } => "edit the file by hand".to_owned(),
            Self::OpenToAll(path) => format!("chmod o-w {}", shown(path)),
            Self::Busy(_) => "try again when it is done".to_owned(),
            Self::DuplicateKey { .. } => "remove one of the two".to_owned(),
            Self::Syntax { .. } | Self::NotUtf8(_) | Self::Nul(_) | Self::TooDeep(_) | Self::NotAnObject { .. } => {
                "settings are JSON; comments are allowed, trailing commas are not".to_owned()
            }
            Self::Read { .. }
            | Self::NotAFile(_)
            | Self::Link(_)
            | Self::TooLarge(_)
            | Self::BadValue { .. }
            | Self::Directory(_)
            | Self::ProjectDirectory { .. }
            | Self::Lock { .. }
            | Self::Write { .. } => return None,
        };
        Some(hint)
    }
}

/// Keys whose values are MiB.
fn is_size(key: &str) -> bool {
    [".memory", ".disk", ".diskSize"].iter().any(|end| key.ends_with(end))
}

fn describe(source: &Source) -> String {
    match source {
        Source::Default => "the default".to_owned(),
        Source::File { .. } | Source::Flag(_) => source.to_string(),
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", shown(&self.path), self.line, self.column)?;
        if self.excerpt.is_empty() { Ok(()) } else { write!(f, " near `{}`", self.excerpt) }
    }
}

impl fmt::Display for Place {
    /// Ready to stand before a message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(location) => write!(f, "{location}: "),
            Self::CommandLine => Ok(()),
        }
    }
}
