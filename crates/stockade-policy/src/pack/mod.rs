//! A pack: capabilities and rules of one publisher, as files that are signed together.
//!
//! Owned here: what may lie in a pack and under which names (`files`), its manifest (`manifest`), the digests of its files (`listing`), the
//! signature over them (`envelope`, `key`), and reading all of it (`read`). No file is opened here: whoever calls hands bytes in. Everything
//! in a pack is hostile until its signature was checked, and bounded even then.

mod envelope;
mod files;
mod key;
mod listing;
mod manifest;
mod name;
mod read;

pub use envelope::{Envelope, EnvelopeError, PAYLOAD_TYPE};
pub use files::{BadFile, MANIFEST, MAX_FILE, MAX_FILES, MAX_TOTAL, PackFiles, PackPath, README, SIGNATURE};
pub use key::{BadKey, PublicKey, SigningKey};
pub use listing::{Listing, ListingError};
pub use manifest::{Manifest, Platform};
pub use name::{BadName, CapabilityName, PackName, PublisherName, ServerName, ToolName, Version};
pub use read::{CapabilityFile, Pack};

use crate::fault::{Fault, FaultKind};

/// Offset and length of something in a text.
pub(crate) type Place = (usize, usize);

/// What TOML has to say, at its place.
pub(crate) fn toml_fault(file: &str, text: &str, error: &toml::de::Error) -> Fault {
    let place = error.span().map_or((0, 0), |span| (span.start, span.end.saturating_sub(span.start)));
    Fault::at(FaultKind::Manifest, file, text, place, error.message())
}
