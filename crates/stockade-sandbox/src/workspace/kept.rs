//! Keeping an overlay's upper directory after its sandbox is gone.
//!
//! Copies the tree from where the sandbox wrote it (often memory) to a private directory, with everything that
//! [`super::layer`] reads: modes, links, whiteouts, overlayfs's marks, holes. Hard links stay links, so that many names of
//! one large file do not fill the disk. What cannot be kept is listed, never silently left out.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Uid, XattrFlags};
use rustix::io::Errno;

use super::apply::write_all;
use super::beneath::{self, Directory, Locked};
use super::digest::BUFFER;
use super::layer::Bounds;
use super::shown;

/// The longest value of an overlay mark that is copied.
const MAX_MARK: usize = 4096;
/// The longest list of attribute names that is read.
const MAX_MARKS: usize = 65536;

/// Who owns the copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// Whoever makes them.
    Caller,
    /// One user, for all (root only).
    User {
        /// The user.
        uid: u32,
        /// The group.
        gid: u32,
    },
    /// As they were (root only).
    Same,
}

/// What was copied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Copied {
    /// Entries.
    pub entries: usize,
    /// Bytes of data, holes left out.
    pub bytes: u64,
    /// What was not, and why.
    pub left_out: Vec<LeftOut>,
}

/// An entry that was not copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Relative to the tree.
    pub path: PathBuf,
    /// Why.
    pub why: &'static str,
}

/// Why a tree could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The directory for it.
    #[error("cannot create `{path}`")]
    Create {
        /// The directory.
        path: String,
        /// What the system said.
        #[source]
        source: Errno,
    },
    /// Something in it.
    #[error("cannot {step} `{path}`")]
    Entry {
        /// What was tried.
        step: &'static str,
        /// Relative to the tree.
        path: String,
        /// What the system said.
        #[source]
        source: Errno,
    },
    /// More than the bound.
    #[error("the changes have more than {limit} entries")]
    TooMany {
        /// The bound.
        limit: usize,
    },
}

/// Whether nothing at all was written. A layer that is not empty may still hold no change.
pub fn is_empty_layer(upper: &Path) -> Result<bool, Errno> {
    Ok(beneath::some_names(beneath::open_root(upper)?, 1)?.is_empty())
}

/// Copies the tree at `from` to `to`, which must not exist and is made private (0700). On error `to` is left half made,
/// for the caller to remove with [`super::remove::remove_tree`].
pub fn copy_tree(from: BorrowedFd<'_>, to: &Path, ownership: Ownership) -> Result<Copied, KeepError> {
    let create = |source| KeepError::Create { path: shown(to), source };
    rustix::fs::mkdir(to, Mode::RWXU).map_err(create)?;
    let top = beneath::open_root(to).map_err(create)?;
    let from = beneath::reopen(from).map_err(|source| failed("open", Path::new(""), source))?;
    let mut copier = Copier { top: top.as_fd(), ownership, names: HashMap::new(), copied: Copied::default() };
    marks(from.as_fd(), top.as_fd(), Path::new(""))?;
    copier.directory(&from, &top, Path::new(""), 0)?;
    // The kept directory itself stays private to whoever keeps it, whatever the sandbox made of its own top.
    copier.own(&top, OsStr::new("."), None).map_err(|source| failed("give away", Path::new(""), source))?;
    Ok(copier.copied)
}

struct Copier<'a> {
    top: BorrowedFd<'a>,
    ownership: Ownership,
    /// Where the first name of an inode with several went.
    names: HashMap<(u64, u64), PathBuf>,
    copied: Copied,
}

