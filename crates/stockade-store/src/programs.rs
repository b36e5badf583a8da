//! Which program a capability runs: found on `PATH`, named by its real path and its SHA-256, with the interpreter where it is a script.
//!
//! Digests are kept by device, inode, size and time of change, so that a large program is read once. A program that lies where the sandbox
//! can write is none: whoever can put a file there must not become `git`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use stockade_core::escape::{escape, escape_bytes};

use crate::packs::file::hex;
use crate::places::Places;
use crate::private_dir::ensure_private_dir;

/// The file beneath the state directory.
const FILE: &str = "program-digests.json";
/// Longer than any list of digests.
const MAX_BYTES: usize = 1 << 20;
/// Digests that are kept at most.
const MAX_KEPT: usize = 500;
/// Bytes of a program at most.
const MAX_PROGRAM: u64 = 4 << 30;
/// The longest first line of a script, as the kernel has it.
const MAX_LINE: usize = 256;

/// Why a program cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is nowhere on `PATH`.
    #[error("the program `{0}` is not on this machine")]
    Missing(String),
    /// It lies where the sandbox can write.
    #[error("the program `{0}` is `{1}`, which lies in the workspace")]
    Writable(String, String),
    /// It cannot be read.
    #[error("cannot read `{0}`")]
    Read(String, #[source] io::Error),
}

/// A program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Where it was found, as `PATH` has it.
    pub found: PathBuf,
    /// Its real path.
    pub path: PathBuf,
    /// Its SHA-256.
    pub sha256: String,
    /// What runs it, where it is a script.
    pub interpreter: Option<(PathBuf, String)>,
}

/// Finds a program. `writable` are directories that the sandbox can write to.
pub fn resolve(places: &Places, name: &str, directories: &[PathBuf], writable: &[PathBuf]) -> Result<Program, ProgramError> {
    let candidates = directories.iter().filter(|directory| directory.is_absolute()).map(|directory| directory.join(name));
    let found = candidates.into_iter().find(|path| is_program(path)).ok_or_else(|| ProgramError::Missing(escape(name)))?;
    let path = std::fs::canonicalize(&found).map_err(|error| ProgramError::Read(shown(&found), error))?;
    if let Some(inside) = [&found, &path].into_iter().find(|path| writable.iter().any(|directory| path.starts_with(directory))) {
        return Err(ProgramError::Writable(escape(name), shown(inside)));
    }
    let mut digests = Digests::load(places);
    let sha256 = digests.of(&path)?;
    let interpreter = match interpreter(&path, directories)? {
        None => None,
        Some(path) => {
            let sha256 = digests.of(&path)?;
            Some((path, sha256))
        }
    };
    digests.store(places);
    Ok(Program { found, path, sha256, interpreter })
}

