//! The guest program as bytes, built by `build.rs` for the same architecture as the host program.
//!
//! Holds nothing else: walls decide how the bytes get inside.

/// The static guest program; empty on systems that have no jail.
pub const SHIM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stockade-shim"));

/// A name that differs for every build of the guest program.
pub const SHIM_NAME: &str = env!("STOCKADE_SHIM_NAME");
