//! Paths that were checked before any I/O.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The longest path that is accepted, as the kernel's own limit.
pub const MAX_PATH: usize = 4095;

/// An absolute path without `.`/`..` components, doubled slashes, NUL or newline. It says nothing about what is there.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "std::ffi::OsString", into = "std::ffi::OsString")]
pub struct SafePath(PathBuf);

/// Why a path was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// Nothing at all.
    #[error("the path is empty")]
    Empty,
    /// Not from the root.
    #[error("path `{0}` is not absolute")]
    Relative(String),
    /// Climbs.
    #[error("path `{0}` has a `..` in it")]
    ParentDir(String),
    /// Holds a character that no honest path has.
    #[error("path `{0}` has a control character in it")]
    Control(String),
    /// Longer than the kernel takes.
    #[error("a path of {0} bytes is longer than {MAX_PATH}")]
    TooLong(usize),
    /// A component longer than file systems take.
    #[error("path `{0}…` has a component longer than 255 bytes")]
    LongComponent(String),
}

impl SafePath {
    /// Checks and normalises a path (`/a//b/./c/` becomes `/a/b/c`).
    pub fn new(path: impl AsRef<Path>) -> Result<Self, BadPath> {
        let path = path.as_ref();
        let bytes = path.as_os_str().as_bytes();
        if bytes.is_empty() {
            return Err(BadPath::Empty);
        }
        if bytes.len() > MAX_PATH {
            return Err(BadPath::TooLong(bytes.len()));
        }
        let shown = || crate::escape::escape_bytes(bytes);
        if bytes.iter().any(|b| *b < 0x20 || *b == 0x7f) {
            return Err(BadPath::Control(shown()));
        }
        if !path.is_absolute() {
            return Err(BadPath::Relative(shown()));
        }
        let mut clean = PathBuf::from("/");
        for component in path.components() {
            match component {
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
                Component::ParentDir => return Err(BadPath::ParentDir(shown())),
                Component::Normal(name) if name.len() > 255 => {
                    return Err(BadPath::LongComponent(crate::escape::escape_bytes(name.as_bytes().get(..32).unwrap_or_default())));
                }
                Component::Normal(name) => clean.push(name),
            }
        }
        Ok(Self(clean))
    }

    /// The path itself.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// The path's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_os_str().as_bytes()
    }

    /// Whether this path is `other` or lies beneath it.
    pub fn is_beneath(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }
}

impl fmt::Debug for SafePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl fmt::Display for SafePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::escape::escape_bytes(self.as_bytes()))
    }
}

impl TryFrom<std::ffi::OsString> for SafePath {
    type Error = BadPath;
    fn try_from(path: std::ffi::OsString) -> Result<Self, BadPath> {
        Self::new(path)
    }
}

impl From<SafePath> for std::ffi::OsString {
    fn from(path: SafePath) -> Self {
        path.0.into_os_string()
    }
}

impl AsRef<Path> for SafePath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_paths_are_normalised() {
        assert_eq!(SafePath::new("/a//b/./c/").map(|p| p.0), Ok(PathBuf::from("/a/b/c")));
        assert_eq!(SafePath::new("/").map(|p| p.0), Ok(PathBuf::from("/")));
    }

    #[test]
    fn bad_paths_are_refused() {
        let long = format!("/{}", "a/".repeat(2500));
        let component = format!("/{}", "a".repeat(256));
        for bad in ["", "a", "../a", "/a/../b", "/a/..", "/a\nb", "/a\0b", "/\u{1b}", long.as_str(), component.as_str()] {
            assert!(SafePath::new(bad).is_err(), "{bad:?}");
        }
    }
}