/// What the first line of a script names; `env` names the next word.
fn interpreter(path: &Path, directories: &[PathBuf]) -> Result<Option<PathBuf>, ProgramError> {
    let failed = |error: io::Error| ProgramError::Read(shown(path), error);
    let mut head = Vec::with_capacity(MAX_LINE);
    File::open(path).and_then(|file| file.take(MAX_LINE as u64).read_to_end(&mut head)).map_err(failed)?;
    let Some(line) = head.strip_prefix(b"#!") else { return Ok(None) };
    let line = String::from_utf8_lossy(line.split(|byte| *byte == b'\n').next().unwrap_or_default()).into_owned();
    let mut words = line.split_whitespace();
    let Some(first) = words.next() else { return Ok(None) };
    let real = |path: &Path| std::fs::canonicalize(path).map_err(|error| ProgramError::Read(shown(path), error));
    let first = real(Path::new(first))?;
    if first.file_name().is_some_and(|name| name == "env")
        && let Some(name) = words.find(|word| !word.starts_with('-') && !word.contains('='))
    {
        let found = directories.iter().map(|directory| directory.join(name)).find(|path| is_program(path));
        return real(&found.ok_or_else(|| ProgramError::Missing(escape(name)))?).map(Some);
    }
    Ok(Some(first))
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Digests of programs that did not change.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Digests {
    /// By path: device, inode, size, seconds and nanoseconds of the last change, SHA-256.
    kept: BTreeMap<PathBuf, (u64, u64, u64, i64, i64, String)>,
    #[serde(skip)]
    is_changed: bool,
}

impl Digests {
    fn load(places: &Places) -> Self {
        let bytes = std::fs::read(places.state.join(FILE)).ok().filter(|bytes| bytes.len() <= MAX_BYTES);
        bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    fn of(&mut self, path: &Path) -> Result<String, ProgramError> {
        let failed = |error: io::Error| ProgramError::Read(shown(path), error);
        let file = File::open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        let stamp = (found.dev(), found.ino(), found.size(), found.ctime(), found.ctime_nsec());
        if let Some((device, inode, size, seconds, nanoseconds, sha256)) = self.kept.get(path)
            && stamp == (*device, *inode, *size, *seconds, *nanoseconds)
        {
            return Ok(sha256.clone());
        }
        let mut hash = Sha256::new();
        let mut file = file.take(MAX_PROGRAM);
        let mut buffer = vec![0; 256 << 10];
        loop {
            let count = file.read(&mut buffer).map_err(failed)?;
            if count == 0 {
                break;
            }
            hash.update(buffer.get(..count).unwrap_or_default());
        }
        let sha256 = hex(&hash.finalize());
        if self.kept.len() >= MAX_KEPT {
            self.kept.clear();
        }
        let (device, inode, size, seconds, nanoseconds) = stamp;
        self.kept.insert(path.to_owned(), (device, inode, size, seconds, nanoseconds, sha256.clone()));
        self.is_changed = true;
        Ok(sha256)
    }

    /// Where they cannot be written down they are worked out again, which does no harm.
    fn store(&self, places: &Places) {
        if !self.is_changed || ensure_private_dir(&places.state).is_err() {
            return;
        }
        let path = places.state.join(FILE);
        let draft = path.with_extension(std::process::id().to_string());
        if let Ok(bytes) = serde_json::to_vec(self) {
            let written = std::fs::write(&draft, bytes).and_then(|()| std::fs::rename(&draft, &path));
            if written.is_err() {
                let _ = std::fs::remove_file(&draft);
            }
        }
    }
}

fn shown(path: &Path) -> String {
    escape_bytes(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_its_path_its_digest_and_its_interpreter() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let places = Places { home: at("home"), state: at("state"), config: at("config"), runtime: at("run"), machine: at("etc") };
        let (bin, work) = (at("bin"), at("work"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&work).unwrap();
        let tool = bin.join("tool");
        let write = |path: &Path, text: &str| {
            std::fs::write(path, text).unwrap();
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        };
        write(&tool, "#!/usr/bin/env sh\ntrue\n");
        let path = [bin.clone(), "/usr/bin".into(), "/bin".into()];
        let find = |name: &str| resolve(&places, name, &path, std::slice::from_ref(&work));
        let found = find("tool").unwrap();
        assert_eq!(found.path, std::fs::canonicalize(&tool).unwrap());
        assert!(found.interpreter.as_ref().is_some_and(|(path, sha256)| path.is_absolute() && sha256.len() == 64), "{found:?}");
        assert_eq!(find("tool").unwrap(), found, "from the list of digests");
        write(&tool, "#!/bin/sh\nfalse\n");
        assert_ne!(find("tool").unwrap().sha256, found.sha256, "a changed program has another digest");
        assert!(matches!(find("no-such-program"), Err(ProgramError::Missing(_))));
        write(&work.join("evil"), "#!/bin/sh\n");
        std::os::unix::fs::symlink(work.join("evil"), bin.join("linked")).unwrap();
        assert!(matches!(find("linked"), Err(ProgramError::Writable(..))));
    }
}
