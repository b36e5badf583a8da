//! Inputs that name files of the workspace: where they really lead, links followed.
//!
//! A path that leads out of the workspace is refused here so that a rule about `src` means the files beneath it; that nothing outside can be
//! reached at all is held by the wall.

use std::path::{Path, PathBuf};

use stockade_core::escape::escape_bytes;
use stockade_policy::capability::{Lexical, Paths, ResolvedPath};

/// Resolves beneath a workspace.
#[derive(Debug, Clone)]
pub struct Beneath {
    workspace: PathBuf,
}

impl Beneath {
    /// Resolves beneath this real path.
    pub fn new(workspace: impl Into<PathBuf>) -> Self {
        Self { workspace: workspace.into() }
    }
}

impl Paths for Beneath {
    fn resolve(&self, path: &str) -> Result<ResolvedPath, String> {
        let workspace = self.workspace.to_str().ok_or("the workspace's path is not UTF-8")?;
        let plain = Lexical { workspace }.resolve(path)?;
        let real = real(Path::new(&plain.absolute))?;
        let inner = real
            .strip_prefix(&self.workspace)
            .map_err(|_| format!("the path leads out of the workspace, to `{}`", escape_bytes(real.as_os_str().as_encoded_bytes())))?;
        let relative = inner.to_str().ok_or("the path is not UTF-8")?;
        let relative = if relative.is_empty() { "." } else { relative }.to_owned();
        let absolute = real.to_str().ok_or("the path is not UTF-8")?.to_owned();
        Ok(ResolvedPath { relative, absolute })
    }
}

/// Where a path leads. What is not there yet is kept below the nearest directory that is.
fn real(path: &Path) -> Result<PathBuf, String> {
    let mut below = Vec::new();
    let mut here = path;
    loop {
        match std::fs::symlink_metadata(here) {
            Ok(_) => {
                let found = std::fs::canonicalize(here).map_err(|error| format!("the path cannot be followed: {error}"))?;
                return Ok(below.iter().rev().fold(found, |found, name| found.join(name)));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("the path cannot be looked at: {error}")),
        }
        let (Some(parent), Some(name)) = (here.parent(), here.file_name()) else { return Err("the path leads nowhere".to_owned()) };
        below.push(name.to_owned());
        here = parent;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_and_stay_inside() {
        let root = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(root.path()).unwrap();
        let work = base.join("work");
        std::fs::create_dir_all(work.join("src")).unwrap();
        std::fs::write(work.join("src/a"), "").unwrap();
        std::fs::write(base.join("secret"), "").unwrap();
        symlink("src", work.join("inside")).unwrap();
        symlink("../secret", work.join("outside")).unwrap();
        symlink("..", work.join("up")).unwrap();
        symlink("nowhere", work.join("dangling")).unwrap();
        let paths = Beneath::new(&work);
        let relative = |path: &str| paths.resolve(path).map(|found| found.relative);
        for (path, expected) in [("src/a", "src/a"), ("inside/a", "src/a"), (".", "."), ("new/file", "new/file"), ("inside/new", "src/new")]
        {
            assert_eq!(relative(path).as_deref(), Ok(expected), "{path}");
        }
        assert_eq!(paths.resolve("inside/a").unwrap().absolute, work.join("src/a").to_str().unwrap());
        for bad in ["outside", "up", "up/secret", "up/new", "dangling", "../secret", "/etc/passwd", "src/a/b"] {
            assert!(relative(bad).is_err(), "{bad}: {:?}", relative(bad));
        }
    }
}
