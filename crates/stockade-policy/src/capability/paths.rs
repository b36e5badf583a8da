//! Inputs that name files: resolved beneath the workspace before a rule or a program sees them.
//!
//! Links can only be followed where there are files, so the real work is the caller's ([`Paths`]); examples are resolved by text alone.

/// A file of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedPath {
    /// From the workspace, for rules: `src/main.rs`; the workspace itself is `.`.
    pub relative: String,
    /// The whole path, for the program: it can never begin with a dash.
    pub absolute: String,
}

/// Resolves paths of inputs.
pub trait Paths {
    /// Where a path leads, or why it is refused.
    fn resolve(&self, path: &str) -> Result<ResolvedPath, String>;
}

/// Resolves by text alone.
#[derive(Debug, Clone, Copy)]
pub struct Lexical<'a> {
    /// The workspace, absolute, without a slash at its end.
    pub workspace: &'a str,
}

impl Paths for Lexical<'_> {
    fn resolve(&self, path: &str) -> Result<ResolvedPath, String> {
        if path.is_empty() {
            return Err("the path is empty".to_owned());
        }
        if path.contains('\0') {
            return Err("the path has a NUL in it".to_owned());
        }
        let outside = || "the path leads out of the workspace".to_owned();
        let inner = match path.strip_prefix(self.workspace) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
            Some(_) | None if path.starts_with('/') => return Err(outside()),
            Some(_) | None => path,
        };
        let mut parts: Vec<&str> = Vec::new();
        for part in inner.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop().ok_or_else(outside)?;
                }
                part => parts.push(part),
            }
        }
        let relative = parts.join("/");
        if relative.is_empty() {
            return Ok(ResolvedPath { relative: ".".to_owned(), absolute: self.workspace.to_owned() });
        }
        Ok(ResolvedPath { absolute: format!("{}/{relative}", self.workspace), relative })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_beneath_the_workspace() {
        let lexical = Lexical { workspace: "/w" };
        let resolve = |path: &str| lexical.resolve(path).map(|found| found.relative);
        for (path, expected) in [("a", "a"), ("./a//b/", "a/b"), ("a/../b", "b"), ("/w/x", "x"), ("/w", "."), (".", "."), ("-rf", "-rf")] {
            assert_eq!(resolve(path).as_deref(), Ok(expected), "{path}");
        }
        for bad in ["", "..", "a/../..", "/etc/passwd", "/ww", "/", "a\0b", "/w/.."] {
            assert!(resolve(bad).is_err(), "{bad:?}");
        }
        assert_eq!(lexical.resolve("-rf").map(|found| found.absolute).as_deref(), Ok("/w/-rf"));
    }
}
