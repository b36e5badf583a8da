//! Which projects' rules a person agreed to: by the workspace's path and a digest of the very files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::read::{self, Found};
use super::{PolicyError, shown};
use crate::places::Places;
use crate::private_dir::ensure_private_dir;

/// The file beneath the state directory.
const FILE: &str = "trusted-projects.json";
/// The form of the file.
const VERSION: u32 = 1;
/// Longer than any list of projects.
const MAX_BYTES: usize = 4 << 20;

/// Whether a project's permits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectTrust {
    /// It has no rules.
    Nothing,
    /// Nobody said so.
    Unknown,
    /// Somebody said so, and the files changed since.
    Changed,
    /// A person agreed to these very files.
    Trusted,
}

/// A digest of all policy files of a project, by name and contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProjectDigest(pub String);

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    version: u32,
    projects: BTreeMap<String, ProjectDigest>,
}

/// Whether the files of a project are those that were agreed to.
pub(super) fn of(places: &Places, workspace: &Path, files: &[Found]) -> Result<ProjectTrust, PolicyError> {
    Ok(match kept(places)?.projects.get(&shown(workspace)) {
        None => ProjectTrust::Unknown,
        Some(agreed) if *agreed == digest(files) => ProjectTrust::Trusted,
        Some(_) => ProjectTrust::Changed,
    })
}

/// Agrees to the rules of a project as they are now; `None` where it has none.
pub fn trust_project(places: &Places, workspace: &Path) -> Result<Option<ProjectDigest>, PolicyError> {
    let files = read::project(workspace)?;
    if files.is_empty() {
        return Ok(None);
    }
    let mut all = kept(places)?;
    let digest = digest(&files);
    all.projects.insert(shown(workspace), digest.clone());
    write(places, &all)?;
    Ok(Some(digest))
}

/// Takes agreement back; says whether there was any.
pub fn untrust_project(places: &Places, workspace: &Path) -> Result<bool, PolicyError> {
    let mut all = kept(places)?;
    let was = all.projects.remove(&shown(workspace)).is_some();
    if was {
        write(places, &all)?;
    }
    Ok(was)
}

/// The projects that were agreed to.
pub fn trusted_projects(places: &Places) -> Result<Vec<(String, ProjectDigest)>, PolicyError> {
    Ok(kept(places)?.projects.into_iter().collect())
}

fn path(places: &Places) -> PathBuf {
    places.state.join(FILE)
}

fn kept(places: &Places) -> Result<Kept, PolicyError> {
    let path = path(places);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Kept { version: VERSION, projects: BTreeMap::new() }),
        Err(error) => return Err(PolicyError::Read(path, error)),
    };
    if bytes.len() > MAX_BYTES {
        return Err(PolicyError::TooLarge(path));
    }
    let kept: Kept = serde_json::from_slice(&bytes).map_err(|error| PolicyError::TrustFile(path.clone(), error.to_string()))?;
    if kept.version == VERSION { Ok(kept) } else { Err(PolicyError::TrustFile(path, format!("its version is {}", kept.version))) }
}

fn write(places: &Places, kept: &Kept) -> Result<(), PolicyError> {
    let path = path(places);
    let failed = |error: std::io::Error| PolicyError::Write(path.clone(), error);
    ensure_private_dir(&places.state).map_err(|error| failed(std::io::Error::other(error)))?;
    let text = serde_json::to_vec_pretty(kept).map_err(|error| failed(error.into()))?;
    let draft = path.with_extension(std::process::id().to_string());
    std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, &path)).map_err(failed)
}

/// Lengths go in as well, so that no two sets of files look alike.
fn digest(files: &[Found]) -> ProjectDigest {
    let mut hash = Sha256::new();
    for file in files {
        for part in [&file.name, &file.text] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
    }
    ProjectDigest(super::digits(&hash.finalize()))
}
