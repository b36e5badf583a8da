//! Finding the workspace.
//!
//! The default is the git top level that contains the current directory, else the current directory itself; a person may
//! name another. The file system's root, the home directory and what contains it are refused, and so are the kernel's
//! own file systems. No git program is run: the few files that tell are read here and in [`super::git`].

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use stockade_core::path::{BadPath, SafePath};

use super::{git, shown};

/// Where the kernel's own file systems are.
const KERNEL_TREES: [&str; 3] = ["/proc", "/sys", "/dev"];

/// A workspace that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Its real path: no component of it is a link.
    pub path: SafePath,
    /// The git directory that a linked worktree or a submodule shares, where it lies outside the workspace.
    pub git_common: Option<SafePath>,
}

/// Why there is no workspace.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The current directory is gone or cannot be reached.
    #[error("cannot tell the current directory `{path}`")]
    CurrentDirectory {
        /// The directory.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The path is malformed.
    #[error("bad workspace path")]
    BadPath(#[source] BadPath),
    /// Nothing is there.
    #[error("workspace `{path}` does not exist")]
    Missing {
        /// The path.
        path: String,
    },
    /// It cannot be looked at.
    #[error("cannot look at workspace `{path}`")]
    Unreachable {
        /// The path.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A link, which could lead elsewhere tomorrow.
    #[error("workspace `{path}` is a symbolic link")]
    Link {
        /// The path.
        path: String,
        /// Where it leads now.
        real: Option<String>,
    },
    /// A file, not a directory.
    #[error("workspace `{path}` is a file, not a directory")]
    File {
        /// The path.
        path: String,
    },
    /// A FIFO, socket or device.
    #[error("workspace `{path}` is a {what}, not a directory")]
    Special {
        /// The path.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// The root of everything.
    #[error("`/` cannot be a workspace")]
    Root,
    /// The home directory.
    #[error("the home directory `{path}` cannot be a workspace")]
    Home {
        /// The path.
        path: String,
    },
    /// A directory that contains the home directory.
    #[error("`{path}` contains the home directory and cannot be a workspace")]
    ContainsHome {
        /// The path.
        path: String,
    },
    /// In a file system of the kernel.
    #[error("workspace `{path}` lies beneath `{tree}`, which belongs to the kernel")]
    Kernel {
        /// The path.
        path: String,
        /// The tree.
        tree: &'static str,
    },
}

impl WorkspaceError {
    /// What would fix it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::CurrentDirectory { .. } => Some("change to a directory that exists, or name one with `--workspace DIR`".into()),
            Self::BadPath(BadPath::ParentDir(_)) => Some("name the directory without `..`".into()),
            Self::BadPath(_) | Self::Unreachable { .. } => None,
            Self::Missing { .. } => Some("create the directory first, or name another with `--workspace DIR`".into()),
            Self::Link { real, .. } => real.as_ref().map(|real| format!("name the real path: `--workspace {real}`")),
            Self::File { .. } | Self::Special { .. } => Some("name the directory that contains it with `--workspace DIR`".into()),
            Self::Root | Self::Home { .. } | Self::ContainsHome { .. } | Self::Kernel { .. } => {
                Some("change to a project directory, or name one with `--workspace DIR`".into())
            }
        }
    }
}

/// Finds the workspace for a call made in `cwd` by a person whose home directory is `home`.
pub fn locate(cwd: &Path, explicit: Option<&Path>, home: &Path) -> Result<Located, WorkspaceError> {
    let home = Home::new(home);
    let path = match explicit {
        Some(path) => named(cwd, path)?,
        None => default(cwd, &home)?,
    };
    refuse(&path, &home)?;
    let git_common = git::common_directory(&path).and_then(|common| SafePath::new(common).ok());
    let path = SafePath::new(&path).map_err(WorkspaceError::BadPath)?;
    let git_common = git_common.filter(|common| !common.is_beneath(&path));
    Ok(Located { path, git_common })
}

/// The directory that a person named.
fn named(cwd: &Path, path: &Path) -> Result<PathBuf, WorkspaceError> {
    if path.as_os_str().is_empty() {
        return Err(WorkspaceError::BadPath(BadPath::Empty));
    }
    let safe = SafePath::new(cwd.join(path)).map_err(WorkspaceError::BadPath)?;
    let text = safe.to_string();
    let found = match std::fs::symlink_metadata(&safe) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(WorkspaceError::Missing { path: text }),
        Err(source) => return Err(WorkspaceError::Unreachable { path: text, source }),
    };
    let kind = found.file_type();
    if kind.is_symlink() {
        let real = std::fs::canonicalize(&safe).ok().map(|real| shown(&real));
        return Err(WorkspaceError::Link { path: text, real });
    }
    if kind.is_file() {
        return Err(WorkspaceError::File { path: text });
    }
    if !kind.is_dir() {
        let what = if kind.is_fifo() {
            "FIFO"
        } else if kind.is_socket() {
            "socket"
        } else {
            "device"
        };
        return Err(WorkspaceError::Special { path: text, what });
    }
    std::fs::canonicalize(&safe).map_err(|source| WorkspaceError::Unreachable { path: text, source })
}

