//! Writing policy files of the user layer: a starter, and single rules.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use stockade_policy::{Checks, Layer, Policies, PolicyFile, Trust};

use super::{DIRECTORY, PolicyError};
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

/// Writes a starter policy. One that is there already is left alone.
pub fn write_preset(places: &Places, text: &str) -> Result<Written, PolicyError> {
    let path = directory(places)?.join(STARTER);
    let opened = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    match opened.and_then(|mut file| file.write_all(text.as_bytes())) {
        Ok(()) => Ok(Written { path, line: 1 }),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Err(PolicyError::Exists(path)),
        Err(error) => Err(PolicyError::Write(path, error)),
    }
}

/// Adds a rule to the user layer. The file as it would be is checked first and put in place whole.
pub fn add_rule(places: &Places, rule: &str) -> Result<Written, PolicyError> {
    let path = directory(places)?.join(ALLOWED);
    let before = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "// Rules that `stockade policy allow` wrote.\n".to_owned(),
        Err(error) => return Err(PolicyError::Read(path, error)),
    };
    let text = format!("{}\n\n{}\n", before.trim_end(), rule.trim());
    let line = before.trim_end().lines().count() + 2;
    let file = PolicyFile { layer: Layer::User, trust: Trust::Trusted, name: super::shown(&path), text: text.clone() };
    Policies::compile(&[file], Checks::All).map_err(PolicyError::Faults)?;
    let draft = path.with_extension(std::process::id().to_string());
    let mut options = std::fs::OpenOptions::new();
    let written =
        options.write(true).create(true).truncate(true).mode(0o600).open(&draft).and_then(|mut file| file.write_all(text.as_bytes()));
    written.and_then(|()| std::fs::rename(&draft, &path)).map_err(|error| PolicyError::Write(path.clone(), error))?;
    Ok(Written { path, line })
}

fn directory(places: &Places) -> Result<PathBuf, PolicyError> {
    let directory = places.config.join(DIRECTORY);
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory);
    made.map_err(|error| PolicyError::Write(directory.clone(), error))?;
    Ok(directory)
}
