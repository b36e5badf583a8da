//! The two formats of the store, key and entry, and the cipher between them. Bytes in, bytes out; no files.
//!
//! ```text
//! key    "STKD" 'K' version | 32 random bytes
//! entry  "STKD" 'S' version | key id (8) | created, seconds (8) | nonce (12) | AES-256-GCM of the value | tag (16)
//! ```
//!
//! The entry's name and everything before its nonce are bound as associated data, so an entry that was renamed, or whose date was
//! changed, does not open.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::digest;
use zeroize::Zeroizing;

use crate::{Secret, SecretName, SecretValue};

const MAGIC: &[u8; 4] = b"STKD";
const VERSION: u8 = 1;
const KEY_KIND: u8 = b'K';
const ENTRY_KIND: u8 = b'S';
const KEY_LENGTH: usize = 32;
const ID_LENGTH: usize = 8;
const TAG_LENGTH: usize = 16;
/// Before the nonce of an entry: magic, kind, version, key id, date.
const HEAD_LENGTH: usize = 4 + 1 + 1 + ID_LENGTH + 8;
/// A key file is exactly this long.
pub(super) const KEY_FILE: usize = 4 + 1 + 1 + KEY_LENGTH;
/// An entry is at most this long.
pub(super) const MAX_ENTRY: usize = HEAD_LENGTH + NONCE_LEN + stockade_core::secret::MAX_VALUE + TAG_LENGTH;

/// Why bytes cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unusable {
    /// Not this format at all, or cut short.
    Format(&'static str),
    /// A later format.
    Newer(u8),
    /// Another key.
    OtherKey,
    /// The cipher says that something was changed.
    Changed,
}

/// The key that seals every entry.
pub(super) struct Key {
    bytes: Secret<[u8; KEY_LENGTH]>,
    id: [u8; ID_LENGTH],
}

impl Key {
    /// A new one, from the system's random numbers.
    pub(super) fn generate() -> Option<Self> {
        let mut bytes = Zeroizing::new([0; KEY_LENGTH]);
        aws_lc_rs::rand::fill(bytes.as_mut_slice()).ok()?;
        Some(Self::of(*bytes))
    }

    /// The key in a key file.
    pub(super) fn from_file(file: &[u8]) -> Result<Self, Unusable> {
        let rest = open_head(file, KEY_KIND)?;
        let bytes: [u8; KEY_LENGTH] = rest.try_into().map_err(|_| Unusable::Format("it has the wrong length"))?;
        Ok(Self::of(bytes))
    }

    /// The key file.
    pub(super) fn to_file(&self) -> Zeroizing<Vec<u8>> {
        let mut file = Zeroizing::new(Vec::with_capacity(KEY_FILE));
        file.extend_from_slice(MAGIC);
        file.extend_from_slice(&[KEY_KIND, VERSION]);
        file.extend_from_slice(self.bytes.expose());
        file
    }

    /// Seals a value under a name.
    pub(super) fn seal(&self, name: &SecretName, created: u64, value: &SecretValue) -> Option<Vec<u8>> {
        let mut head = Vec::with_capacity(MAX_ENTRY);
        head.extend_from_slice(MAGIC);
        head.extend_from_slice(&[ENTRY_KIND, VERSION]);
        head.extend_from_slice(&self.id);
        head.extend_from_slice(&created.to_be_bytes());
        // Room for the tag, so that the buffer does not move and leave the value behind.
        let mut sealed = Zeroizing::new(Vec::with_capacity(value.expose().len() + TAG_LENGTH));
        sealed.extend_from_slice(value.expose());
        let nonce = self.cipher()?.seal_in_place_append_tag(associated(&head, name), &mut *sealed).ok()?;
        let mut entry = head;
        entry.extend_from_slice(nonce.as_ref());
        entry.extend_from_slice(&sealed);
        Some(entry)
    }