impl Copier<'_> {
    fn directory(&mut self, from: &Directory, to: &Directory, at: &Path, depth: usize) -> Result<(), KeepError> {
        let left = Bounds::DEFAULT.entries.saturating_sub(self.copied.entries);
        let mut names = beneath::some_names(from, left + 1).map_err(|source| failed("list", at, source))?;
        if names.len() > left {
            return Err(KeepError::TooMany { limit: Bounds::DEFAULT.entries });
        }
        names.sort();
        for name in names {
            let path = at.join(&name);
            let stat = beneath::stat(from, &name).map_err(|source| failed("look at", &path, source))?;
            self.copied.entries += 1;
            self.entry(from, to, &name, &path, &stat, depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, from: &Directory, to: &Directory, name: &OsStr, path: &Path, stat: &Stat, depth: usize) -> Result<(), KeepError> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::Directory && stat.st_nlink > 1 && self.linked(to, name, path, stat) {
            return Ok(());
        }
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        match kind {
            FileType::Directory if depth >= Bounds::DEFAULT.depth => {
                self.leave_out(path, "more directories deep than can be listed");
                return Ok(());
            }
            FileType::Directory => {
                rustix::fs::mkdirat(to, name, Mode::RWXU).map_err(|source| failed("create", path, source))?;
                let inner = beneath::open_dir(from, name, Locked::Lift).map_err(|source| failed("open", path, source))?;
                let copy = beneath::open_dir(to, name, Locked::Leave).map_err(|source| failed("open the copy of", path, source))?;
                marks(inner.as_fd(), copy.as_fd(), path)?;
                self.directory(&inner, &copy, path, depth + 1)?;
                self.own(to, name, Some(stat)).map_err(|source| failed("give away", path, source))?;
                return rustix::fs::fchmod(&copy, mode).map_err(|source| failed("set the mode of", path, source));
            }
            FileType::RegularFile => {
                if !self.file(from, to, name, path, stat)? {
                    return Ok(());
                }
            }
            FileType::Symlink => {
                let text = beneath::read_link(from, name).map_err(|source| failed("read the link", path, source))?;
                rustix::fs::symlinkat(text.as_slice(), to, name).map_err(|source| failed("create", path, source))?;
                self.own(to, name, Some(stat)).map_err(|source| failed("give away", path, source))?;
            }
            FileType::CharacterDevice if stat.st_rdev == 0 => {
                whiteout(to, name).map_err(|source| failed("mark as deleted", path, source))?;
            }
            FileType::Fifo | FileType::Socket => {
                rustix::fs::mknodat(to, name, kind, mode & Mode::from_raw_mode(0o777), 0)
                    .map_err(|source| failed("create", path, source))?;
            }
            FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
                self.leave_out(path, "a device");
                return Ok(());
            }
        }
        if stat.st_nlink > 1 {
            self.names.insert((stat.st_dev, stat.st_ino), path.to_path_buf());
        }
        Ok(())
    }

    /// Links to the copy of an inode's first name. Where that fails (too many links), the caller copies again.
    fn linked(&mut self, to: &Directory, name: &OsStr, path: &Path, stat: &Stat) -> bool {
        let Some(first) = self.names.get(&(stat.st_dev, stat.st_ino)) else { return false };
        let Some((parent, first_name)) = beneath::split(first) else { return false };
        let Ok(parent) = beneath::resolve_dir(self.top, parent) else { return false };
        debug_assert!(first != path);
        rustix::fs::linkat(&parent, first_name, to, name, AtFlags::empty()).is_ok()
    }

    /// Copies a regular file; `false` where it was left out.
    fn file(&mut self, from: &Directory, to: &Directory, name: &OsStr, path: &Path, stat: &Stat) -> Result<bool, KeepError> {
        let (source, _) = beneath::open_file(from, name, Locked::Lift).map_err(|source| failed("open", path, source))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let copy = rustix::fs::openat(to, name, flags, Mode::RUSR | Mode::WUSR).map_err(|source| failed("create", path, source))?;
        match rustix::fs::ftruncate(&copy, beneath::size(stat)) {
            Ok(()) => {}
            Err(Errno::FBIG | Errno::INVAL) => {
                let _ = rustix::fs::unlinkat(to, name, AtFlags::empty());
                self.leave_out(path, "larger than the file system takes");
                return Ok(false);
            }
            Err(source) => return Err(failed("size", path, source)),
        }
        self.copied.bytes += copy_data(&source, &copy, beneath::size(stat)).map_err(|source| failed("copy", path, source))?;
        marks(source.as_fd(), copy.as_fd(), path)?;
        self.own(to, name, Some(stat)).map_err(|source| failed("give away", path, source))?;
        // After the owner: giving a file away clears such bits, and the listing should show what the sandbox did.
        rustix::fs::fchmod(&copy, Mode::from_raw_mode(stat.st_mode & 0o7777)).map_err(|source| failed("set the mode of", path, source))?;
        Ok(true)
    }

    fn own(&self, to: &Directory, name: &OsStr, stat: Option<&Stat>) -> Result<(), Errno> {
        let (uid, gid) = match (self.ownership, stat) {
            (Ownership::Caller, _) | (Ownership::Same, None) => return Ok(()),
            (Ownership::User { uid, gid }, _) => (uid, gid),
            (Ownership::Same, Some(stat)) => (stat.st_uid, stat.st_gid),
        };
        rustix::fs::chownat(to, name, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::SYMLINK_NOFOLLOW)
    }

    fn leave_out(&mut self, path: &Path, why: &'static str) {
        self.copied.left_out.push(LeftOut { path: path.to_path_buf(), why });
    }
}

