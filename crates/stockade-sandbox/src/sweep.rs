//! What dead owners left, wherever it is: directories, sockets, control groups.
//!
//! A sandbox is taken down by its owner; this is for owners that were killed. The directory says that there was a sandbox, so a
//! start looks further only when it found one; what people ask for looks everywhere.

use std::path::Path;
use std::time::Duration;

use stockade_core::id::SandboxId;

use crate::keeper::socket_path;
use crate::limits;
use crate::state::{Sandboxes, StateError};

/// How far to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// At directories; at the rest only when one was found whose owner had not seen to it. What every run does, because it costs next to nothing.
    Directories,
    /// At everything: the last sweep may itself have been killed after it had removed the directory.
    Everything,
}

/// Removes what dead owners left, and kept changes older than `keep`. Returns the ids of what was removed.
pub fn sweep(state: &Path, runtime: &Path, keep: Duration, extent: Extent) -> Result<Vec<SandboxId>, StateError> {
    let sandboxes = Sandboxes::open(state)?;
    let swept = sandboxes.sweep(keep)?;
    for id in swept.removed.iter().chain(&swept.finished) {
        // It is there only for created sandboxes whose supervisor was killed.
        let _ = std::fs::remove_file(socket_path(runtime, id));
    }
    if extent == Extent::Everything {
        sweep_sockets(&sandboxes, runtime);
    }
    let dead = [&swept.removed, &swept.finished, &swept.settled];
    if extent == Extent::Everything || dead.iter().any(|ids| !ids.is_empty()) {
        sweep_groups(&sandboxes);
    }
    swept.failed.into_iter().next().map_or(Ok(swept.removed), Err)
}

/// Removes one sandbox whose owner is gone.
pub fn remove(state: &Path, runtime: &Path, id: &SandboxId) -> Result<(), StateError> {
    let sandboxes = Sandboxes::open(state)?;
    sandboxes.remove_dead(id)?;
    let _ = std::fs::remove_file(socket_path(runtime, id));
    sweep_groups(&sandboxes);
    Ok(())
}

/// Sockets of sandboxes that have no directory. A directory is there before its socket is.
fn sweep_sockets(sandboxes: &Sandboxes, runtime: &Path) {
    let entries = std::fs::read_dir(runtime).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_suffix(".sock")).and_then(|id| id.parse::<SandboxId>().ok());
        if id.is_some_and(|id| !sandboxes.directory_of(&id).exists()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn sweep_groups(sandboxes: &Sandboxes) {
    if let Ok(layout) = limits::Layout::discover() {
        limits::sweep(&layout, |id| sandboxes.is_alive(id));
    }
}
