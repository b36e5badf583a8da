//! The one token that opens the door: made here, shown once, kept only as its digest.
//!
//! Whoever reads the file learns nothing that opens. Whoever can write it can put a digest of their own there, as the same user can do
//! anything else here. The file is looked at again whenever it changed, so that a new token takes the old one's place at once, in servers that
//! run too; one that is gone or damaged opens nothing.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::error::HttpError;

/// What every token begins with, so that people and scanners know one.
const PREFIX: &str = "stk_";
/// Random bytes of a token.
const LENGTH: usize = 32;
/// The file's name.
const NAME: &str = "token.json";
/// The version of its form.
const VERSION: u32 = 1;
/// Bytes of the file at most.
const MAX_FILE: u64 = 4096;
/// Bytes that are looked at as a token.
const MAX_SHOWN: usize = 256;

/// A token, whole; it is wiped when it goes.
pub struct Token(Zeroizing<String>);

/// Where its digest is kept.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    known: Mutex<Option<Known>>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    stamp: Stamp,
    digest: [u8; 32],
}

/// What changes when a file does: device, inode, time and length.
type Stamp = (u64, u64, i64, i64, u64);

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    version: u32,
    sha256: String,
}

impl Token {
    /// The token itself, to be shown to the person who started the server.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    fn make() -> Result<Self, HttpError> {
        let mut random = Zeroizing::new([0; LENGTH]);
        aws_lc_rs::rand::fill(random.as_mut()).map_err(|_| HttpError::NoRandom)?;
        let text = Zeroizing::new(URL_SAFE_NO_PAD.encode(random.as_ref()));
        Ok(Self(Zeroizing::new(format!("{PREFIX}{}", text.as_str()))))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(***)")
    }
}

impl TokenFile {
    /// The one in a directory, which is made private; with a new token where there was none.
    pub fn open(directory: &Path) -> Result<(Self, Option<Token>), HttpError> {
        stockade_private_dir::ensure_private_dir(directory).map_err(HttpError::Directory)?;
        let file = Self { path: directory.join(NAME), known: Mutex::new(None) };
        match file.read() {
            Ok(_) => return Ok((file, None)),
            Err(HttpError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let token = Token::make()?;
        let draft = file.draft(&token)?;
        // A link does not replace: where two servers start at once, one token is made and shown.
        let placed = std::fs::hard_link(&draft, &file.path);
        let _ = std::fs::remove_file(&draft);
        match placed {
            Ok(()) => Ok((file, Some(token))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok((file, None)),
            Err(source) => Err(HttpError::File { verb: "write", path: file.path, source }),
        }
    }

    /// Takes back a token that was just made and that nobody saw. Where it cannot be, a new one must be asked for.
    pub fn forget(directory: &Path) {
        let _ = std::fs::remove_file(directory.join(NAME));
    }

    /// Makes another token; the old one opens nothing any more.
    pub fn renew(&self) -> Result<Token, HttpError> {
        let token = Token::make()?;
        let draft = self.draft(&token)?;
        std::fs::rename(&draft, &self.path).map_err(|source| HttpError::File { verb: "write", path: self.path.clone(), source })?;
        Ok(token)
    }

    /// The same for a file that is damaged too.
    pub fn replace(directory: &Path) -> Result<Token, HttpError> {
        stockade_private_dir::ensure_private_dir(directory).map_err(HttpError::Directory)?;
        Self { path: directory.join(NAME), known: Mutex::new(None) }.renew()
    }

    /// Whether this is the token. Digests are compared, in a time that does not depend on where they differ.
    pub fn opens(&self, shown: &[u8]) -> bool {
        if shown.len() > MAX_SHOWN {
            return false;
        }
        let Some(digest) = self.digest() else { return false };
        let shown: [u8; 32] = Sha256::digest(shown).into();
        aws_lc_rs::constant_time::verify_slices_are_equal(&shown, &digest).is_ok()
    }

    /// The digest that the file has now.
    fn digest(&self) -> Option<[u8; 32]> {
        let stamp = stamp(&std::fs::symlink_metadata(&self.path).ok()?);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match *known {
            Some(found) if found.stamp == stamp => Some(found.digest),
            Some(_) | None => {
                *known = self.read().ok();
                known.map(|found| found.digest)
            }
        }
    }

    fn read(&self) -> Result<Known, HttpError> {
        let failed = |source| HttpError::File { verb: "read", path: self.path.clone(), source };
        let wrong = |why: String| HttpError::Form { path: self.path.clone(), why };
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = File::options().read(true).custom_flags(flags).open(&self.path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() || found.mode() & 0o077 != 0 {
            return Err(wrong("it must be a file that only its owner can read".to_owned()));
        }
        let mut text = Vec::new();
        file.take(MAX_FILE).read_to_end(&mut text).map_err(failed)?;
        let kept: Kept = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        if kept.version != VERSION {
            return Err(wrong(format!("its version is {}", kept.version)));
        }
        let digest = from_hex(&kept.sha256).ok_or_else(|| wrong("`sha256` is not a digest".to_owned()))?;
        Ok(Known { stamp: stamp(&found), digest })
    }

    /// The digest of a token in a file beside the place, for nobody else.
    fn draft(&self, token: &Token) -> Result<PathBuf, HttpError> {
        let draft = self.path.with_extension(std::process::id().to_string());
        let kept = Kept { version: VERSION, sha256: to_hex(&Sha256::digest(token.reveal())) };
        let text = serde_json::to_vec(&kept).map_err(|error| HttpError::Form { path: draft.clone(), why: error.to_string() })?;
        // What a killed one left may be there.
        let _ = std::fs::remove_file(&draft);
        let written = File::options().write(true).create_new(true).mode(0o600).open(&draft).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()
        });
        written.map_err(|source| HttpError::File { verb: "write", path: draft.clone(), source })?;
        Ok(draft)
    }
}

fn stamp(found: &std::fs::Metadata) -> Stamp {
    (found.dev(), found.ino(), found.ctime(), found.ctime_nsec(), found.len())
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_kept_as_a_digest_alone() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("http");
        let (file, fresh) = TokenFile::open(&directory).unwrap();
        let fresh = fresh.unwrap();
        assert_eq!((fresh.reveal().len(), fresh.reveal().starts_with(PREFIX)), (47, true));
        assert!(file.opens(fresh.reveal().as_bytes()) && !file.opens(b"") && !file.opens(&[b'x'; 5000]));
        let found = std::fs::metadata(directory.join(NAME)).unwrap();
        assert_eq!((found.mode() & 0o7777, std::fs::metadata(&directory).unwrap().mode() & 0o7777), (0o600, 0o700));
        let text = std::fs::read_to_string(directory.join(NAME)).unwrap();
        assert!(!text.contains(fresh.reveal()) && !format!("{fresh:?}{file:?}").contains(fresh.reveal()), "{text}");
        let (again, second) = TokenFile::open(&directory).unwrap();
        assert!(second.is_none() && again.opens(fresh.reveal().as_bytes()));
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "no draft stays");
    }

