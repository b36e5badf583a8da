//! Removing a tree that a sandbox left, whatever it looks like.
//!
//! Depth does not matter: a directory inside a directory is first moved up to the top of the tree under a fresh name, so
//! that one level is ever open, no path grows long and no stack grows deep. Links are removed, never followed. Modes that
//! keep the owner out (overlayfs leaves a `work` directory of mode 0) are lifted. Somebody else may be removing the same tree:
//! what is gone meanwhile is no error.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, IFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::beneath::{self, Locked};
use super::shown;

/// How many names are read before they are removed.
const BATCH: usize = 4096;

/// Why a tree could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// The path has no parent or name.
    #[error("`{path}` is not something that can be removed")]
    BadPath {
        /// The path.
        path: String,
    },
    /// The directory it is in.
    #[error("cannot open the directory of `{path}`")]
    Parent {
        /// The path.
        path: String,
        /// What the system said.
        #[source]
        source: Errno,
    },
    /// Something in it.
    #[error("cannot {step} `{name}` in the tree at `{path}`")]
    Entry {
        /// What was tried.
        step: &'static str,
        /// The tree.
        path: String,
        /// The entry's own name.
        name: String,
        /// What the system said.
        #[source]
        source: Errno,
    },
}

/// Removes a file or a directory with all in it. What is not there is no error.
pub fn remove_tree(path: &Path) -> Result<(), RemoveError> {
    let bad = || RemoveError::BadPath { path: shown(path) };
    let name = path.file_name().ok_or_else(bad)?;
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Err(bad()),
    };
    // The caller names the place; links above the last component are theirs.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(parent, flags, Mode::empty()) {
        Ok(parent) => remove_at(parent.as_fd(), name, path),
        Err(Errno::NOENT) => Ok(()),
        Err(source) => Err(RemoveError::Parent { path: shown(path), source }),
    }
}

/// As [`remove_tree`], by name in an open directory. `path` is for messages only.
pub(crate) fn remove_at(parent: BorrowedFd<'_>, name: &OsStr, path: &Path) -> Result<(), RemoveError> {
    let tree = Tree { path };
    match beneath::stat_if_there(parent, name) {
        Ok(None) => return Ok(()),
        Ok(Some(stat)) if !beneath::is_dir(&stat) => return tree.unlink(parent, name),
        Ok(Some(_)) => {}
        Err(source) => return Err(tree.failed("look at", name, source)),
    }
    unlock(parent, name);
    let top = match beneath::open_dir(parent, name, Locked::Lift) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        Err(source) => return Err(tree.failed("open", name, source)),
    };
    loop {
        let names = tree.names(&top, name)?;
        if names.is_empty() {
            break;
        }
        for inner in &names {
            tree.flatten(top.as_fd(), inner)?;
        }
    }
    drop(top);
    tree.rmdir(parent, name)
}

struct Tree<'a> {
    path: &'a Path,
}

impl Tree<'_> {
    /// Removes an entry of the top; directories in it are moved to the top and left for a later round.
    fn flatten(&self, top: BorrowedFd<'_>, name: &OsStr) -> Result<(), RemoveError> {
        match beneath::stat_if_there(top, name) {
            Ok(None) => return Ok(()),
            Ok(Some(stat)) if !beneath::is_dir(&stat) => return self.unlink(top, name),
            Ok(Some(_)) => {}
            Err(source) => return Err(self.failed("look at", name, source)),
        }
        unlock(top, name);
        let directory = match beneath::open_dir(top, name, Locked::Lift) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(()),
            Err(source) => return Err(self.failed("open", name, source)),
        };
        loop {
            let names = self.names(&directory, name)?;
            if names.is_empty() {
                break;
            }
            for inner in &names {
                let is_dir = beneath::stat(&directory, inner).is_ok_and(|stat| beneath::is_dir(&stat));
                if !is_dir {
                    self.unlink(directory.as_fd(), inner)?;
                } else if rustix::fs::unlinkat(&directory, inner, AtFlags::REMOVEDIR).is_err() {
                    // A directory's owner must be able to write to it to move it elsewhere, since its `..` changes.
                    unlock(directory.as_fd(), inner);
                    let fresh = beneath::fresh_name("removed-");
                    match rustix::fs::renameat_with(&directory, inner, top, &fresh, RenameFlags::NOREPLACE) {
                        Ok(()) | Err(Errno::NOENT) => {}
                        Err(source) => return Err(self.failed("move", inner, source)),
                    }
                }
            }
        }
        drop(directory);
        self.rmdir(top, name)
    }

    /// Some names of a directory; one that was removed while open has none.
    fn names(&self, directory: impl AsFd, name: &OsStr) -> Result<Vec<OsString>, RemoveError> {
        match beneath::some_names(directory, BATCH) {
            Err(Errno::NOENT) => Ok(Vec::new()),
            other => other.map_err(|source| self.failed("list", name, source)),
        }
    }

    fn unlink(&self, parent: BorrowedFd<'_>, name: &OsStr) -> Result<(), RemoveError> {
        self.retried(parent, name, AtFlags::empty())
    }

    fn rmdir(&self, parent: BorrowedFd<'_>, name: &OsStr) -> Result<(), RemoveError> {
        self.retried(parent, name, AtFlags::REMOVEDIR)
    }

    fn retried(&self, parent: BorrowedFd<'_>, name: &OsStr, flags: AtFlags) -> Result<(), RemoveError> {
        match rustix::fs::unlinkat(parent, name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::PERM | Errno::ACCESS) => {
                clear_flags(parent, name);
                rustix::fs::unlinkat(parent, name, flags).map_err(|source| self.failed("remove", name, source))
            }
            Err(source) => Err(self.failed("remove", name, source)),
        }
    }

    fn failed(&self, step: &'static str, name: &OsStr, source: Errno) -> RemoveError {
        RemoveError::Entry { step, path: shown(self.path), name: shown(Path::new(name)), source }
    }
}