/// Copies overlayfs's own attributes and no others.
fn marks(from: BorrowedFd<'_>, to: BorrowedFd<'_>, path: &Path) -> Result<(), KeepError> {
    let mut list = vec![0_u8; MAX_MARKS];
    let Ok(count) = rustix::fs::flistxattr(from, list.as_mut_slice()) else { return Ok(()) };
    for name in list.get(..count).unwrap_or_default().split(|byte| *byte == 0) {
        if !name.starts_with(b"user.overlay.") && !name.starts_with(b"trusted.overlay.") {
            continue;
        }
        let mut value = [0_u8; MAX_MARK];
        let Ok(count) = rustix::fs::fgetxattr(from, name, value.as_mut_slice()) else { continue };
        let value = value.get(..count).unwrap_or_default();
        rustix::fs::fsetxattr(to, name, value, XattrFlags::empty()).map_err(|source| failed("mark", path, source))?;
    }
    Ok(())
}

/// Makes a whiteout: a device 0/0 needs no privilege on today's kernels; elsewhere an empty file with a mark does.
fn whiteout(to: &Directory, name: &OsStr) -> Result<(), Errno> {
    if rustix::fs::mknodat(to, name, FileType::CharacterDevice, Mode::empty(), 0).is_ok() {
        return Ok(());
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(to, name, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::fsetxattr(&file, "user.overlay.whiteout", b"y", XattrFlags::empty())?;
    // `x` tells overlayfs to look for such files; a directory that is opaque already needs no whiteouts.
    match rustix::fs::fsetxattr(to, "user.overlay.opaque", b"x", XattrFlags::CREATE) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Copies one open file to a new name, private and without its attributes.
pub(crate) fn copy_file(from: &OwnedFd, to: &Directory, name: &OsStr) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let copy = rustix::fs::openat(to, name, flags, Mode::RUSR | Mode::WUSR)?;
    let size = beneath::size(&rustix::fs::fstat(from)?);
    rustix::fs::ftruncate(&copy, size)?;
    copy_data(from, &copy, size).map(|_| ())
}

/// Copies the data of a file and skips its holes; at most `size` bytes.
fn copy_data(from: &OwnedFd, to: &OwnedFd, size: u64) -> Result<u64, Errno> {
    let mut buffer = vec![0_u8; BUFFER];
    let (mut offset, mut bytes) = (0_u64, 0_u64);
    while offset < size {
        let start = match rustix::fs::seek(from, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => offset,
            Err(error) => return Err(error),
        };
        let end = rustix::fs::seek(from, SeekFrom::Hole(start)).unwrap_or(size).min(size);
        offset = start;
        while offset < end {
            let want = usize::try_from(end - offset).unwrap_or(BUFFER).min(BUFFER);
            let count = match rustix::io::pread(from, buffer.get_mut(..want).unwrap_or_default(), offset) {
                Ok(0) => return Ok(bytes),
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            write_all(to, buffer.get(..count).unwrap_or_default(), offset)?;
            offset += count as u64;
            bytes += count as u64;
        }
        if end <= start {
            break;
        }
    }
    Ok(bytes)
}

fn failed(step: &'static str, path: &Path, source: Errno) -> KeepError {
    KeepError::Entry { step, path: shown(path), source }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use crate::workspace::layer::Layer;
    use crate::workspace::testing::{Overlay, run};

    fn keep(overlay: &Overlay, ownership: Ownership) -> (PathBuf, Copied) {
        let to = overlay.base.path().join("kept");
        let from = beneath::open_root(&overlay.upper).unwrap();
        let copied = copy_tree(from.as_fd(), &to, ownership).unwrap();
        (to, copied)
    }

    #[test]
    fn a_kept_layer_holds_the_same_changes() {
        let overlay = Overlay::new("echo a >a; mkdir -p d/e; echo b >d/b; echo c >d/e/c; echo f >f; echo m >m");
        overlay.inside(
            "rm a; rm -r d; mkdir d; echo n >d/n; echo x >>f; chmod 4700 m; ln -s /etc l; mkfifo p; mkdir z; echo q >z/q; chmod 0 z/q z; \
             echo $'odd' >$'\\xff\\n'; truncate -s 8M sparse; echo 1 >one; ln one two",
        );
        let before = overlay.layer().changes().unwrap();
        let (kept, copied) = keep(&overlay, Ownership::Caller);
        let after = Layer::new(&kept, &overlay.lower).changes().unwrap();
        let plain = |changes: &[crate::workspace::change::LayerChange]| {
            let side = |entry: &Option<crate::workspace::change::Entry>| entry.as_ref().map(|entry| (entry.kind, entry.mode, entry.digest));
            changes.iter().map(|change| (change.to_string(), side(&change.new), side(&change.old), change.origin)).collect::<Vec<_>>()
        };
        assert_eq!(plain(&after), plain(&before));
        assert_eq!(copied.left_out, []);
        assert!(copied.bytes < 1 << 16, "holes were copied: {}", copied.bytes);
        assert_eq!(fs::metadata(kept.join("one")).unwrap().ino(), fs::metadata(kept.join("two")).unwrap().ino());
        assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o7777, 0o700);
    }

    #[test]
    fn a_kept_layer_can_be_mounted_again() {
        let overlay = Overlay::new("echo a >a; echo b >b; mkdir d; echo c >d/c");
        overlay.inside("rm a; rm -r d; mkdir d; echo n >d/n");
        let (kept, _) = keep(&overlay, Ownership::Caller);
        fs::remove_dir_all(&overlay.upper).unwrap();
        fs::rename(&kept, &overlay.upper).unwrap();
        overlay.inside("[ ! -e a ] && [ -e b ] && [ ! -e d/c ] && [ \"$(cat d/n)\" = n ]");
    }

    #[test]
    fn owners_can_be_changed() {
        let overlay = Overlay::new("true");
        overlay.inside("mkdir d; echo x >d/x; chmod 4755 d/x; ln -s x d/l");
        let (kept, _) = keep(&overlay, Ownership::User { uid: 1234, gid: 1235 });
        for name in [".", "d", "d/x", "d/l"] {
            let found = fs::symlink_metadata(kept.join(name)).unwrap();
            assert_eq!((found.uid(), found.gid()), (1234, 1235), "{name}");
        }
        assert_eq!(fs::metadata(kept.join("d/x")).unwrap().permissions().mode() & 0o7777, 0o4755);
    }

    #[test]
    fn what_cannot_be_kept_is_said() {
        let overlay = Overlay::new("true");
        overlay.inside(&format!("mkdir -p {}", "d/".repeat(300)));
        run("mknod", &[overlay.upper.join("null").to_str().unwrap(), "c", "1", "3"]);
        let (_, copied) = keep(&overlay, Ownership::Caller);
        let whys: Vec<_> = copied.left_out.iter().map(|left| left.why).collect();
        assert_eq!(whys, ["more directories deep than can be listed", "a device"]);
        let from = beneath::open_root(&overlay.upper).unwrap();
        let again = copy_tree(from.as_fd(), &overlay.base.path().join("kept"), Ownership::Caller);
        assert!(matches!(again, Err(KeepError::Create { source: Errno::EXIST, .. })));
    }

    #[test]
    fn empty_layers_are_told_quickly() {
        let overlay = Overlay::new("echo a >a");
        overlay.inside("cat a");
        assert_eq!(is_empty_layer(&overlay.upper), Ok(true));
        overlay.inside("rm a");
        assert_eq!(is_empty_layer(&overlay.upper), Ok(false));
    }
}
