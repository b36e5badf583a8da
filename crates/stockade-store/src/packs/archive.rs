//! A pack as one file, `.tar.zst`: read into memory within bounds, entry by entry, before anything is written anywhere.
//!
//! Nothing is ever extracted from an archive: its files become a value, which is checked like any other pack. Only plain files and the two
//! known directories are taken; the extensions of tar (long names, sparse files, attributes) are not read at all.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::rc::Rc;

use stockade_policy::pack::{BadFile, MAX_FILE, MAX_FILES, MAX_TOTAL, PackFiles, PackPath};
use tar::EntryType;

use super::error::PackError;

/// Bytes of an archive at most.
pub(super) const MAX_ARCHIVE: u64 = MAX_TOTAL as u64;
/// Bytes that come out of an archive at most: the files, and a header and padding for each.
const MAX_STREAM: u64 = (MAX_TOTAL + MAX_FILES * 1024 + 64 * 1024) as u64;
/// The window that unpacking may use, as a power of two: 8 MiB.
const MAX_WINDOW: u32 = 23;
/// Entries at most; directories count too.
const MAX_ENTRIES: usize = MAX_FILES + 16;

/// Reads an archive.
pub fn unpack(archive: impl Read) -> Result<PackFiles, PackError> {
    let broken = |error: io::Error| PackError::Archive(error.to_string());
    let mut stream = zstd::stream::read::Decoder::new(archive.take(MAX_ARCHIVE + 1)).map_err(broken)?;
    stream.window_log_max(MAX_WINDOW).map_err(broken)?;
    let is_full = Rc::new(Cell::new(false));
    let mut archive = tar::Archive::new(Bounded { inner: stream, left: MAX_STREAM, is_full: Rc::clone(&is_full) });
    let told = |error: io::Error| if is_full.get() { PackError::Bomb } else { broken(error) };
    let mut files = PackFiles::default();
    for (count, entry) in archive.entries().map_err(told)?.raw(true).enumerate() {
        let mut entry = entry.map_err(told)?;
        if count >= MAX_ENTRIES {
            return Err(BadFile::Many.into());
        }
        let name = entry.path_bytes().into_owned();
        let kind = entry.header().entry_type();
        let name = name.strip_prefix(b"./").unwrap_or(&name);
        if let Some(what) = refused(kind) {
            return Err(BadFile::Special(stockade_core::escape::escape_bytes(name), what).into());
        }
        if kind == EntryType::Directory {
            match name.strip_suffix(b"/").unwrap_or(name) {
                b"" | b"." | b"capabilities" | b"policy" => continue,
                // What a directory may not be called, a file may not either: the same words say why.
                other => {
                    let path = PackPath::parse(other)?;
                    return Err(BadFile::Place(path.to_string()).into());
                }
            }
        }
        let path = PackPath::parse(name)?;
        if entry.header().size().map_err(told)? > MAX_FILE as u64 {
            return Err(BadFile::Large(path.to_string()).into());
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(told)?;
        files.add(path, bytes)?;
    }
    if is_full.get() { Err(PackError::Bomb) } else { Ok(files) }
}

/// Why an entry is not taken, in words; `None` for plain files and directories.
fn refused(kind: EntryType) -> Option<&'static str> {
    match kind {
        EntryType::Regular | EntryType::Directory => None,
        EntryType::Symlink => Some("a symbolic link"),
        EntryType::Link => Some("a hard link"),
        EntryType::Char | EntryType::Block => Some("a device"),
        EntryType::Fifo => Some("a pipe"),
        _ => Some("an extension of tar"),
    }
}

/// Writes a pack as an archive: the same files always give the same bytes.
pub fn write_archive(files: &PackFiles, out: impl Write) -> io::Result<()> {
    let mut archive = tar::Builder::new(zstd::stream::write::Encoder::new(out, 0)?);
    for (path, bytes) in files.iter() {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        archive.append_data(&mut header, path.as_str(), bytes)?;
    }
    archive.into_inner()?.finish()?.flush()
}

/// Stops at a number of bytes, and says so.
struct Bounded<R> {
    inner: R,
    left: u64,
    is_full: Rc<Cell<bool>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !buffer.is_empty() {
            self.is_full.set(true);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it unpacks to more than a pack may hold"));
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.inner.read(buffer.get_mut(..most).unwrap_or_default())?;
        self.left -= count as u64;
        Ok(count)
    }
}
