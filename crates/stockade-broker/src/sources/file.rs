//! A value in a file that a person named in the settings. Links are followed, as mounted secrets are links; what others could have
//! written is not used.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use stockade_core::secret::MAX_TEXT;
use zeroize::Zeroizing;

use super::SourceError;
use crate::{SecretName, SecretValue};

/// Reads the value; one line break at its end is not part of it, and neither are those within a key in PEM.
pub(super) fn read(name: &SecretName, path: &Path) -> Result<SecretValue, SourceError> {
    let failed = |source: std::io::Error| SourceError::File { name: name.clone(), path: path.to_owned(), source };
    let refused = |why| SourceError::FileRefused { name: name.clone(), path: path.to_owned(), why };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
    let found = rustix::fs::fstat(&file).map_err(|errno| failed(errno.into()))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(refused("it is not a plain file"));
    }
    if found.st_uid != 0 && found.st_uid != rustix::process::geteuid().as_raw() {
        return Err(refused("it belongs to another user"));
    }
    if found.st_mode & 0o022 != 0 {
        return Err(refused("others may write to it"));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_TEXT + 1));
    File::from(file).take(MAX_TEXT as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    let bytes = std::mem::take(&mut *bytes);
    SecretValue::from_text(bytes).map_err(|source| SourceError::Value { name: name.clone(), source })
}
