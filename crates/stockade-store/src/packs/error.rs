//! Why a pack is refused: one variant for each way to fail.

use std::io;
use std::path::{Path, PathBuf};

use stockade_core::escape::escape_bytes;
use stockade_policy::Faults;
use stockade_policy::pack::{BadFile, CapabilityName, EnvelopeError, ListingError, PackName, PublisherName, Version};

use super::publishers::PublishersError;

/// Why a pack is refused.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// Something cannot be read.
    #[error("cannot read `{}`", shown(.0))]
    Read(PathBuf, #[source] io::Error),
    /// Something cannot be written.
    #[error("cannot write `{}`", shown(.0))]
    Write(PathBuf, #[source] io::Error),
    /// Something that cannot be in a pack.
    #[error(transparent)]
    File(#[from] BadFile),
    /// Neither a directory nor an archive.
    #[error("`{}` is neither a directory nor a .tar.zst file", shown(.0))]
    NotAPack(PathBuf),
    /// An archive that is larger than any, or unpacks to more than any.
    #[error("the archive holds more than a pack may")]
    Bomb,
    /// An archive that cannot be read.
    #[error("the archive cannot be read: {0}")]
    Archive(String),
    /// The manifest, a capability or a rule does not stand.
    #[error("{0}")]
    Faults(#[source] Faults),
    /// No signature.
    #[error("the pack is not signed")]
    Unsigned,
    /// A signature that cannot be read.
    #[error("the signature cannot be used")]
    Envelope(#[from] EnvelopeError),
    /// Nobody known signed it.
    #[error("the pack is signed by {}, which is not trusted", keys(.0))]
    Untrusted(Vec<String>),
    /// Whoever signed it is not trusted any more.
    #[error("the pack is signed by the key {0}, which was revoked")]
    Revoked(String),
    /// The signature is not by the key that it names.
    #[error("the signature is not by the key {0} that it names, or what it signs was changed")]
    Forged(String),
    /// The files are not those that were signed.
    #[error("the pack is not as it was signed")]
    Listing(#[from] ListingError),
    /// The pack names another publisher than the key's.
    #[error("the pack names the publisher `{named}`, and its signature is by `{signed}`")]
    OtherPublisher {
        /// In `pack.toml`.
        named: PublisherName,
        /// The key's.
        signed: PublisherName,
    },
    /// Not for this system.
    #[error("the pack is not for this system, but for {0}")]
    Platform(String),
    /// A name that a built-in pack has.
    #[error("`{0}` is the name of a built-in pack")]
    BuiltIn(PackName),
    /// Two packs claim one capability.
    #[error("the capability `{capability}` is the pack `{owner}`'s already")]
    Claimed {
        /// The capability.
        capability: CapabilityName,
        /// Whose it is.
        owner: PackName,
    },
    /// An older version than the installed one.
    #[error("version {installed} of `{name}` is installed, which is newer than {offered}")]
    Downgrade {
        /// The pack.
        name: PackName,
        /// What is there.
        installed: Version,
        /// What would be.
        offered: Version,
    },
    /// The same version with other files.
    #[error("version {version} of `{name}` is installed with other contents")]
    SameVersion {
        /// The pack.
        name: PackName,
        /// The version.
        version: Version,
    },
    /// The installed one is by somebody else.
    #[error("the installed `{name}` is by `{installed}`, and this one is by `{offered}`")]
    Takeover {
        /// The pack.
        name: PackName,
        /// Whose is there.
        installed: String,
        /// Whose would be.
        offered: String,
    },
    /// The record of an installed pack is damaged.
    #[error("`{}` is damaged: {}", shown(.0), .1)]
    Record(PathBuf, String),
    /// The files are not those that were installed.
    #[error("the pack was changed after it was installed")]
    Changed,
    /// There is no such pack.
    #[error("there is no pack `{0}`")]
    NoPack(String),
    /// There is no such capability.
    #[error("there is no capability `{name}`")]
    NoCapability {
        /// What was asked for.
        name: String,
        /// The one whose name is nearest, where one is near.
        nearest: Option<String>,
    },
    /// Keys of publishers cannot be read.
    #[error(transparent)]
    Publishers(#[from] PublishersError),
}

impl PackError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Unsigned | Self::Untrusted(_) => {
                "`stockade trust add NAME KEY` trusts its publisher; `--unsigned` installs it without any proof".to_owned()
            }
            Self::Revoked(_) => "get a version that is signed with another key".to_owned(),
            Self::Forged(_) | Self::Listing(_) => "get the pack again from its publisher; if it is yours, sign it again".to_owned(),
            Self::OtherPublisher { signed, .. } => format!("only `{signed}`'s own packs may be signed with that key"),
            Self::Downgrade { .. } => "`--allow-downgrade` installs it all the same".to_owned(),
            Self::SameVersion { name, .. } | Self::Takeover { name, .. } => format!("`stockade pack remove {name}` first, if you mean it"),
            Self::Changed | Self::Record(..) => "install it again".to_owned(),
            Self::NoCapability { nearest: Some(nearest), .. } => format!("did you mean `{nearest}`? `stockade cap list` has them all"),
            Self::NoCapability { nearest: None, .. } => "see `stockade cap list`".to_owned(),
            Self::NoPack(_) => "see `stockade pack list`".to_owned(),
            Self::Faults(_) => "stockade pack lint DIRECTORY".to_owned(),
            Self::Archive(_) | Self::NotAPack(_) => {
                "a pack is a directory with a pack.toml, or what `stockade pack sign --archive` made of one".to_owned()
            }
            Self::BuiltIn(_) => "what is built in stays: choose another name, or forbid its capabilities by a rule".to_owned(),
            Self::Publishers(error) => return error.hint(),
            Self::Read(..)
            | Self::Write(..)
            | Self::File(_)
            | Self::Bomb
            | Self::Envelope(_)
            | Self::Platform(_)
            | Self::Claimed { .. } => return None,
        })
    }
}

fn keys(ids: &[String]) -> String {
    match ids {
        [] => "nobody".to_owned(),
        [one] => format!("the key {}", escape_bytes(one.as_bytes())),
        many => format!("the keys {}", many.iter().map(|id| escape_bytes(id.as_bytes())).collect::<Vec<_>>().join(", ")),
    }
}

fn shown(path: &Path) -> String {
    escape_bytes(path.as_os_str().as_encoded_bytes())
}
