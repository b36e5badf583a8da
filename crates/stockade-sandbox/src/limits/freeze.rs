//! Stops and resumes all processes of a group at once.

use std::time::Duration;

use super::apply::Directory;
use super::hierarchy::{Controller, Version};
use super::patience::{Patience, Patient};
use super::{LimitError, files};

/// Whether processes stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frozen {
    /// They do.
    Yes,
    /// They run.
    No,
}

/// The directory that can freeze; version 2 first, where frozen processes can still be killed.
pub(super) fn freezer(directories: &[Directory]) -> Option<&Directory> {
    let v2 = directories.iter().find(|d| d.version == Version::Two && d.exists("cgroup.freeze"));
    v2.or_else(|| directories.iter().find(|d| d.version == Version::One && d.controllers.contains(&Controller::Freezer)))
}

/// Freezes or thaws and waits until it is so. What cannot be frozen in time is thawed again.
pub(super) fn freeze(directory: &Directory, frozen: Frozen, bound: Duration) -> Result<(), LimitError> {
    let mut patience = Patience::new(bound);
    write(directory, frozen)?;
    while !has_become(directory, frozen)? {
        if patience.pause() == Patient::No {
            let wanted = match frozen {
                Frozen::Yes => "frozen",
                Frozen::No => "thawed",
            };
            write(directory, Frozen::No)?;
            return Err(LimitError::FreezeTimedOut { path: directory.path.clone(), wanted, milliseconds: bound.as_millis() });
        }
        // Version 1 may stop half-way (`FREEZING`) when processes fork meanwhile; asking again makes it go on.
        if directory.version == Version::One {
            write(directory, frozen)?;
        }
    }
    Ok(())
}

/// Asks for it, without waiting.
pub(super) fn write(directory: &Directory, frozen: Frozen) -> Result<(), LimitError> {
    match (directory.version, frozen) {
        (Version::Two, Frozen::Yes) => directory.write("cgroup.freeze", "1"),
        (Version::Two, Frozen::No) => directory.write("cgroup.freeze", "0"),
        (Version::One, Frozen::Yes) => directory.write("freezer.state", "FROZEN"),
        (Version::One, Frozen::No) => directory.write("freezer.state", "THAWED"),
    }
}

fn has_become(directory: &Directory, frozen: Frozen) -> Result<bool, LimitError> {
    Ok(match directory.version {
        Version::Two => files::keyed(&directory.read("cgroup.events")?, "frozen") == Some(u64::from(frozen == Frozen::Yes)),
        Version::One => {
            directory.read("freezer.state")?.trim()
                == match frozen {
                    Frozen::Yes => "FROZEN",
                    Frozen::No => "THAWED",
                }
        }
    })
}
