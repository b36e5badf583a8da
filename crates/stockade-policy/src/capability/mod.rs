//! A capability: one typed operation of one program, as a pack's manifest describes it.
//!
//! Owned here: reading the manifest with the place of every fault (`parse`), what inputs are (`input`), how they become an argument list
//! (`template`, `prepare`), what rules may say about them (`facts`; `tool` for tools of MCP servers), and its examples (`example`). Nothing here looks at a file system: who
//! calls resolves paths and programs. A manifest is as trusted as its pack; the inputs are hostile.

mod example;
mod facts;
mod input;
mod manifest;
mod parse;
mod paths;
mod prepare;
mod sandbox;
mod template;
mod tool;

pub use example::{Example, Expected};
pub(crate) use example::{Tried, WORKSPACE};
pub use facts::{CapabilityFacts, InputFact, Invocation, Presence, Vocabulary, canonical};
pub use input::{Input, Kind, Property, Scalar};
pub use manifest::{Capability, Effect, Output, Risk};
pub use paths::{Lexical, Paths, ResolvedPath};
pub use prepare::{Prepared, Refused, from_words};
pub use sandbox::{CapabilityLimits, CapabilityMount, CapabilitySandbox, Credential, ExecList, Hosts};
pub use template::{Argument, Dash};
