//! What a killed apply left beside the files that it was replacing.
//!
//! A name that begins with [`prefix`] of a sandbox is of one of its applies: a copy that was not placed yet, or the version that it
//! had just replaced, and had checked the instant before. An apply removes them itself; this is for one that was killed.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::AtFlags;
use rustix::io::Errno;
use stockade_core::id::SandboxId;

use super::apply::TEMPORARY;
use super::beneath;

/// Entries of one directory, and directories, that are looked at.
const MOST_NAMES: usize = 100_000;
const MOST_DIRECTORIES: usize = 100_000;

/// How the names of half-made files of one sandbox's applies begin.
pub fn prefix(id: &SandboxId) -> String {
    format!("{TEMPORARY}{id}-")
}

/// Removes them wherever the sandbox changed something: a directory of the upper layer says where. Returns how many there were.
pub fn remove(workspace: BorrowedFd<'_>, upper: &Path, prefix: &str) -> Result<usize, Errno> {
    let upper = beneath::open_root(upper)?;
    let mut count = 0;
    let mut queue = vec![PathBuf::new()];
    let mut seen = 0;
    while let Some(relative) = queue.pop() {
        seen += 1;
        if seen > MOST_DIRECTORIES {
            break;
        }
        // What is no directory outside, or not to be entered, has nothing of ours in it.
        let Ok(outside) = beneath::resolve_dir(workspace, &relative) else { continue };
        for name in beneath::some_names(&outside, MOST_NAMES)?.iter().filter(|name| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
        {
            match rustix::fs::unlinkat(&outside, name, AtFlags::empty()) {
                Err(Errno::ISDIR) => rustix::fs::unlinkat(&outside, name, AtFlags::REMOVEDIR)?,
                other => other?,
            }
            count += 1;
        }
        let Ok(inside) = beneath::resolve_dir(upper.as_fd(), &relative) else { continue };
        let is_dir = |name: &OsString| beneath::stat(&inside, name).is_ok_and(|stat| beneath::is_dir(&stat));
        queue.extend(beneath::some_names(&inside, MOST_NAMES)?.into_iter().filter(is_dir).map(|name| relative.join(name)));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn strays_of_this_sandbox_go_and_nothing_else_does() {
        let base = tempfile::tempdir().unwrap();
        let (work, upper) = (base.path().join("work"), base.path().join("upper"));
        for directory in [work.join("a/b"), work.join("c"), upper.join("a/b"), base.path().join("out")] {
            fs::create_dir_all(directory).unwrap();
        }
        std::os::unix::fs::symlink(base.path().join("out"), work.join("link")).unwrap();
        fs::create_dir(upper.join("link")).unwrap();
        let id: SandboxId = "0123456789abcdef".parse().unwrap();
        let ours = format!("{}1", prefix(&id));
        for path in [work.join(&ours), work.join("a/b").join(&ours), work.join("c").join(&ours), base.path().join("out").join(&ours)] {
            fs::write(path, "x").unwrap();
        }
        fs::create_dir(work.join(format!("{}2", prefix(&id)))).unwrap();
        fs::write(work.join(".stockade-apply-fedcba9876543210-1"), "another's").unwrap();
        let workspace = fs::File::open(&work).unwrap();
        assert_eq!(remove(workspace.as_fd(), &upper, &prefix(&id)), Ok(3));
        let left = |path: &Path| path.join(&ours).exists();
        assert_eq!(
            [left(&work), left(&work.join("a/b")), left(&work.join("c")), left(&base.path().join("out"))],
            [false, false, true, true]
        );
        assert!(work.join(".stockade-apply-fedcba9876543210-1").exists());
    }
}
