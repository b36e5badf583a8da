//! What is signed: the pack's name and version, and the SHA-256 of every file but the signature.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::files::{PackFiles, SIGNATURE};
use super::key::hex;
use super::name::{PackName, Version};

/// The form of a listing.
const FORM: u32 = 1;

/// Why files are not those of a listing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListingError {
    /// Not a listing.
    #[error("the signed list of files cannot be read: {0}")]
    Form(String),
    /// A newer form.
    #[error("the signed list of files has version {0}, which this program does not know")]
    Version(u32),
    /// A file that was changed.
    #[error("`{0}` is not as it was signed")]
    Changed(String),
    /// A file that was not signed.
    #[error("`{0}` was added after signing")]
    Added(String),
    /// A file that is gone.
    #[error("`{0}` was signed and is missing")]
    Missing(String),
    /// Another pack.
    #[error("the signature is for {signed}, and this is {found}")]
    OtherPack {
        /// What was signed.
        signed: String,
        /// What this is.
        found: String,
    },
}

/// The digests of a pack's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listing {
    version: u32,
    pack: Identity,
    files: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {
    name: PackName,
    version: Version,
}

impl Listing {
    /// The digests of these files.
    pub fn of(files: &PackFiles, name: &PackName, version: Version) -> Self {
        let signed = files.iter().filter(|(path, _)| path.as_str() != SIGNATURE);
        let files = signed.map(|(path, bytes)| (path.as_str().to_owned(), hex(&Sha256::digest(bytes)))).collect();
        Self { version: FORM, pack: Identity { name: name.clone(), version }, files }
    }

    /// Reads a payload.
    pub fn parse(payload: &[u8]) -> Result<Self, ListingError> {
        let listing: Self = serde_json::from_slice(payload).map_err(|error| ListingError::Form(error.to_string()))?;
        if listing.version == FORM { Ok(listing) } else { Err(ListingError::Version(listing.version)) }
    }

    /// The bytes to sign.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Strings and maps of strings always have a form in JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The digest of one file.
    pub fn digest(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether these are the files, all of them and no other, of the pack that was signed.
    pub fn check(&self, files: &PackFiles, name: &PackName, version: Version) -> Result<(), ListingError> {
        let found = Self::of(files, name, version);
        if let Some(path) = self.files.keys().find(|path| !found.files.contains_key(*path)) {
            return Err(ListingError::Missing(stockade_core::escape::escape(path)));
        }
        for (path, digest) in &found.files {
            match self.files.get(path) {
                None => return Err(ListingError::Added(path.clone())),
                Some(signed) if signed != digest => return Err(ListingError::Changed(path.clone())),
                Some(_) => {}
            }
        }
        if self.pack != found.pack {
            let shown = |one: &Identity| format!("`{}` {}", one.name, one.version);
            return Err(ListingError::OtherPack { signed: shown(&self.pack), found: shown(&found.pack) });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::PackPath;

    fn files(pairs: &[(&str, &str)]) -> PackFiles {
        let mut files = PackFiles::default();
        for (path, text) in pairs {
            files.add(PackPath::parse(path.as_bytes()).unwrap(), text.as_bytes().to_vec()).unwrap();
        }
        files
    }

    #[test]
    fn changed_added_missing_and_renamed_files_are_named() {
        let (name, version): (PackName, Version) = ("demo".parse().unwrap(), "1.0.0".parse().unwrap());
        let good = [("pack.toml", "a"), ("policy/x.cedar", "b"), ("signature.json", "s")];
        let listing = Listing::parse(&Listing::of(&files(&good), &name, version).to_bytes()).unwrap();
        let check = |pairs: &[(&str, &str)]| listing.check(&files(pairs), &name, version);
        assert_eq!(check(&good), Ok(()));
        assert_eq!(check(&[("pack.toml", "a"), ("policy/x.cedar", "b"), ("signature.json", "t")]), Ok(()), "it does not sign itself");
        assert_eq!(check(&[("pack.toml", "A"), ("policy/x.cedar", "b")]), Err(ListingError::Changed("pack.toml".into())));
        assert_eq!(check(&[("pack.toml", "a")]), Err(ListingError::Missing("policy/x.cedar".into())));
        assert_eq!(check(&[good[0], good[1], ("policy/y.cedar", "")]), Err(ListingError::Added("policy/y.cedar".into())));
        assert_eq!(check(&[good[0], ("policy/z.cedar", "b")]), Err(ListingError::Missing("policy/x.cedar".into())));
        let newer = "1.0.1".parse().unwrap();
        assert!(matches!(listing.check(&files(&good), &name, newer), Err(ListingError::OtherPack { .. })));
    }

    #[test]
    fn only_this_form_is_read() {
        let listing = Listing::of(&files(&[("pack.toml", "a")]), &"demo".parse().unwrap(), "1.0.0".parse().unwrap());
        let text = String::from_utf8(listing.to_bytes()).unwrap();
        assert_eq!(Listing::parse(text.replace("\"version\":1,", "\"version\":2,").as_bytes()), Err(ListingError::Version(2)));
        assert!(Listing::parse(text.replace("\"files\"", "\"file\"").as_bytes()).is_err());
        assert!(Listing::parse(b"").is_err());
    }
}
