//! Every attempt by name. One file per kind of wall that is tried.

mod descriptors;
mod devices;
mod execution;
mod filesystem;
mod ipc;
mod limits;
mod machine;
mod mounts;
mod namespaces;
mod network;
mod processes;
mod procfs;
mod surface;
mod terminal;

use crate::facts::Facts;
use crate::finding::Finding;

/// One attempt.
pub(crate) type Attempt = fn(&Facts) -> Finding;

/// All of them, by name.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, Attempt)> {
    let tables = [
        namespaces::TABLE,
        mounts::TABLE,
        surface::TABLE,
        machine::TABLE,
        ipc::TABLE,
        network::TABLE,
        processes::TABLE,
        procfs::TABLE,
        devices::TABLE,
        descriptors::TABLE,
        terminal::TABLE,
        execution::TABLE,
        filesystem::TABLE,
        limits::TABLE,
    ];
    tables.into_iter().flatten().copied()
}

/// One of them.
pub(crate) fn find(name: &str) -> Option<Attempt> {
    all().find(|(known, _)| *known == name).map(|(_, attempt)| attempt)
}
