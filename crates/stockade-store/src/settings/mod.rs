//! Settings: JSON files with comments, in layers, every value with its source.
//!
//! ```text
//! defaults ◀── user ◀── project (tightens only) ◀── flags ◀── machine (overrides all)
//! ```
//!
//! `Settings::load` reads the files once; nothing is watched or cached. Values are checked against one table of keys
//! (`table`), so an unknown key, a wrong type or a project that would loosen anything is an error before anything runs.
//! `edit` changes the person's or the project's file and keeps its comments.

mod document;
pub mod edit;
mod entry;
pub mod error;
mod file;
pub mod flags;
pub mod key;
mod layers;
mod nearest;
pub mod prices;
pub mod providers;
mod read;
mod rules;
pub mod secrets;
pub mod source;
pub mod ssh;
pub mod table;
#[cfg(test)]
mod tests;
pub mod typed;
pub mod value;

use std::path::Path;

pub(crate) use edit::written;
pub use edit::{Outcome, Target, config_set, config_unset};
pub use entry::{Existing, secret_set};
pub use error::SettingsError;
pub use flags::{Flags, Overruled};
pub(crate) use nearest::closest;
pub use prices::Price;
pub use providers::Provider;
pub use secrets::{Cache, OnMisuse, Place, SecretSetting, SecretSource};
pub use source::{Layer, Source, Sourced};
pub use ssh::{Access, Ssh};
pub use typed::{Accel, Backend, Caller, Durability, Endpoint, Witness};

use crate::places::Places;
use document::Document;
use layers::Cell;

/// The settings in force.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    cells: Vec<Cell>,
    overruled: Vec<Overruled>,
}

/// One setting as `config list` shows it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Row {
    /// The dotted name.
    pub key: &'static str,
    /// The value in force.
    pub value: serde_json::Value,
    /// `default`, `user`, `project`, `machine` or `flag`.
    pub source: &'static str,
    /// The file, where there is one (what is not UTF-8 is escaped).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line in that file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// What a value of `null` stands for; empty otherwise.
    #[serde(skip)]
    pub meaning: &'static str,
}

impl Settings {
    /// The built-in values alone.
    pub fn defaults() -> Self {
        Self { cells: layers::defaults(), overruled: Vec::new() }
    }

    /// Reads the person's file, the project's (`project_root/.stockade/settings.json`) and the machine's.
    pub fn load(places: &Places, project_root: Option<&Path>) -> Result<Self, SettingsError> {
        let mut settings = Self::defaults();
        let user = places.user_settings();
        settings.lay(Layer::User, &user, read::read_trusted(&user)?)?;
        if let Some(root) = project_root {
            settings.lay(Layer::Project, &read::project_settings(root), read::read_project(root)?)?;
        }
        let machine = places.machine_settings();
        settings.lay(Layer::Machine, &machine, read::read_trusted(&machine)?)?;
        Ok(settings)
    }

    /// Lays flags over the files; the machine's values stay.
    #[must_use]
    pub fn with_flags(mut self, flags: &Flags) -> Self {
        self.overruled = flags.lay(&mut self.cells);
        self
    }

    /// Flags that the machine's settings overrule; a person should be told.
    pub fn overruled(&self) -> &[Overruled] {
        &self.overruled
    }

    /// Every setting, in the table's order.
    pub fn list(&self) -> Vec<Row> {
        self.cells.iter().map(row).collect()
    }

    /// One setting.
    pub fn get(&self, key: &str) -> Result<Row, SettingsError> {
        self.cells.iter().find(|cell| cell.name == key).map(row).ok_or_else(|| edit::unknown(key))
    }

    fn lay(&mut self, layer: Layer, path: &Path, bytes: Option<Vec<u8>>) -> Result<(), SettingsError> {
        let Some(bytes) = bytes else { return Ok(()) };
        layers::lay(&mut self.cells, Document::parse(layer, path, &bytes)?)
    }
}

fn row(cell: &Cell) -> Row {
    let (file, line) = match &cell.source {
        Source::File { path, line, .. } => (Some(source::shown(path)), Some(*line)),
        Source::Default | Source::Flag(_) => (None, None),
    };
    let meaning = if cell.value == value::Value::Null { table::find(cell.name).map_or("", |key| key.meaning) } else { "" };
    Row { key: cell.name, value: cell.value.to_json(), source: cell.source.word(), file, line, meaning }
}
