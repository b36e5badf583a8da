//! The workspace: where it is, what a sandbox changed in it, and how changes come back.
//!
//! Owns finding the workspace ([`locate`]), the list of protected paths ([`protected`]), reading an overlay's upper
//! directory as a list of changes ([`layer`], [`change`]), showing them ([`diff`]), bringing them back ([`apply`]), guarding protected
//! paths of a writable workspace ([`rw`]) and keeping or removing overlays ([`kept`], [`remove`]).
//!
//! Whatever a sandbox wrote is hostile: trees are walked by descriptor, one component at a time, without following links,
//! and every walk is bounded in depth, count and bytes. Nothing here mounts anything, and no program is run.

pub mod apply;
mod beneath;
pub mod change;
pub mod diff;
pub mod digest;
mod git;
pub mod kept;
pub mod layer;
pub mod locate;
pub mod plan;
pub mod protected;
pub mod remove;
mod rename;
pub mod rw;

#[cfg(test)]
mod testing;
