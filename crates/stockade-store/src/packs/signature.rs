//! Whether a pack is signed by somebody whom the person trusts, over exactly these files.

use std::path::Path;

use stockade_policy::pack::{Envelope, Listing, Manifest, PackFiles, PublisherName, SIGNATURE, SigningKey};

use super::archive::unpack;
use super::directory::read_directory;
use super::error::PackError;
use super::publishers::{KeyState, Publisher, Publishers};

/// What vouches for a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// A trusted publisher's signature.
    Signed {
        /// The key.
        key_id: String,
        /// Whose.
        publisher: PublisherName,
    },
    /// Nobody: a person installed it with `--unsigned`.
    Unsigned,
    /// It is part of this program.
    BuiltIn,
}

impl Standing {
    /// The word that people and receipts see.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Signed { .. } => "signed",
            Self::Unsigned => "unsigned",
            Self::BuiltIn => "built-in",
        }
    }
}

/// Reads a pack from a directory or an archive.
pub fn read_pack(path: &Path) -> Result<PackFiles, PackError> {
    let failed = |error: std::io::Error| PackError::Read(path.to_owned(), error);
    let found = std::fs::metadata(path).map_err(failed)?;
    if found.is_dir() {
        return read_directory(path);
    }
    if !found.is_file() {
        return Err(PackError::NotAPack(path.to_owned()));
    }
    if found.len() > super::archive::MAX_ARCHIVE {
        return Err(PackError::Bomb);
    }
    unpack(std::fs::File::open(path).map_err(failed)?)
}

/// Whose signature a pack has. Anything but a sound signature by a trusted key is an error.
pub fn standing(files: &PackFiles, manifest: &Manifest, publishers: &Publishers) -> Result<Standing, PackError> {
    let envelope = Envelope::parse(files.get(SIGNATURE).ok_or(PackError::Unsigned)?)?;
    let known: Vec<(&str, &Publisher)> = envelope.key_ids().filter_map(|id| Some((id, publishers.find(id)?))).collect();
    if let Some((id, _)) = known.iter().find(|(_, publisher)| publisher.state == KeyState::Revoked) {
        return Err(PackError::Revoked((*id).to_owned()));
    }
    let Some((id, publisher)) = known.first() else {
        return Err(PackError::Untrusted(envelope.key_ids().map(str::to_owned).collect()));
    };
    let payload = envelope.verified_by(&publisher.key).ok_or_else(|| PackError::Forged((*id).to_owned()))?;
    Listing::parse(payload)?.check(files, &manifest.name, manifest.version)?;
    if publisher.name != manifest.publisher {
        return Err(PackError::OtherPublisher { named: manifest.publisher.clone(), signed: publisher.name.clone() });
    }
    Ok(Standing::Signed { key_id: (*id).to_owned(), publisher: publisher.name.clone() })
}

/// What a signature says about files whose signer is not trusted: it must at least be about them.
pub(super) fn check_claim(files: &PackFiles, manifest: &Manifest) -> Result<(), PackError> {
    let Some(bytes) = files.get(SIGNATURE) else { return Ok(()) };
    let envelope = Envelope::parse(bytes)?;
    Ok(Listing::parse(envelope.unverified())?.check(files, &manifest.name, manifest.version)?)
}

/// Signs a pack: the bytes of its signature file.
pub fn sign(files: &PackFiles, manifest: &Manifest, key: &SigningKey, key_id: &str) -> Vec<u8> {
    Envelope::sign(Listing::of(files, &manifest.name, manifest.version).to_bytes(), key, key_id).to_bytes()
}
