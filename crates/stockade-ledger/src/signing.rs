//! The ledger's private key: made once, kept at mode 0600 as PKCS#8 PEM, used to sign and wiped from memory afterwards.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use rustix::fs::{CWD, RenameFlags};
use stockade_verify::key::PublicKey;
use stockade_verify::note::{Checkpoint, signature_line};
use stockade_verify::text::{from_base64, to_base64};
use zeroize::Zeroizing;

use crate::error::LedgerError;

/// What stands before the 32 bytes of an Ed25519 private key in PKCS#8 (RFC 8410).
const PREFIX: [u8; 16] = [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";
const MAX_TEXT: u64 = 4096;
const RANDOM: &str = "/dev/urandom";

/// A private key with its public half.
pub(crate) struct LedgerKey {
    signing: Ed25519KeyPair,
    public: PublicKey,
}

impl std::fmt::Debug for LedgerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LedgerKey").field(&self.public.id()).finish()
    }
}

impl LedgerKey {
    fn from_seed(seed: &[u8; 32], path: &Path) -> Result<Self, LedgerError> {
        // Receipts are signed one after the other: this library does it in half the time of the one that checks them.
        let bad = || LedgerError::BadKey(path.to_owned());
        let signing = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| bad())?;
        let public = signing.public_key().as_ref().try_into().map_err(|_| bad())?;
        Ok(Self { signing, public: PublicKey::from_bytes(public).map_err(|_| bad())? })
    }

    /// Makes a key and writes it, safe from a power cut, where nothing is yet: it has its name only when it is whole. The caller holds a lock,
    /// so what an earlier try left of it is nobody's.
    pub(crate) fn create(path: &Path) -> Result<Self, LedgerError> {
        let mut seed = Zeroizing::new([0; 32]);
        let random = Path::new(RANDOM);
        let mut source = std::fs::File::open(random).map_err(LedgerError::file("open", random))?;
        source.read_exact(seed.as_mut_slice()).map_err(LedgerError::file("read", random))?;
        let key = Self::from_seed(&seed, path)?;
        let der = Zeroizing::new([PREFIX.as_slice(), seed.as_slice()].concat());
        let pem = Zeroizing::new(format!("{BEGIN}\n{}\n{END}\n", *Zeroizing::new(to_base64(&der))));
        let draft = path.with_extension("draft");
        // Not written over: whoever made it chose who may read it.
        let _ = std::fs::remove_file(&draft);
        let options = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&draft);
        let mut file = options.map_err(LedgerError::file("create", &draft))?;
        file.write_all(pem.as_bytes()).and_then(|()| file.sync_all()).map_err(LedgerError::file("write", &draft))?;
        if let Err(errno) = rustix::fs::renameat_with(CWD, &draft, CWD, path, RenameFlags::NOREPLACE) {
            let _ = std::fs::remove_file(&draft);
            return Err(LedgerError::file("create", path)(errno.into()));
        }
        Ok(key)
    }

    /// Reads a key that nobody else can have read.
    pub(crate) fn load(path: &Path) -> Result<Self, LedgerError> {
        let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let file = match std::fs::File::options().read(true).custom_flags(flags).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(LedgerError::NoKey(path.to_owned())),
            Err(error) => return Err(LedgerError::file("open", path)(error)),
        };
        let found = file.metadata().map_err(LedgerError::file("look at", path))?;
        if found.mode() & 0o077 != 0 {
            return Err(LedgerError::ExposedKey { path: path.to_owned(), mode: found.mode() & 0o7777 });
        }
        let mut text = Zeroizing::new(String::new());
        file.take(MAX_TEXT).read_to_string(&mut text).map_err(LedgerError::file("read", path))?;
        let seed = seed_of(&text).ok_or_else(|| LedgerError::BadKey(path.to_owned()))?;
        Self::from_seed(&seed, path)
    }

    /// The public half.
    pub(crate) fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs bytes.
    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        // A signature has 64 bytes. One that had not would verify nothing, and be found by the first check.
        self.signing.sign(message).as_ref().try_into().unwrap_or([0; 64])
    }

    /// A checkpoint as a signed note.
    pub(crate) fn sign_checkpoint(&self, checkpoint: &Checkpoint) -> String {
        let text = checkpoint.to_text();
        let line = signature_line(&checkpoint.origin, &self.public, &self.sign(text.as_bytes()));
        format!("{text}\n{line}")
    }

    /// Where a ledger keeps its key.
    pub(crate) fn path(directory: &Path) -> PathBuf {
        directory.join("key.pem")
    }

    /// Where the next key waits while it takes over.
    pub(crate) fn next_path(directory: &Path) -> PathBuf {
        directory.join("key.next.pem")
    }

    /// Loads the key that the ledger says is its own; finishes a change of keys that was cut short.
    pub(crate) fn load_current(directory: &Path, key_id: &str) -> Result<Self, LedgerError> {
        let path = Self::path(directory);
        let key = Self::load(&path)?;
        if key.public.id() == key_id {
            return Ok(key);
        }
        let next = Self::next_path(directory);
        match Self::load(&next) {
            Ok(key) if key.public.id() == key_id => {
                take_over(directory, &key)?;
                Ok(key)
            }
            // Another process may have finished it this very moment.
            _ => match Self::load(&path)? {
                key if key.public.id() == key_id => Ok(key),
                _ => Err(LedgerError::OtherKey(path)),
            },
        }
    }
}

