//! Writing policy files of the user layer: a starter, rules that were imported, and single rules.
//!
//! A file is put in place whole or not at all, and only if all rules of the layer stand with it. Whoever writes holds a lock on the directory, so
//! that no rule is lost between two writers.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use stockade_policy::capability::Vocabulary;
use stockade_policy::{Checks, Layer, Policies, PolicyFile, Trust};

use super::{DIRECTORY, PolicyError, read};
use crate::packs::Packs;
use crate::places::Places;

/// The file that `policy allow` adds rules to.
const ALLOWED: &str = "allowed.cedar";
/// The file that `init` writes.
const STARTER: &str = "stockade.cedar";

/// What was written, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The file.
    pub path: PathBuf,
    /// The line at which the new text begins.
    pub line: usize,
}

/// Where a starter policy is written.
pub fn preset_at(places: &Places) -> PathBuf {
    places.config.join(DIRECTORY).join(STARTER)
}

/// Writes a starter policy. One that is there already is left alone.
pub fn write_preset(places: &Places, text: &str) -> Result<Written, PolicyError> {
    write_new(places, STARTER, text)
}

/// Writes rules that came from another program (`imported-NAME.cedar`). A file that is there already is left alone.
pub fn write_imported(places: &Places, origin: &str, text: &str) -> Result<Written, PolicyError> {
    write_new(places, &format!("imported-{origin}.cedar"), text)
}

/// Adds rules to the user layer, all of them or none.
pub fn add_rules(places: &Places, rules: &[&str]) -> Result<Written, PolicyError> {
    let directory = Directory::lock(places)?;
    let path = directory.path.join(ALLOWED);
    let before = match read::one(&path) {
        Ok(text) => text,
        Err(PolicyError::Read(_, error)) if error.kind() == std::io::ErrorKind::NotFound => {
            "// Rules that `stockade policy allow` wrote.\n".to_owned()
        }
        Err(error) => return Err(error),
    };
    let line = before.trim_end().lines().count() + 2;
    let rules: Vec<&str> = rules.iter().map(|rule| rule.trim()).collect();
    let text = format!("{}\n\n{}\n", before.trim_end(), rules.join("\n\n"));
    directory.check(&path, &text)?;
    let draft = Directory::draft(&path, &text)?;
    std::fs::rename(&draft, &path).map_err(|error| PolicyError::Write(path.clone(), error))?;
    Ok(Written { path, line })
}

fn write_new(places: &Places, name: &str, text: &str) -> Result<Written, PolicyError> {
    let directory = Directory::lock(places)?;
    let path = directory.path.join(name);
    if path.symlink_metadata().is_ok() {
        return Err(PolicyError::Exists(path));
    }
    directory.check(&path, text)?;
    let draft = Directory::draft(&path, text)?;
    // A link, and no renaming: it fails where somebody who holds no lock was faster.
    let linked = std::fs::hard_link(&draft, &path);
    let _ = std::fs::remove_file(&draft);
    match linked {
        Ok(()) => Ok(Written { path, line: 1 }),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Err(PolicyError::Exists(path)),
        Err(error) => Err(PolicyError::Write(path, error)),
    }
}

/// The person's policy files, while nobody else writes there.
struct Directory {
    path: PathBuf,
    /// The capabilities that rules may name.
    vocabulary: Vocabulary,
    /// Locked until it is closed.
    _lock: File,
}

impl Directory {
    fn lock(places: &Places) -> Result<Self, PolicyError> {
        let path = places.config.join(DIRECTORY);
        let failed = |error: std::io::Error| PolicyError::Write(path.clone(), error);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed)?;
        let lock = File::open(&path).map_err(failed)?;
        rustix::io::retry_on_intr(|| rustix::fs::flock(&lock, FlockOperation::LockExclusive)).map_err(|errno| failed(errno.into()))?;
        let packs = Packs::load(places).map_err(|error| PolicyError::Packs(Box::new(error)))?;
        Ok(Self { path, vocabulary: super::vocabulary(places, &packs)?, _lock: lock })
    }

    /// Whether the whole layer stands with a file as it would be.
    fn check(&self, path: &Path, text: &str) -> Result<(), PolicyError> {
        let name = super::shown(path);
        let file = |name: String, text: String| PolicyFile { layer: Layer::User, trust: Trust::Trusted, name, text };
        let others = read::trusted(&self.path)?.into_iter().filter(|found| found.name != name);
        let mut files: Vec<PolicyFile> = others.map(|found| file(found.name, found.text)).collect();
        files.push(file(name, text.to_owned()));
        Policies::compile_with(&files, Checks::All, &self.vocabulary).map(|_| ()).map_err(PolicyError::Faults)
    }

    /// A file beside, which no one reads as a policy.
    fn draft(path: &Path, text: &str) -> Result<PathBuf, PolicyError> {
        let draft = path.with_extension(std::process::id().to_string());
        let mut options = File::options();
        let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&draft);
        opened.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all())).map_err(|error| {
            let _ = std::fs::remove_file(&draft);
            PolicyError::Write(path.to_owned(), error)
        })?;
        Ok(draft)
    }
}
