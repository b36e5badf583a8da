//! Sandboxes: one interface, many walls.
//!
//! [`sandbox::Sandbox`] is the handle. A [`backends::Backend`] starts the guest program behind its wall and hands back a stream; [`drive`] runs a program over that stream,
//! [`files`] moves files, [`template`] keeps fresh sandboxes ready, [`once`] does all of it for one command, [`hold`] keeps a created sandbox alive for others. [`workspace`] is what
//! happens to the person's files, [`limits`] what the kernel counts, [`state`] what is on disk.
//!
//! Threat assumption: everything inside is hostile from its first instruction, the stream included. Nothing here decides policy or
//! knows settings; callers give a finished `SandboxSpec`.
//!
//! Where there is no wall (any system but Linux, in this version) only what needs none is compiled: finding the workspace and building
//! the environment. `STOCKADE_NO_WALL=1` compiles that way on Linux, which the tests do.

#[cfg(wall)]
pub mod backends;
#[cfg(wall)]
pub mod connection;
#[cfg(wall)]
pub mod drive;
pub mod environment;
#[cfg(wall)]
pub mod files;
#[cfg(wall)]
pub mod forward;
#[cfg(wall)]
pub mod gate;
#[cfg(wall)]
pub mod guard;
#[cfg(wall)]
pub mod guest;
#[cfg(wall)]
pub mod hold;
#[cfg(wall)]
pub mod intent;
#[cfg(wall)]
pub mod keeper;
#[cfg(wall)]
mod killed;
#[cfg(wall)]
pub mod launch;
#[cfg(wall)]
mod leftovers;
#[cfg(wall)]
pub mod letter;
#[cfg(wall)]
pub mod limits;
#[cfg(wall)]
pub mod once;
#[cfg(wall)]
pub mod pool;
#[cfg(wall)]
pub use stockade_sys::{background, confine, signals, variables};
#[cfg(wall)]
pub mod sandbox;
#[cfg(wall)]
pub mod state;
#[cfg(wall)]
pub mod surroundings;
#[cfg(wall)]
pub mod sweep;
#[cfg(wall)]
pub mod template;
#[cfg(wall)]
pub mod trial;
#[cfg(wall)]
pub mod watch;
#[cfg(wall)]
pub mod wayout;
pub mod workspace;

#[cfg(wall)]
/// Parts of the guest's protocol that callers name: programs, streams, descriptions of files.
pub mod wire {
    pub use stockade_wire::message::{Entry, ErrorKind, Exec, FileKind, FileStat, Stdio};
}