/// The git top level around the current directory, else the current directory.
fn default(cwd: &Path, home: &Home) -> Result<PathBuf, WorkspaceError> {
    let cwd = std::fs::canonicalize(cwd).map_err(|source| WorkspaceError::CurrentDirectory { path: shown(cwd), source })?;
    // People keep their home directory under git; that must not make all of it the workspace of a directory in it.
    let top = cwd.ancestors().find(|directory| git::is_top_level(directory)).filter(|top| refuse(top, home).is_ok());
    Ok(top.map_or_else(|| cwd.clone(), Path::to_path_buf))
}

/// Refuses directories that hold more than a project.
fn refuse(path: &Path, home: &Home) -> Result<(), WorkspaceError> {
    if path == Path::new("/") {
        return Err(WorkspaceError::Root);
    }
    if home.is(path) {
        return Err(WorkspaceError::Home { path: shown(path) });
    }
    if home.is_inside(path) {
        return Err(WorkspaceError::ContainsHome { path: shown(path) });
    }
    match KERNEL_TREES.into_iter().find(|tree| path.starts_with(tree)) {
        Some(tree) => Err(WorkspaceError::Kernel { path: shown(path), tree }),
        None => Ok(()),
    }
}

/// The home directory, under every name it has.
struct Home {
    given: PathBuf,
    real: PathBuf,
}

impl Home {
    fn new(home: &Path) -> Self {
        Self { given: home.to_path_buf(), real: std::fs::canonicalize(home).unwrap_or_else(|_| home.to_path_buf()) }
    }

    fn is(&self, path: &Path) -> bool {
        path == self.given || path == self.real || inode(path).is_some_and(|this| inode(&self.real) == Some(this))
    }

    /// Whether `path` is an ancestor, by name or through a bind mount.
    fn is_inside(&self, path: &Path) -> bool {
        self.given.starts_with(path)
            || self.real.starts_with(path)
            || inode(path).is_some_and(|this| self.real.ancestors().skip(1).any(|ancestor| inode(ancestor) == Some(this)))
    }
}

