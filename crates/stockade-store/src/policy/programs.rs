//! Which file a program's name leads to, for the rules.
//!
//! A name that is found in a directory which the sandbox can write to is no name but a path: whoever can put a program there must not get
//! another one's permission.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use stockade_core::escape::escape_bytes;
use stockade_policy::shell::{Program, Programs, Standing, lexical};

/// Looks programs up as the sandbox will.
#[derive(Debug, Clone)]
pub struct OnPath {
    /// The directories of `PATH`, in order.
    pub directories: Vec<PathBuf>,
    /// Where relative paths begin.
    pub current: PathBuf,
    /// Directories that the sandbox can write to.
    pub writable: Vec<PathBuf>,
}

impl OnPath {
    fn find(&self, name: &str) -> Option<PathBuf> {
        let candidates = self.directories.iter().map(|directory| self.current.join(directory).join(name));
        candidates.into_iter().find(|path| is_program(path))
    }
}

impl Programs for OnPath {
    fn named(&self, name: &str) -> Program {
        let Some(path) = self.find(name) else { return Program { name: name.to_owned(), ..Program::default() } };
        let real = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        let is_writable = |path: &Path| self.writable.iter().any(|directory| path.starts_with(directory));
        let name = if is_writable(&path) || is_writable(&real) { text(&path) } else { name.to_owned() };
        Program { name, path: Some(text(&real)), sha256: None }
    }

    fn at(&self, path: &str, standing: Standing) -> Program {
        if standing == Standing::Unknown && !path.starts_with('/') {
            return Program { name: path.to_owned(), ..Program::default() };
        }
        let written = lexical(&text(&self.current), path);
        match std::fs::canonicalize(self.current.join(path)) {
            Ok(real) => Program { name: text(&real), path: Some(text(&real)), sha256: None },
            Err(_) => Program { name: written, ..Program::default() },
        }
    }

    fn exists(&self, name: &str) -> bool {
        self.find(name).is_some()
    }
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// What is not text is escaped, which no program's name is.
fn text(path: &Path) -> String {
    escape_bytes(path.as_os_str().as_encoded_bytes())
}
