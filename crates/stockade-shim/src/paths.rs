//! Paths from the host: checked before anything is done with them.
//!
//! Owns what counts as a path in a request: absolute, without NUL, not longer than the kernel takes. What a path leads
//! to is not checked here; inside the wall everything that exists may be reached.

use std::ffi::CString;

use crate::failure::{Failure, quoted};

/// The kernel's limit, with the terminating NUL.
const LONGEST: usize = 4096;

/// Checks a path.
pub(crate) fn absolute(path: &[u8]) -> Result<CString, Failure> {
    if path.first() != Some(&b'/') {
        return Err(Failure::invalid(format!("{} is not an absolute path", quoted(path))));
    }
    if path.len() >= LONGEST {
        return Err(Failure::invalid(format!("{} is too long", quoted(path))));
    }
    CString::new(path).map_err(|_| Failure::invalid("a path contains a NUL byte"))
}

/// Splits a path into the directory that holds the last name, and that name.
///
/// The root, and names that would lead elsewhere (`.`, `..`), have no last name.
pub(crate) fn split(path: &[u8]) -> Result<(CString, CString), Failure> {
    absolute(path)?;
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let trimmed = path.get(..end).unwrap_or_default();
    let start = trimmed.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let name = trimmed.get(start..).unwrap_or_default();
    if matches!(name, b"" | b"." | b"..") {
        return Err(Failure::invalid(format!("{} does not name a file or directory", quoted(path))));
    }
    let parent = trimmed.get(..start).unwrap_or_default();
    let parent = CString::new(parent).map_err(|_| Failure::invalid("a path contains a NUL byte"))?;
    let name = CString::new(name).map_err(|_| Failure::invalid("a path contains a NUL byte"))?;
    Ok((parent, name))
}

/// `directory/name`, without doubling the slash.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = directory.to_vec();
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expected: Option<(&str, &str)>) {
        let found = split(path.as_bytes()).ok();
        let found = found.as_ref().map(|(parent, name)| (parent.to_str().unwrap(), name.to_str().unwrap()));
        assert_eq!(found, expected, "{path}");
    }

    #[test]
    fn paths_are_split_at_the_last_name() {
        check("/a/b", Some(("/a/", "b")));
        check("/a", Some(("/", "a")));
        check("/a/b//", Some(("/a/", "b")));
        check("/", None);
        check("//", None);
        check("/a/..", None);
        check("/a/.", None);
        check("a/b", None);
        check("", None);
        check("/a\0b", None);
    }

    #[test]
    fn joining_keeps_one_slash() {
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"/a", b"b"), b"/a/b");
    }
}
