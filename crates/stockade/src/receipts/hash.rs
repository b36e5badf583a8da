//! The digest of a file, read in pieces.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use sha2::{Digest as _, Sha256};
use stockade_verify::text::to_hex;

const BUFFER: usize = 128 << 10;

/// The SHA-256 of a whole file.
pub(crate) fn hashed(file: &File) -> Option<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; BUFFER];
    let mut offset = 0;
    loop {
        match file.read_at(&mut buffer, offset) {
            Ok(0) => return Some(to_hex(&hash.finalize())),
            Ok(count) => {
                hash.update(buffer.get(..count)?);
                offset += count as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}