    /// Opens what was sealed under a name.
    pub(super) fn open(&self, name: &SecretName, entry: &[u8]) -> Result<Vec<u8>, Unusable> {
        let cut = Unusable::Format("it is cut short");
        open_head(entry, ENTRY_KIND)?;
        let (head, rest) = entry.split_at_checked(HEAD_LENGTH).ok_or(cut)?;
        if head.get(6..6 + ID_LENGTH) != Some(&self.id[..]) {
            return Err(Unusable::OtherKey);
        }
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN).ok_or(cut)?;
        if sealed.len() < TAG_LENGTH {
            return Err(cut);
        }
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| cut)?;
        let mut opened = Zeroizing::new(sealed.to_vec());
        let cipher = self.cipher().ok_or(Unusable::Changed)?;
        let value = cipher.open_in_place(nonce, associated(head, name), &mut opened).map_err(|_| Unusable::Changed)?;
        Ok(value.to_vec())
    }

    fn of(bytes: [u8; KEY_LENGTH]) -> Self {
        let bytes = Secret::new(bytes);
        let mut hash = digest::Context::new(&digest::SHA256);
        hash.update(b"stockade secret store key id");
        hash.update(bytes.expose());
        let mut id = [0; ID_LENGTH];
        id.iter_mut().zip(hash.finish().as_ref()).for_each(|(to, from)| *to = *from);
        Self { bytes, id }
    }

    fn cipher(&self) -> Option<RandomizedNonceKey> {
        RandomizedNonceKey::new(&AES_256_GCM, self.bytes.expose()).ok()
    }
}

/// When an entry says that it was made. Only opening it proves that.
pub(super) fn created(entry: &[u8]) -> Result<u64, Unusable> {
    open_head(entry, ENTRY_KIND)?;
    let cut = Unusable::Format("it is cut short");
    let date = entry.get(6 + ID_LENGTH..HEAD_LENGTH).and_then(|date| date.try_into().ok()).ok_or(cut)?;
    if entry.len() < HEAD_LENGTH + NONCE_LEN + TAG_LENGTH {
        return Err(cut);
    }
    Ok(u64::from_be_bytes(date))
}

fn open_head(file: &[u8], kind: u8) -> Result<&[u8], Unusable> {
    let rest = file.strip_prefix(MAGIC).ok_or(Unusable::Format("it does not begin as it should"))?;
    match rest {
        [found, VERSION, rest @ ..] if *found == kind => Ok(rest),
        [found, version, ..] if *found == kind && *version > VERSION => Err(Unusable::Newer(*version)),
        _ => Err(Unusable::Format("it does not begin as it should")),
    }
}

fn associated(head: &[u8], name: &SecretName) -> Aad<Vec<u8>> {
    Aad::from([head, name.as_str().as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value() -> SecretValue {
        SecretValue::new(b"ghp_0123456789abcdefghijABCDEFGHIJ012345".to_vec()).unwrap()
    }

    #[test]
    fn what_is_sealed_opens_under_its_own_name_and_key_only() {
        let key = Key::generate().unwrap();
        let (name, other): (SecretName, SecretName) = ("A".parse().unwrap(), "B".parse().unwrap());
        let entry = key.seal(&name, 1_700_000_000, &value()).unwrap();
        assert_eq!(key.open(&name, &entry).unwrap(), value().expose());
        assert_eq!(created(&entry), Ok(1_700_000_000));
        assert_eq!(key.open(&other, &entry), Err(Unusable::Changed));
        assert_eq!(Key::generate().unwrap().open(&name, &entry), Err(Unusable::OtherKey));
        let again = Key::from_file(&key.to_file()).unwrap();
        assert_eq!(again.open(&name, &entry).unwrap(), value().expose());
        assert_ne!(entry, key.seal(&name, 1_700_000_000, &value()).unwrap(), "never the same twice");
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let key = Key::generate().unwrap();
        let name: SecretName = "A".parse().unwrap();
        let entry = key.seal(&name, 5, &value()).unwrap();
        for at in 0..entry.len() {
            let mut changed = entry.clone();
            changed[at] ^= 1;
            assert!(key.open(&name, &changed).is_err(), "byte {at}");
            assert!(key.open(&name, &entry[..at]).is_err(), "cut at {at}");
        }
        let mut newer = entry;
        newer[5] = 9;
        assert_eq!(key.open(&name, &newer), Err(Unusable::Newer(9)));
        for bad in [&b""[..], b"STKD", b"STKDK\x01short", b"hello"] {
            assert!(Key::from_file(bad).is_err(), "{bad:?}");
        }
    }
}