/// The device and the inode, where something is there.
fn inode(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::workspace::testing::run;

    struct Place {
        _keep: tempfile::TempDir,
        base: PathBuf,
        home: PathBuf,
    }

    fn place() -> Place {
        let keep = tempfile::tempdir().unwrap();
        let base = keep.path().canonicalize().unwrap();
        let home = base.join("users/me");
        fs::create_dir_all(&home).unwrap();
        Place { _keep: keep, base, home }
    }

    fn repository(at: &Path) {
        fs::create_dir_all(at).unwrap();
        run("git", &["init", "-q", at.to_str().unwrap()]);
    }

    #[test]
    fn the_default_is_the_git_top_level_else_the_current_directory() {
        let place = place();
        let project = place.home.join("project");
        repository(&project);
        let deep = project.join("a/b");
        fs::create_dir_all(&deep).unwrap();
        let found = locate(&deep, None, &place.home).unwrap();
        assert_eq!(found, Located { path: SafePath::new(&project).unwrap(), git_common: None });

        let plain = place.home.join("plain/deep");
        fs::create_dir_all(&plain).unwrap();
        assert_eq!(locate(&plain, None, &place.home).unwrap().path.as_path(), plain);
        // An empty `.git` is no repository, to git as to us.
        fs::create_dir(place.home.join("plain/.git")).unwrap();
        assert_eq!(locate(&plain, None, &place.home).unwrap().path.as_path(), plain);
    }

    #[test]
    fn a_repository_in_the_home_directory_does_not_swallow_it() {
        let place = place();
        repository(&place.home);
        let inner = place.home.join("inner");
        fs::create_dir(&inner).unwrap();
        assert_eq!(locate(&inner, None, &place.home).unwrap().path.as_path(), inner);
        assert!(matches!(locate(&place.home, None, &place.home), Err(WorkspaceError::Home { .. })));
        assert!(matches!(locate(&place.base, None, &place.home), Err(WorkspaceError::ContainsHome { .. })));
        assert!(matches!(locate(Path::new("/"), None, &place.home), Err(WorkspaceError::Root)));
    }

    #[test]
    fn a_linked_worktree_brings_its_common_directory() {
        let place = place();
        let main = place.home.join("main");
        repository(&main);
        let git = |args: &[&str]| {
            let mut all = vec!["-C", main.to_str().unwrap(), "-c", "user.name=a", "-c", "user.email=a@b"];
            all.extend(args);
            run("git", &all);
        };
        git(&["commit", "-q", "--allow-empty", "-m", "x"]);
        git(&["worktree", "add", "-q", "../linked"]);
        let linked = place.home.join("linked");
        let found = locate(&linked, None, &place.home).unwrap();
        assert_eq!(found.path.as_path(), linked);
        assert_eq!(found.git_common.unwrap().as_path(), main.join(".git"));

        // A directory that merely claims to be a worktree of it gets nothing.
        let liar = place.home.join("liar");
        fs::create_dir(&liar).unwrap();
        fs::copy(linked.join(".git"), liar.join(".git")).unwrap();
        assert_eq!(locate(&liar, None, &place.home).unwrap().git_common, None);
        fs::write(liar.join(".git"), format!("gitdir: {}\n", main.join(".git").display())).unwrap();
        assert_eq!(locate(&liar, None, &place.home).unwrap().git_common, None);
        fs::write(liar.join(".git"), b"gitdir: /etc\n").unwrap();
        assert_eq!(locate(&liar, None, &place.home).unwrap().git_common, None);
    }

    #[test]
    fn a_submodule_brings_its_git_directory() {
        let place = place();
        let library = place.home.join("library");
        repository(&library);
        run(
            "git",
            &["-C", library.to_str().unwrap(), "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
        );
        let parent = place.home.join("parent");
        repository(&parent);
        run(
            "git",
            &[
                "-C",
                parent.to_str().unwrap(),
                "-c",
                "protocol.file.allow=always",
                "submodule",
                "-q",
                "add",
                library.to_str().unwrap(),
                "sub",
            ],
        );
        let found = locate(&parent.join("sub"), None, &place.home).unwrap();
        assert_eq!(found.path.as_path(), parent.join("sub"));
        assert_eq!(found.git_common.unwrap().as_path(), parent.join(".git/modules/sub"));
    }

    #[test]
    fn named_directories_are_checked_one_by_one() {
        let place = place();
        let project = place.home.join("project");
        fs::create_dir(&project).unwrap();
        fs::write(place.home.join("file"), b"").unwrap();
        run("mkfifo", &[place.home.join("fifo").to_str().unwrap()]);
        symlink(&project, place.home.join("link")).unwrap();
        symlink(&place.home, place.base.join("parent-link")).unwrap();
        let at = |text: &str| locate(&place.home, Some(Path::new(text)), &place.home);

        assert_eq!(at("project/").unwrap().path.as_path(), project);
        let through = place.base.join("parent-link/project");
        assert_eq!(at(through.to_str().unwrap()).unwrap().path.as_path(), project, "links on the way are resolved");
        assert!(matches!(at("absent"), Err(WorkspaceError::Missing { .. })));
        assert!(matches!(at("file"), Err(WorkspaceError::File { .. })));
        assert!(matches!(at("file/x"), Err(WorkspaceError::Unreachable { .. })));
        assert!(matches!(at("fifo"), Err(WorkspaceError::Special { what: "FIFO", .. })));
        let link = at("link/").unwrap_err();
        assert!(link.hint().unwrap().contains(project.to_str().unwrap()), "{link}");
        assert!(matches!(at("/"), Err(WorkspaceError::Root)));
        assert!(matches!(at("."), Err(WorkspaceError::Home { .. })));
        assert!(matches!(at(place.base.to_str().unwrap()), Err(WorkspaceError::ContainsHome { .. })));
        assert!(matches!(at("/proc/self/task"), Err(WorkspaceError::Kernel { tree: "/proc", .. })));
        assert!(matches!(at("/sys/kernel"), Err(WorkspaceError::Kernel { tree: "/sys", .. })));
        assert!(matches!(at("/dev/shm"), Err(WorkspaceError::Kernel { tree: "/dev", .. })));
        for bad in ["..", "project/..", "", "a\nb", "a\0b", &"a/".repeat(2500), &"a".repeat(256)] {
            assert!(matches!(at(bad), Err(WorkspaceError::BadPath(_))), "{bad:?}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_kept() {
        let place = place();
        let odd = place.home.join(OsStr::from_bytes(b"od\xffd"));
        fs::create_dir(&odd).unwrap();
        assert_eq!(locate(&odd, None, &place.home).unwrap().path.as_path(), odd);
        assert_eq!(locate(&place.home, Some(&odd), &place.home).unwrap().path.as_path(), odd);
    }
}