/// Puts the next key in the place of the old one, which is then gone.
pub(crate) fn take_over(directory: &Path, key: &LedgerKey) -> Result<(), LedgerError> {
    let (next, path) = (LedgerKey::next_path(directory), LedgerKey::path(directory));
    match std::fs::rename(&next, &path) {
        Ok(()) => {}
        // Another process was faster.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(LedgerError::file("rename", &next)(error)),
    }
    publish(directory, key.public())
}

/// Writes the public key beside the private one, for whoever wants to hand it on.
pub(crate) fn publish(directory: &Path, key: &PublicKey) -> Result<(), LedgerError> {
    let path = directory.join("key.pub.pem");
    let draft = directory.join("key.pub.draft");
    std::fs::write(&draft, key.to_pem()).and_then(|()| std::fs::rename(&draft, &path)).map_err(LedgerError::file("write", &path))?;
    sync_directory(directory)
}

/// Makes new names in a directory safe from a power cut.
pub(crate) fn sync_directory(directory: &Path) -> Result<(), LedgerError> {
    let opened = std::fs::File::open(directory).map_err(LedgerError::file("open", directory))?;
    opened.sync_all().map_err(LedgerError::file("sync", directory))
}

fn seed_of(text: &str) -> Option<Zeroizing<[u8; 32]>> {
    let inner = text.trim().strip_prefix(BEGIN)?.strip_suffix(END)?;
    let base64 = Zeroizing::new(inner.split_ascii_whitespace().collect::<String>());
    let der = Zeroizing::new(from_base64(&base64)?);
    Some(Zeroizing::new(<[u8; 32]>::try_from(der.strip_prefix(&PREFIX)?).ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_reads_back_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        std::fs::write(path.with_extension("draft"), "what a kill left").unwrap();
        let made = LedgerKey::create(&path).unwrap();
        let read = LedgerKey::load(&path).unwrap();
        assert_eq!(made.public(), read.public());
        assert!(made.public().verifies(b"x", &read.sign(b"x")));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(LedgerKey::create(&path).is_err(), "a key is never written over");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn exposed_broken_and_missing_keys_are_refused_with_a_hint() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        assert!(matches!(LedgerKey::load(&path), Err(LedgerError::NoKey(_))));
        LedgerKey::create(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = LedgerKey::load(&path).unwrap_err();
        assert!(matches!(error, LedgerError::ExposedKey { mode: 0o640, .. }) && error.hint().unwrap().contains("chmod 600"));
        std::fs::write(&path, "nonsense").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(LedgerKey::load(&path), Err(LedgerError::BadKey(_))));
        let link = directory.path().join("link.pem");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(LedgerKey::load(&link), Err(LedgerError::File { .. })), "links are not followed");
    }
}
