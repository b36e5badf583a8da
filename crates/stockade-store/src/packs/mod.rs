//! Packs on disk: reading them from directories and archives, verifying them at every load, installing them whole or not at all, and whom a
//! person trusts to sign them.
//!
//! ```text
//! state/packs/NAME/installed.json   what was agreed to: the digest of all files, and whose signature
//! state/packs/NAME/files/…          the pack as it was installed
//! state/publishers.json             keys of publishers, trusted or revoked
//! state/packs-known.json            what was verified before, by device, inode, size and time of change
//! ```
//!
//! A pack is hostile until its signature was checked, and is read within bounds even then. What a pack means is `stockade-policy`'s; nothing
//! here runs anything. The person's own state is trusted: whoever can write there could run programs as that person anyway.

mod archive;
mod builtin;
mod directory;
mod error;
pub(crate) mod file;
mod install;
mod known;
mod load;
mod publisher_key;
mod publishers;
mod signature;

pub use archive::{unpack, write_archive};
pub use directory::read_directory;
pub use error::PackError;
pub use install::{Checked, Downgrade, Installed, Unsigned, check, install, remove};
pub use known::Remembered;
pub use load::{CapabilitySummary, LoadedPack, Packs, Problem};
pub use publisher_key::{KeyFileError, PublisherKey, generate_key, open_key, seal_key};
pub use publishers::{KeyState, Publisher, Publishers, PublishersError};
pub use signature::{Standing, read_pack, sign, standing};

#[cfg(test)]
mod tests;
