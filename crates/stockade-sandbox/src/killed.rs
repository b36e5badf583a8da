//! The overlay of an owner that was killed. Its record says that it is kept, as it was written before anything changed, and not what changed: that
//! is looked at by whoever comes next.

use std::path::Path;

use stockade_core::spec::MountMode;

use crate::once;
use crate::state::Record;
use crate::workspace::kept;
use crate::workspace::layer::Layer;

/// What such an owner left.
#[derive(Debug)]
pub(crate) enum Left {
    /// Nothing that differs from the workspace.
    Nothing,
    /// These changes, as the record is to say.
    Changes(Box<Record>),
    /// What the record says.
    AsSaid,
}

/// Looks at what a dead owner left. What cannot be looked at may be somebody's work, and stays as it is.
pub(crate) fn look(directory: &Path, record: &Record) -> Left {
    let is_unsaid = record.kept.as_ref().is_some_and(Vec::is_empty) && record.mode == MountMode::Overlay && !record.applying;
    if !is_unsaid || directory.join("quarantine").exists() {
        return Left::AsSaid;
    }
    let upper = directory.join("layer/upper");
    if matches!(upper.try_exists(), Ok(false)) || kept::is_empty_layer(&upper) == Ok(true) {
        return Left::Nothing;
    }
    let Ok(changes) = Layer::new(&upper, record.workspace_path()).changes() else { return Left::AsSaid };
    match once::listed(&changes) {
        none if none.is_empty() => Left::Nothing,
        changes => Left::Changes(Box::new(Record { kept: Some(changes), ..record.clone() })),
    }
}
