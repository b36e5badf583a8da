//! SHA-256 of file contents, read in a stream and never past a budget.

use std::fmt;
use std::os::fd::AsFd;

use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

/// How much is read at once.
pub(crate) const BUFFER: usize = 256 * 1024;

/// The SHA-256 of a file's contents or of a link's text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentDigest([u8; 32]);

impl ContentDigest {
    /// Of bytes in memory.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub(crate) fn finish(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Reads a whole file from its beginning, at most `limit` bytes of it; `None` where it is longer.
pub(crate) fn of_file(fd: impl AsFd, limit: u64) -> Result<Option<ContentDigest>, Errno> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0_u8; BUFFER];
    let mut offset = 0_u64;
    loop {
        let count = match rustix::io::pread(fd.as_fd(), buffer.as_mut_slice(), offset) {
            Ok(0) => return Ok(Some(ContentDigest::finish(hasher))),
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error),
        };
        offset += count as u64;
        if offset > limit {
            return Ok(None);
        }
        hasher.update(buffer.get(..count).unwrap_or_default());
    }
}
