//! What a detached agent prints, kept in two files: the newer and the older, so that the newest is always there and the disk stays ours.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The newer.
const NEWER: &str = "output.log";
/// The older.
const OLDER: &str = "output-older.log";
/// Bytes of one file.
const MAX_BYTES: u64 = 8 << 20;
/// Bytes that are read at a time.
const PIECE: u64 = 64 << 10;

/// Writes.
#[derive(Debug)]
pub(crate) struct Transcript {
    directory: PathBuf,
    file: File,
    length: u64,
}

impl Transcript {
    /// Begins one in an agent's directory.
    pub(crate) fn begin(directory: &Path) -> std::io::Result<Self> {
        Ok(Self { directory: directory.to_owned(), file: fresh(directory)?, length: 0 })
    }

    /// Adds what was printed. What cannot be kept is lost, and nothing else.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        if self.length.saturating_add(bytes.len() as u64) > MAX_BYTES && self.length > 0 {
            let turned = std::fs::rename(self.directory.join(NEWER), self.directory.join(OLDER)).and_then(|()| fresh(&self.directory));
            let Ok(file) = turned else { return };
            (self.file, self.length) = (file, 0);
        }
        let room = usize::try_from(MAX_BYTES - self.length).unwrap_or(usize::MAX);
        let kept = bytes.get(bytes.len().saturating_sub(room)..).unwrap_or_default();
        if self.file.write_all(kept).is_ok() {
            self.length += kept.len() as u64;
        }
    }
}

fn fresh(directory: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(directory.join(NEWER))
}

/// Reads, and goes on reading.
#[derive(Debug)]
pub(crate) struct Reader {
    directory: PathBuf,
    file: Option<File>,
    began: bool,
}

impl Reader {
    /// A reader of what there is and what comes; `None` where nothing is kept.
    pub(crate) fn open(directory: &Path) -> Option<Self> {
        directory.join(NEWER).exists().then(|| Self { directory: directory.to_owned(), file: None, began: false })
    }

    /// Passes on what is there by now.
    pub(crate) fn drain(&mut self, mut to: impl FnMut(&[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
        if !self.began {
            self.began = true;
            if let Ok(older) = File::open(self.directory.join(OLDER)) {
                pass(&older, &mut to)?;
            }
        }
        loop {
            if let Some(file) = &self.file {
                pass(file, &mut to)?;
            }
            // Where the file was turned meanwhile, there is another one to go on with.
            let newest = File::open(self.directory.join(NEWER))?;
            let is_same = self.file.as_ref().is_some_and(|file| same(file, &newest));
            if is_same {
                return Ok(());
            }
            self.file = Some(newest);
        }
    }

    /// The last bytes of what there is, for somebody who has just come.
    pub(crate) fn tail(directory: &Path, most: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Ok(mut file) = File::open(directory.join(NEWER)) {
            let length = file.metadata().map_or(0, |found| found.len());
            let _ = file.seek(SeekFrom::Start(length.saturating_sub(most))).and_then(|_| file.take(most).read_to_end(&mut bytes));
        }
        bytes
    }
}

fn same(a: &File, b: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    a.metadata().ok().zip(b.metadata().ok()).is_some_and(|(a, b)| (a.dev(), a.ino()) == (b.dev(), b.ino()))
}

fn pass(mut file: &File, to: &mut impl FnMut(&[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    loop {
        let mut bytes = Vec::new();
        if std::io::Read::by_ref(&mut file).take(PIECE).read_to_end(&mut bytes)? == 0 {
            return Ok(());
        }
        to(&bytes)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reader: &mut Reader) -> Vec<u8> {
        let mut all = Vec::new();
        reader
            .drain(|bytes| {
                all.extend_from_slice(bytes);
                Ok(())
            })
            .unwrap();
        all
    }

    #[test]
    fn what_is_printed_is_read_and_the_disk_stays_ours() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Reader::open(directory.path()).is_none());
        let mut transcript = Transcript::begin(directory.path()).unwrap();
        let mut reader = Reader::open(directory.path()).unwrap();
        transcript.add(b"one ");
        assert_eq!(read(&mut reader), b"one ");
        assert_eq!(read(&mut reader), b"");
        let long = vec![b'x'; 3 << 20];
        for _ in 0..10 {
            transcript.add(&long);
        }
        transcript.add(b"last");
        assert!(read(&mut reader).ends_with(b"last"));
        let size: u64 = [NEWER, OLDER].iter().map(|name| std::fs::metadata(directory.path().join(name)).unwrap().len()).sum();
        assert!(size <= 2 * MAX_BYTES, "{size}");
        assert_eq!(Reader::tail(directory.path(), 4), b"last");
        transcript.add(&vec![b'y'; 20 << 20]);
        assert!(std::fs::metadata(directory.path().join(NEWER)).unwrap().len() <= MAX_BYTES);
    }
}
