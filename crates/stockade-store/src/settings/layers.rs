//! How the layers come together.
//!
//! ```text
//! defaults ◀── user ◀── project (tightens only) ◀── flags ◀── machine (overrides all)
//! ```

use super::document::{Document, Entry};
use super::error::{Place, SettingsError};
use super::key::{Key, ProjectRule};
use super::rules;
use super::source::{Layer, Source};
use super::table::KEYS;
use super::value::Value;
use stockade_core::host;

/// The effective value of one key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cell {
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    pub(crate) source: Source,
    /// A project tightened a default of `null`. What that default stands for (75 % of RAM, 600 s for agents) is known
    /// only to who asks, and still bounds the project's value.
    pub(crate) bounded_by_default: bool,
}

/// Every key at its default.
pub(crate) fn defaults() -> Vec<Cell> {
    let cell = |key: &Key| Cell { name: key.name, value: key.default.clone(), source: Source::Default, bounded_by_default: false };
    KEYS.iter().map(cell).collect()
}

/// Lays a file over what holds so far.
pub(crate) fn lay(cells: &mut [Cell], document: Document) -> Result<(), SettingsError> {
    let layer = document.layer;
    for entry in document.entries {
        let Some(cell) = cells.iter_mut().find(|cell| cell.name == entry.key.name) else { continue };
        let source = entry.source(layer);
        let over_default_null = cell.source == Source::Default && cell.value == Value::Null;
        cell.value = match layer {
            Layer::User | Layer::Machine => entry.value,
            Layer::Project => tighten(entry, cell)?,
        };
        cell.source = source;
        cell.bounded_by_default = layer == Layer::Project && over_default_null;
    }
    Ok(())
}

/// The project's value where it is as tight as, or tighter than, what holds without it.
fn tighten(entry: Entry, cell: &Cell) -> Result<Value, SettingsError> {
    let key = entry.key;
    let allowed = match (key.project, &cell.value, &entry.value) {
        (ProjectRule::Never, _, _) => return Err(SettingsError::NotForProjects { at: Place::File(entry.at), key: key.name.to_owned() }),
        (ProjectRule::Intersect, Value::List(effective), Value::List(wanted)) => {
            return Ok(Value::List(host::intersect(wanted, effective)));
        }
        (ProjectRule::AddRules, Value::Rules(effective), Value::Rules(wanted)) if rules::only_narrow(wanted) => {
            return Ok(Value::Rules(effective.iter().chain(wanted).cloned().collect()));
        }
        (ProjectRule::TurnOff, Value::Bool(effective), Value::Bool(wanted)) => *effective || !*wanted,
        (ProjectRule::Lower, Value::Null, Value::Number(_) | Value::Null) => true,
        (ProjectRule::Lower, Value::Number(effective), Value::Number(wanted)) => wanted <= effective,
        (ProjectRule::TowardReadOnly, Value::Text(effective), Value::Text(wanted)) => freedom(wanted) <= freedom(effective),
        (
            ProjectRule::Intersect | ProjectRule::TurnOff | ProjectRule::Lower | ProjectRule::TowardReadOnly | ProjectRule::AddRules,
            _,
            _,
        ) => false,
    };
    if allowed {
        return Ok(entry.value);
    }
    Err(SettingsError::Loosens {
        at: Place::File(entry.at),
        key: key.name.to_owned(),
        wanted: entry.value.to_string(),
        effective: cell.value.to_string(),
        source_of_effective: Box::new(cell.source.clone()),
    })
}

/// How much a workspace mode lets through.
fn freedom(mode: &str) -> u8 {
    match mode {
        "ro" => 0,
        "overlay" => 1,
        _ => 2,
    }
}
