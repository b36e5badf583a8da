//! Directories that nobody else may enter: made, or checked and tightened, through one descriptor.
//!
//! A crate of its own so that what keeps private files (the ledger) need not build what reads settings and rules. Threat assumption: other users of
//! the machine may have put something in the directory's place; a link, a file or another user's directory is refused. No particular kernel is
//! needed.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use stockade_core::escape::escape_bytes;

/// Why a directory cannot be ours alone.
#[derive(Debug, thiserror::Error)]
pub enum PrivateDirError {
    /// It cannot be made.
    #[error("cannot create directory `{}`", shown(.0))]
    Create(PathBuf, #[source] io::Error),
    /// It cannot be looked at.
    #[error("cannot open directory `{}`", shown(.0))]
    Open(PathBuf, #[source] io::Error),
    /// A link leads somewhere that others may choose.
    #[error("`{}` is a symbolic link or not a directory; a private directory is needed there", shown(.0))]
    NotADirectory(PathBuf),
    /// Somebody else's.
    #[error("directory `{}` belongs to user {owner}, not to user {us}", shown(.path))]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who runs Stockade.
        us: u32,
    },
    /// Others may enter and that cannot be changed.
    #[error("cannot make directory `{}` private", shown(.0))]
    Tighten(PathBuf, #[source] io::Error),
}

/// Makes `path` a directory of mode 0700 that belongs to the current user; missing parents are made 0700 too.
///
/// An existing one of ours that others may enter is tightened. A symbolic link, or another user's directory, is an error.
pub fn ensure_private_dir(path: &Path) -> Result<(), PrivateDirError> {
    match std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(PrivateDirError::NotADirectory(path.to_owned())),
        Err(error) => return Err(PrivateDirError::Create(path.to_owned(), error)),
    }
    // Everything below goes through one descriptor, so that what was checked is what is changed.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP => PrivateDirError::NotADirectory(path.to_owned()),
        other => PrivateDirError::Open(path.to_owned(), other.into()),
    })?;
    let found = rustix::fs::fstat(&directory).map_err(|errno| PrivateDirError::Open(path.to_owned(), errno.into()))?;
    let us = rustix::process::geteuid().as_raw();
    if found.st_uid != us {
        return Err(PrivateDirError::NotOurs { path: path.to_owned(), owner: found.st_uid, us });
    }
    if found.st_mode & 0o7777 != 0o700 {
        rustix::fs::fchmod(&directory, Mode::RWXU).map_err(|errno| PrivateDirError::Tighten(path.to_owned(), errno.into()))?;
    }
    Ok(())
}

fn shown(path: &Path) -> String {
    escape_bytes(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_missing_one_is_made_with_its_parents() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b");
        ensure_private_dir(&path).unwrap();
        assert_eq!((mode(&path), mode(&root.path().join("a"))), (0o700, 0o700));
        ensure_private_dir(&path).unwrap();
    }

    #[test]
    fn an_open_one_of_ours_is_tightened() {
        let root = tempfile::tempdir().unwrap();
        for open in [0o755, 0o770, 0o707, 0o2700] {
            std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(open)).unwrap();
            ensure_private_dir(root.path()).unwrap();
            assert_eq!(mode(root.path()), 0o700, "{open:o}");
        }
    }

    #[test]
    fn links_files_and_strangers_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let (real, link, dangling, file) =
            (root.path().join("real"), root.path().join("link"), root.path().join("dangling"), root.path().join("file"));
        std::fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        symlink("nowhere", &dangling).unwrap();
        std::fs::write(&file, "").unwrap();
        for refused in [&link, &dangling, &file] {
            let error = ensure_private_dir(refused).unwrap_err();
            assert!(matches!(error, PrivateDirError::NotADirectory(_)), "{}: {error}", refused.display());
        }
        std::os::unix::fs::chown(&real, Some(65534), None).unwrap();
        assert!(matches!(ensure_private_dir(&real), Err(PrivateDirError::NotOurs { owner: 65534, .. })));
        assert_eq!(mode(&real), 0o755, "another's directory is left as it was");
    }
}
