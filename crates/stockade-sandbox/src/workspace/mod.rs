//! The workspace: where it is, what a sandbox changed in it, and how changes come back.
//!
//! Owns finding the workspace ([`locate`]), the list of protected paths ([`protected`]), reading an overlay's upper
//! directory as a list of changes ([`layer`], [`change`]), showing them ([`diff`]), bringing them back ([`apply`]), guarding protected
//! paths of a writable workspace ([`rw`]) and keeping or removing overlays ([`kept`], [`remove`], [`strays`]).
//!
//! Whatever a sandbox wrote is hostile: trees are walked by descriptor, one component at a time, without following links,
//! and every walk is bounded in depth, count and bytes. Nothing here mounts anything, and no program is run.

#[cfg(wall)]
pub mod apply;
#[cfg(wall)]
mod beneath;
#[cfg(wall)]
pub mod change;
#[cfg(wall)]
pub mod diff;
#[cfg(wall)]
pub mod digest;
mod git;
#[cfg(wall)]
pub mod kept;
#[cfg(wall)]
pub mod layer;
pub mod locate;
#[cfg(wall)]
pub mod plan;
#[cfg(wall)]
pub mod protected;
#[cfg(wall)]
pub mod remove;
#[cfg(wall)]
mod rename;
#[cfg(wall)]
pub mod rw;
#[cfg(wall)]
pub mod strays;

#[cfg(test)]
#[cfg(wall)]
mod testing;

/// A path, safe to show.
pub(crate) fn shown(path: &std::path::Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    stockade_core::escape::escape_bytes(path.as_os_str().as_bytes())
}
