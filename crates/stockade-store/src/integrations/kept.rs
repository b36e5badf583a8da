//! A file as it was before Stockade was put into it, and how it was left.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Agent, IntegrationError, MAX_BYTES};
use crate::packs::file::{self, hex};
use crate::places::Places;

/// What is kept of one installation.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kept {
    path: PathBuf,
    /// `None`: the file was not there.
    pub(super) before: Option<String>,
    after_sha256: String,
}

impl Kept {
    pub(super) fn new(path: &Path, before: Option<String>, after: &str) -> Self {
        Self { path: path.to_owned(), before, after_sha256: digest(after) }
    }

    /// What is kept, if anything is that can be read.
    pub(super) fn load(places: &Places, agent: Agent) -> Option<Self> {
        let bytes = file::read(&place(places, agent), 3 * MAX_BYTES).ok().flatten()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub(super) fn store(&self, places: &Places, agent: Agent) -> Result<(), IntegrationError> {
        let bytes = serde_json::to_vec(self).map_err(|error| IntegrationError::State(error.to_string()))?;
        file::write(&place(places, agent), &bytes).map_err(|error| IntegrationError::State(error.to_string()))
    }

    pub(super) fn forget(places: &Places, agent: Agent) {
        // Where it stays, it matches nothing any more.
        let _ = std::fs::remove_file(place(places, agent));
    }

    /// Whether a file is still as it was left.
    pub(super) fn is_of(&self, path: &Path, text: Option<&str>) -> bool {
        self.path == path && text.is_some_and(|text| digest(text) == self.after_sha256)
    }
}

/// Where it is kept.
pub(super) fn place(places: &Places, agent: Agent) -> PathBuf {
    places.state.join(format!("installed-{}.json", agent.name()))
}

fn digest(text: &str) -> String {
    hex(&Sha256::digest(text))
}
