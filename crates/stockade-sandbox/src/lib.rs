//! Sandboxes: one interface, many walls.
//!
//! A [`backends::Backend`] starts the guest program behind its wall and hands back a stream; [`drive`] runs a program over that stream,
//! [`files`] moves files, [`once`] does all of it for one command, [`hold`] keeps a created sandbox alive for others. [`workspace`] is what
//! happens to the person's files, [`limits`] what the kernel counts, [`state`] what is on disk.
//!
//! Threat assumption: everything inside is hostile from its first instruction, the stream included. Nothing here decides policy or
//! knows settings; callers give a finished `SandboxSpec`.

pub mod backends;
pub mod connection;
pub mod drive;
pub mod environment;
pub mod files;
pub mod guest;
pub mod hold;
pub mod keeper;
pub mod limits;
pub mod once;
pub use stockade_sys::signals;
pub mod state;
pub mod trial;
pub mod workspace;

/// Parts of the guest's protocol that callers name: programs, streams, descriptions of files.
pub mod wire {
    pub use stockade_wire::message::{Entry, Exec, FileKind, FileStat, Stdio};
}
