//! What lies in a pack: a few files under names of a fixed form, bounded, all in memory.
//!
//! A pack read from a directory and one read from an archive become the same value here, so every check is made once. Names are ASCII,
//! relative and of known places; two that differ only in case are refused, since some file systems take them for one.

use std::collections::BTreeMap;
use std::fmt;

use stockade_core::escape::{escape, escape_bytes};

/// The manifest.
pub const MANIFEST: &str = "pack.toml";
/// The words for people.
pub const README: &str = "README.md";
/// The signature; the one file that it does not cover.
pub const SIGNATURE: &str = "signature.json";
/// Bytes of one file at most.
pub const MAX_FILE: usize = 1 << 20;
/// Bytes of all files at most.
pub const MAX_TOTAL: usize = 16 << 20;
/// Files at most.
pub const MAX_FILES: usize = 1000;
/// The longest path.
const MAX_PATH: usize = 120;

/// Why something cannot be in a pack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFile {
    /// From the root of a machine.
    #[error("`{0}` is an absolute path")]
    Absolute(String),
    /// Climbs out.
    #[error("`{0}` has a `..` in it")]
    Climbs(String),
    /// Characters that no file of a pack has.
    #[error("`{0}` is not a name for a file of a pack: letters, digits and `.`, `_`, `-`, not beginning with a dot")]
    Name(String),
    /// Where nothing belongs.
    #[error("`{0}` has no place in a pack: there are {MANIFEST}, {README}, LICENSE, {SIGNATURE}, capabilities/*.toml and policy/*.cedar")]
    Place(String),
    /// There twice.
    #[error("`{0}` is there twice")]
    Twice(String),
    /// Alike but for case.
    #[error("`{0}` and `{1}` differ only in case")]
    Twins(String, String),
    /// Too large.
    #[error("`{0}` has more than {MAX_FILE} bytes")]
    Large(String),
    /// Too many.
    #[error("there are more than {MAX_FILES} files")]
    Many,
    /// Too much.
    #[error("the files have more than {MAX_TOTAL} bytes together")]
    Heavy,
    /// Not a plain file.
    #[error("`{0}` is {1}, and a pack holds plain files only")]
    Special(String, &'static str),
}

/// A checked path in a pack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackPath(String);

impl PackPath {
    /// Checks a path as an archive or a directory has it.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadFile> {
        let shown = || escape_bytes(bytes.get(..MAX_PATH).unwrap_or(bytes));
        let Ok(text) = std::str::from_utf8(bytes) else { return Err(BadFile::Name(shown())) };
        if text.starts_with('/') {
            return Err(BadFile::Absolute(shown()));
        }
        let parts: Vec<&str> = text.split('/').collect();
        if parts.contains(&"..") {
            return Err(BadFile::Climbs(shown()));
        }
        if text.len() > MAX_PATH || !parts.iter().all(|part| is_name(part)) {
            return Err(BadFile::Name(shown()));
        }
        match parts.as_slice() {
            [MANIFEST | README | SIGNATURE | "LICENSE"] => {}
            ["capabilities", name] if name.strip_suffix(".toml").is_some() => {}
            ["policy", name] if name.strip_suffix(".cedar").is_some() => {}
            _ => return Err(BadFile::Place(shown())),
        }
        Ok(Self(text.to_owned()))
    }

    /// The path itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the capability that a manifest here must have.
    pub(crate) fn capability(&self) -> Option<&str> {
        self.0.strip_prefix("capabilities/")?.strip_suffix(".toml")
    }

    /// Whether rules lie here.
    pub(crate) fn is_policy(&self) -> bool {
        self.0.starts_with("policy/")
    }
}

fn is_name(part: &str) -> bool {
    !part.is_empty() && !part.starts_with('.') && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

impl fmt::Display for PackPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape(&self.0))
    }
}

/// All files of a pack.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PackFiles {
    files: BTreeMap<PackPath, Vec<u8>>,
    /// Lower case, to the path as it is.
    folded: BTreeMap<String, PackPath>,
    total: usize,
}

impl PackFiles {
    /// Adds a file.
    pub fn add(&mut self, path: PackPath, bytes: Vec<u8>) -> Result<(), BadFile> {
        if bytes.len() > MAX_FILE {
            return Err(BadFile::Large(path.to_string()));
        }
        if self.files.len() >= MAX_FILES {
            return Err(BadFile::Many);
        }
        self.total += bytes.len();
        if self.total > MAX_TOTAL {
            return Err(BadFile::Heavy);
        }
        match self.folded.insert(path.0.to_ascii_lowercase(), path.clone()) {
            Some(other) if other == path => return Err(BadFile::Twice(path.to_string())),
            Some(other) => return Err(BadFile::Twins(other.to_string(), path.to_string())),
            None => {}
        }
        self.files.insert(path, bytes);
        Ok(())
    }

    /// A file's bytes.
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        // Looked up by text: whoever asks for what cannot be there gets nothing.
        self.files.get(&PackPath(path.to_owned())).map(Vec::as_slice)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&PackPath, &[u8])> {
        self.files.iter().map(|(path, bytes)| (path, bytes.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> PackPath {
        PackPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn only_known_places_are_taken() {
        for good in ["pack.toml", "README.md", "LICENSE", "signature.json", "capabilities/git.log.toml", "policy/rules.cedar"] {
            assert!(PackPath::parse(good.as_bytes()).is_ok(), "{good}");
        }
        let check = |bad: &[u8], expected: fn(&BadFile) -> bool| {
            let error = PackPath::parse(bad).unwrap_err();
            assert!(expected(&error), "{bad:?}: {error:?}");
        };
        check(b"/etc/passwd", |error| matches!(error, BadFile::Absolute(_)));
        check(b"//x", |error| matches!(error, BadFile::Absolute(_)));
        check(b"../x", |error| matches!(error, BadFile::Climbs(_)));
        check(b"capabilities/../../x.toml", |error| matches!(error, BadFile::Climbs(_)));
        for bad in
            [&b"capabilities//x.toml"[..], b"./pack.toml", b"policy/.x.cedar", b"policy/a b.cedar", b"policy/\xff.cedar", b"", b"a\\b"]
        {
            check(bad, |error| matches!(error, BadFile::Name(_)));
        }
        for bad in [&b"x"[..], b"capabilities/x.sh", b"capabilities/a/b.toml", b"policy/x", b"bin/x", b"PACK.toml"] {
            check(bad, |error| matches!(error, BadFile::Place(_)));
        }
    }

    #[test]
    fn twins_and_too_much_are_refused() {
        let mut files = PackFiles::default();
        files.add(path("capabilities/a.b.toml"), Vec::new()).unwrap();
        assert!(matches!(files.clone().add(path("capabilities/a.b.toml"), Vec::new()), Err(BadFile::Twice(_))));
        assert!(matches!(files.clone().add(path("capabilities/A.b.toml"), Vec::new()), Err(BadFile::Twins(..))));
        assert!(matches!(files.clone().add(path("policy/x.cedar"), vec![0; MAX_FILE + 1]), Err(BadFile::Large(_))));
        for n in 0..16 {
            files.add(path(&format!("policy/{n}.cedar")), vec![0; MAX_FILE]).unwrap();
        }
        assert_eq!(files.clone().add(path("policy/x.cedar"), vec![0]), Err(BadFile::Heavy));
        let mut many = PackFiles::default();
        for n in 0..MAX_FILES {
            many.add(path(&format!("policy/{n}.cedar")), Vec::new()).unwrap();
        }
        assert_eq!(many.add(path("policy/x.cedar"), Vec::new()), Err(BadFile::Many));
    }
}
