//! Reading and writing small control files beneath an open directory, bounded in bytes.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// More than any control file we read holds, but for lists of processes, of which the first part is enough.
pub(super) const MOST_BYTES: usize = 64 * 1024;

/// A file, to be read.
pub(super) fn open(directory: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// The first [`MOST_BYTES`] of a file.
pub(super) fn read(directory: impl AsFd, name: &str) -> Result<String, Errno> {
    let bytes = drain(&open(directory, name)?, MOST_BYTES)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A whole file by its path, as bytes; longer than `most` is an error rather than half a truth.
pub(super) fn read_whole(path: &Path, most: usize) -> Result<Vec<u8>, Errno> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let bytes = drain(&file, most + 1)?;
    if bytes.len() > most { Err(Errno::FBIG) } else { Ok(bytes) }
}

/// Writes a value in one call, as control files want it.
pub(super) fn write(directory: impl AsFd, name: &str, value: &str) -> Result<(), Errno> {
    let file = rustix::fs::openat(directory, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    let written = rustix::io::retry_on_intr(|| rustix::io::write(&file, value.as_bytes()))?;
    if written == value.len() { Ok(()) } else { Err(Errno::IO) }
}

/// Opens a directory for work beneath it.
pub(super) fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// The number after `key` in a file of `key number` lines, such as `memory.events`.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.split_once(' ').filter(|(name, _)| *name == key)?.1.trim().parse().ok())
}

fn drain(file: &OwnedFd, most: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    let mut chunk = [0u8; 4096];
    while bytes.len() < most {
        let room = chunk.len().min(most - bytes.len());
        let part = chunk.get_mut(..room).unwrap_or_default();
        match rustix::io::retry_on_intr(|| rustix::io::read(file, &mut *part))? {
            0 => break,
            count => bytes.extend_from_slice(part.get(..count).unwrap_or_default()),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyed_takes_whole_words_only() {
        let text = "low 0\nhigh 1\noom 2\noom_kill 3\noom_group_kill x\n";
        assert_eq!(keyed(text, "oom"), Some(2));
        assert_eq!(keyed(text, "oom_kill"), Some(3));
        assert_eq!(keyed(text, "oom_group_kill"), None);
        assert_eq!(keyed(text, "max"), None);
    }

    #[test]
    fn too_long_is_an_error_where_all_is_wanted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, vec![b'x'; 9000]).unwrap();
        assert_eq!(read_whole(&path, 9000).unwrap().len(), 9000);
        assert_eq!(read_whole(&path, 8999), Err(Errno::FBIG));
    }
}
