//! Files that people own: where they lie, settings with layers and sources, policy files and packs, and whom they are trusted from.
//!
//! What is trusted: the person's own files and the machine's. A project's file comes with the repository and counts as
//! hostile: it is read without following links, bounded in bytes and depth, shown only escaped, and may only tighten.
//! A file that cannot be read, parsed or understood is an error, never an empty one: nothing here falls back to defaults.
//! Nothing here needs a particular kernel; no environment variable moves the machine's settings.

pub mod inputs;
pub mod integrations;
pub mod mcp;
pub mod packs;
pub mod person;
pub mod places;
pub mod policy;
pub mod programs;
pub mod sealed;
pub mod settings;

pub use stockade_private_dir as private_dir;