/// Makes a directory ours to empty. A failure shows when it is emptied.
fn unlock(parent: BorrowedFd<'_>, name: &OsStr) {
    let Ok(handle) = beneath::open_handle(parent, name) else { return };
    let Ok(stat) = rustix::fs::fstat(&handle) else { return };
    if stat.st_mode & 0o700 != 0o700 {
        let _ = beneath::chmod_handle(handle.as_fd(), Mode::RWXU);
    }
    clear_flags(parent, name);
}

/// Takes the immutable and append-only flags off a file or directory and off its parent, where we may.
fn clear_flags(parent: BorrowedFd<'_>, name: &OsStr) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let clear = |fd: BorrowedFd<'_>| {
        if let Ok(flags) = rustix::fs::ioctl_getflags(fd)
            && flags.intersects(IFlags::IMMUTABLE | IFlags::APPEND)
        {
            let _ = rustix::fs::ioctl_setflags(fd, flags - (IFlags::IMMUTABLE | IFlags::APPEND));
        }
    };
    clear(parent);
    if let Ok(directory) = beneath::open_dir(parent, name, Locked::Leave) {
        clear(directory.as_fd());
    } else if let Ok((file, _)) = beneath::open_file(parent, name, Locked::Leave) {
        clear(file.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::workspace::testing::{Overlay, as_ordinary_user, base_of_ordinary_user, run};

    #[test]
    fn hostile_trees_go_and_nothing_else() {
        let base = tempfile::tempdir().unwrap();
        let (tree, outside) = (base.path().join("tree"), base.path().join("outside"));
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("keep"), "x").unwrap();
        fs::create_dir(&tree).unwrap();
        symlink(&outside, tree.join("link")).unwrap();
        let script = format!(
            "cd '{}'; mkfifo p; mkdir -p a/b/c full; touch a/b/f $'odd\\n\\xff' {}; chmod 0 a/b/c a/b/f a/b a; \
             for i in $(seq 5000); do echo >full/$i; done; touch fixed; chattr +i fixed; mkdir pinned; touch pinned/x; chattr +i pinned",
            tree.display(),
            "n".repeat(255)
        );
        run("bash", &["-ec", &script]);
        remove_tree(&tree).unwrap();
        assert!(!tree.exists() && outside.join("keep").exists());
        remove_tree(&tree).unwrap();
        symlink(&outside, base.path().join("link")).unwrap();
        remove_tree(&base.path().join("link")).unwrap();
        assert!(outside.join("keep").exists() && fs::symlink_metadata(base.path().join("link")).is_err());
        assert!(matches!(remove_tree(Path::new("/")), Err(RemoveError::BadPath { .. })));
        assert!(matches!(remove_tree(Path::new("..")), Err(RemoveError::BadPath { .. })));
    }

    #[test]
    fn depth_does_not_matter() {
        let base = tempfile::tempdir().unwrap();
        let script = "import os,sys\nos.chdir(sys.argv[1]); os.mkdir('tree'); os.chdir('tree')\nfor i in range(5000):\n os.mkdir('d'); os.chdir('d')\n";
        run("python3", &["-c", script, base.path().to_str().unwrap()]);
        remove_tree(&base.path().join("tree")).unwrap();
        assert!(!base.path().join("tree").exists());
    }

    #[test]
    fn an_ordinary_user_removes_what_an_overlay_left() {
        let overlay = Overlay::new("echo a >a; mkdir d; echo b >d/b");
        overlay.inside("rm a; rm -r d; mkdir d; mkdir -p x/y/z; chmod 0 x/y/z x/y x");
        as_ordinary_user(&["workspace::remove::tests::as_an_ordinary_user", "--ignored"], overlay.base.path());
        assert!(!overlay.upper.exists() && !overlay.base.path().join("work").exists());
    }

    #[test]
    #[ignore = "started by another test, as another user"]
    fn as_an_ordinary_user() {
        let base = base_of_ordinary_user();
        remove_tree(&base.join("upper")).unwrap();
        remove_tree(&base.join("work")).unwrap();
    }
}
