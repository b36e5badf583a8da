//! Bytes that the files beneath a directory take on disk, for watching a sandbox's upper layer.
//!
//! Counts blocks, not lengths, so holes are free; a file with several names counts once. Symbolic links are never followed
//! and other file systems never entered: each directory is opened from the top with `openat2`, so that a tree that is
//! rearranged while we look cannot lead us out of it. Bounded in entries, in time and in its own memory; when a bound is
//! met, or a directory cannot be opened, the result says that it is not complete.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::sampler::Complete;

/// What one look may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Files and directories looked at.
    pub entries: u64,
    /// Wall time.
    pub time: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { entries: 1_000_000, time: Duration::from_secs(2) }
    }
}

/// What lies beneath a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUse {
    /// Bytes of disk blocks.
    pub bytes: u64,
    /// Files and directories.
    pub entries: u64,
    /// Whether all was looked at.
    pub complete: Complete,
}

/// Bytes of path names that wait to be looked at.
const MOST_QUEUED: usize = 32 << 20;

/// Adds up what lies beneath `top`. Stops early once it is over `enough`: the caller knows all it needs then.
pub fn usage(top: BorrowedFd<'_>, enough: u64, bounds: Bounds) -> Result<DiskUse, Errno> {
    let end = Instant::now() + bounds.time;
    let device = rustix::fs::fstat(top)?.st_dev;
    let mut sum = DiskUse { bytes: 0, entries: 0, complete: Complete::Yes };
    let mut linked = HashSet::new();
    let mut queue = vec![PathBuf::from(".")];
    let mut queued = 0usize;
    while let Some(path) = queue.pop() {
        queued = queued.saturating_sub(path.as_os_str().len());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let directory = match rustix::fs::openat2(top, &path, flags, Mode::empty(), resolve) {
            Ok(directory) => directory,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => continue, // Replaced or mounted over meanwhile.
            Err(_) => {
                sum.complete = Complete::No;
                continue;
            }
        };
        let Ok(entries) = Dir::read_from(&directory) else {
            sum.complete = Complete::No;
            continue;
        };
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            sum.entries += 1;
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            if stat.st_dev == device && (is_directory || stat.st_nlink == 1 || linked.insert(stat.st_ino)) {
                sum.bytes = sum.bytes.saturating_add((stat.st_blocks as u64).saturating_mul(512));
            }
            if is_directory && stat.st_dev == device {
                let child = path.join(Path::new(std::ffi::OsStr::from_bytes(name.to_bytes())));
                queued += child.as_os_str().len();
                queue.push(child);
            }
            if sum.bytes > enough || sum.entries >= bounds.entries || queued > MOST_QUEUED || Instant::now() > end {
                sum.complete = Complete::No;
                return Ok(sum);
            }
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests start programs of their own choice")]

    use std::fs;
    use std::os::fd::AsFd;

    use super::*;

    fn measure(path: &Path, enough: u64, bounds: Bounds) -> DiskUse {
        usage(fs::File::open(path).unwrap().as_fd(), enough, bounds).unwrap()
    }

    #[test]
    fn blocks_count_once_and_links_lead_nowhere() {
        let root = tempfile::tempdir().unwrap();
        let base = root.path();
        let all = |path: &Path| measure(path, u64::MAX, Bounds::default());
        let empty = all(base).bytes;
        fs::create_dir_all(base.join("a/b/c")).unwrap();
        fs::write(base.join("a/b/c/file"), vec![7; 1 << 20]).unwrap();
        fs::hard_link(base.join("a/b/c/file"), base.join("again")).unwrap();
        fs::File::create(base.join("sparse")).unwrap().set_len(1 << 40).unwrap();
        std::os::unix::fs::symlink("/usr", base.join("out")).unwrap();
        std::os::unix::fs::symlink("..", base.join("a/loop")).unwrap();
        fs::File::open(base.join("a/b/c/file")).unwrap().sync_all().unwrap();
        let found = all(base);
        assert_eq!((found.entries, found.complete), (8, Complete::Yes));
        assert!((1 << 20..(1 << 20) + (1 << 17)).contains(&(found.bytes - empty)), "{found:?}");
    }

    #[test]
    fn bounds_are_kept_and_told() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..100 {
            fs::write(root.path().join(number.to_string()), vec![7; 8192]).unwrap();
        }
        let few = measure(root.path(), u64::MAX, Bounds { entries: 10, ..Bounds::default() });
        assert_eq!((few.entries, few.complete), (10, Complete::No));
        let over = measure(root.path(), 1, Bounds::default());
        assert!(over.bytes > 1 && over.entries < 100 && over.complete == Complete::No, "{over:?}");
        let late = measure(root.path(), u64::MAX, Bounds { time: Duration::ZERO, ..Bounds::default() });
        assert_eq!(late.complete, Complete::No);
    }

    #[test]
    fn a_tree_deeper_than_a_path_can_say_is_not_complete() {
        let root = tempfile::tempdir().unwrap();
        let name = "d".repeat(200);
        let mut directory = files_directory(root.path());
        for _ in 0..30 {
            rustix::fs::mkdirat(&directory, &name, Mode::RWXU).unwrap();
            directory = rustix::fs::openat(&directory, &name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        let found = measure(root.path(), u64::MAX, Bounds::default());
        assert_eq!(found.complete, Complete::No);
        drop(directory);
        // What tempfile cannot remove by path, `rm` can.
        assert!(std::process::Command::new("rm").arg("-rf").arg(root.path()).status().unwrap().success());
    }

    fn files_directory(path: &Path) -> std::os::fd::OwnedFd {
        fs::File::open(path).unwrap().into()
    }
}