    #[test]
    fn a_new_one_takes_the_place_of_the_old_one_at_once() {
        let root = tempfile::tempdir().unwrap();
        let (running, old) = TokenFile::open(root.path()).unwrap();
        let old = old.unwrap();
        assert!(running.opens(old.reveal().as_bytes()));
        let new = TokenFile::replace(root.path()).unwrap();
        assert!(!running.opens(old.reveal().as_bytes()) && running.opens(new.reveal().as_bytes()));
        std::fs::remove_file(root.path().join(NAME)).unwrap();
        assert!(!running.opens(new.reveal().as_bytes()), "no file, no way in");
    }

    #[test]
    fn a_damaged_file_opens_nothing_and_is_never_none() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(NAME);
        let (running, _) = TokenFile::open(root.path()).unwrap();
        let digest = "0".repeat(64);
        let version = format!("{{\"version\":2,\"sha256\":\"{digest}\"}}");
        let unknown = format!("{{\"version\":1,\"sha256\":\"{digest}\",\"more\":1}}");
        for bad in ["", "{}", "{\"version\":1,\"sha256\":\"00\"}", &version, &unknown, &"x".repeat(9000)] {
            std::fs::write(&path, bad).unwrap();
            assert!(matches!(TokenFile::open(root.path()), Err(HttpError::Form { .. })), "{bad}");
            assert!(!running.opens(b""), "{bad}");
        }
        std::fs::write(&path, format!("{{\"version\":1,\"sha256\":\"{digest}\"}}")).unwrap();
        assert!(TokenFile::open(root.path()).is_ok());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(TokenFile::open(root.path()), Err(HttpError::Form { .. })), "others can read it");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(TokenFile::open(root.path()).is_err(), "a link");
    }
}
