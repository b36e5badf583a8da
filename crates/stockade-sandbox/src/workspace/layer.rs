//! An overlay's upper directory, read as a list of changes against the workspace below it.
//!
//! Owns the meaning of overlayfs's marks (whiteouts, opaque directories) and the comparison. It does not show or apply
//! anything. The upper tree belongs to a sandbox and may hold anything: links to elsewhere, FIFOs, endless sparse files,
//! directories a thousand levels deep, names that are not text. Both trees are walked by descriptor without following
//! links; depth, count, bytes of path and bytes read are bounded, and a tree beyond the bounds is an error, not a short list.
//! A file that is too large to read is listed without a digest, which `apply` refuses.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use stockade_core::result::ChangeKind;

use super::beneath::{self, Directory, Locked};
use super::change::{Entry, EntryType, LayerChange, Origin, Stamp};
use super::digest::{self, ContentDigest};
use super::protected::{self, GIT_SHAPE, GIT_SHAPED, GIT_SHAPED_WHY};
use super::rename::join_renames;
use super::shown;

/// How far a walk goes.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Levels of directories.
    pub depth: usize,
    /// Entries looked at in both trees.
    pub entries: usize,
    /// Bytes of path over all changes.
    pub path_bytes: usize,
    /// Bytes read over all files; those beyond are listed without a digest.
    pub read_bytes: u64,
}

impl Bounds {
    /// What a workspace of any real size stays within.
    pub const DEFAULT: Self = Self { depth: 256, entries: 1_000_000, path_bytes: 128 << 20, read_bytes: 32 << 30 };
}

/// Why a layer could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The top of one of the trees.
    #[error("cannot open `{path}`")]
    Root {
        /// The directory.
        path: String,
        /// What the system said.
        #[source]
        source: Errno,
    },
    /// Something below.
    #[error("cannot {step} `{path}`")]
    Entry {
        /// What was tried.
        step: &'static str,
        /// Relative to the workspace.
        path: String,
        /// What the system said.
        #[source]
        source: Errno,
    },
    /// Deeper than the bound.
    #[error("`{path}…` is more than {limit} directories deep")]
    TooDeep {
        /// Its beginning.
        path: String,
        /// The bound.
        limit: usize,
    },
    /// More than the bound.
    #[error("more than {limit} entries changed")]
    TooMany {
        /// The bound.
        limit: usize,
    },
    /// Paths that together are longer than the bound.
    #[error("the changed paths are longer than {limit} bytes together")]
    TooLong {
        /// The bound.
        limit: usize,
    },
    /// A mark of an overlay feature that Stockade never turns on.
    #[error("`{path}` has the overlay mark `{mark}`, which is not understood")]
    Mark {
        /// Relative to the workspace.
        path: String,
        /// The attribute.
        mark: &'static str,
    },
}

impl LayerError {
    /// What would help.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::TooDeep { .. } | Self::TooMany { .. } | Self::TooLong { .. } => Some(
                "remove what is not needed inside the sandbox, copy single files out with `stockade sandbox cp`, or discard the changes",
            ),
            Self::Root { .. } | Self::Entry { .. } | Self::Mark { .. } => None,
        }
    }
}

/// An upper directory and the workspace it lies over.
#[derive(Debug, Clone)]
pub struct Layer {
    /// What the sandbox wrote.
    pub upper: PathBuf,
    /// The host's directory.
    pub lower: PathBuf,
    /// How far to go.
    pub bounds: Bounds,
}

impl Layer {
    /// A layer with the default bounds.
    pub fn new(upper: impl Into<PathBuf>, lower: impl Into<PathBuf>) -> Self {
        Self { upper: upper.into(), lower: lower.into(), bounds: Bounds::DEFAULT }
    }

    /// Every change, sorted by path, parents before what is in them. What was copied up but is the same is no change.
    pub fn changes(&self) -> Result<Vec<LayerChange>, LayerError> {
        let root = |path: &Path| beneath::open_root(path).map_err(|source| LayerError::Root { path: shown(path), source });
        let (upper, lower) = (root(&self.upper)?, root(&self.lower)?);
        let mut walk = Walk {
            bounds: self.bounds,
            entries: 0,
            path_bytes: 0,
            unread: self.bounds.read_bytes,
            digests: HashMap::new(),
            git_shaped: BTreeSet::new(),
            changes: Vec::new(),
        };
        walk.merge(upper.as_fd(), Some(lower.as_fd()), Path::new(""), Cover::Merged)?;
        Ok(walk.finish())
    }
}

/// Whether the lower directory shows through the upper one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cover {
    Merged,
    Opaque,
}

struct Walk {
    bounds: Bounds,
    entries: usize,
    path_bytes: usize,
    unread: u64,
    /// Hard links to one inode are read once.
    digests: HashMap<(u64, u64), ContentDigest>,
    /// Directories that git would take for repositories.
    git_shaped: BTreeSet<PathBuf>,
    changes: Vec<LayerChange>,
}

impl Walk {
    /// Compares a directory of the upper tree with its counterpart.
    fn merge(&mut self, upper: BorrowedFd<'_>, lower: Option<BorrowedFd<'_>>, at: &Path, cover: Cover) -> Result<(), LayerError> {
        self.check_depth(at)?;
        // A directory made inside an opaque one is not marked itself, yet nothing below shows through it either.
        let cover = if cover == Cover::Opaque || is_opaque(upper, at)? { Cover::Opaque } else { Cover::Merged };
        let names = self.names(upper, at)?;
        self.note_git_shape(upper, lower, &names, at);
        for name in &names {
            self.compare(upper, lower, at, name, cover)?;
        }
        if let (Cover::Opaque, Some(lower)) = (cover, lower) {
            let kept: BTreeSet<&OsString> = names.iter().collect();
            for name in self.names(lower, at)?.iter().filter(|name| !kept.contains(name)) {
                let stat = beneath::stat(lower, name).map_err(|source| failed("look at", &at.join(name), source))?;
                self.delete(lower, at, name, &stat)?;
            }
        }
        Ok(())
    }

    /// Compares one entry of the upper tree with its counterpart.
    fn compare(
        &mut self,
        upper: BorrowedFd<'_>,
        lower: Option<BorrowedFd<'_>>,
        at: &Path,
        name: &OsStr,
        cover: Cover,
    ) -> Result<(), LayerError> {
        let path = at.join(name);
        let stat = beneath::stat(upper, name).map_err(|source| failed("look at", &path, source))?;
        let under = match lower {
            Some(lower) => {
                beneath::stat_if_there(lower, name).map_err(|source| failed("look at", &path, source))?.map(|stat| (lower, stat))
            }
            None => None,
        };
        if is_whiteout(upper, name, &stat) {
            return match under {
                Some((lower, under)) => self.delete(lower, at, name, &under),
                None => Ok(()),
            };
        }
        let kind = EntryType::of(&stat);
        let new = self.describe(upper, &path, name, &stat, Locked::Lift)?;
        let old = match &under {
            Some((lower, under)) => Some(self.describe(*lower, &path, name, under, Locked::Leave)?),
            None => None,
        };
        let both_directories = kind == EntryType::Directory && old.as_ref().is_some_and(|old| old.kind == EntryType::Directory);
        let origin = if kind == EntryType::File && old.is_none() { origin(upper, name) } else { Origin::Sandbox };
        if let (Some((lower, under)), Some(EntryType::Directory), false) = (&under, old.as_ref().map(|old| old.kind), both_directories) {
            self.delete_children(*lower, &path, name, under)?;
        }
        if let Some(kind) = difference(old.as_ref(), &new) {
            self.push(LayerChange { path: path.clone(), kind, from: None, old, new: Some(new), origin, protected: None })?;
        }
        if kind == EntryType::Directory {
            let inner = open(upper, name, &path, Locked::Lift)?;
            let beneath = match under {
                Some((lower, _)) if both_directories => Some(open(lower, name, &path, Locked::Leave)?),
                _ => None,
            };
            self.merge(inner.as_fd(), beneath.as_ref().map(AsFd::as_fd), &path, cover)?;
        }
        Ok(())
    }

    /// Lists an entry of the lower tree, and all in it, as deleted.
    fn delete(&mut self, lower: BorrowedFd<'_>, at: &Path, name: &OsStr, stat: &Stat) -> Result<(), LayerError> {
        let path = at.join(name);
        if beneath::is_dir(stat) {
            self.delete_children(lower, &path, name, stat)?;
        }
        let old = self.describe(lower, &path, name, stat, Locked::Leave)?;
        let kind = ChangeKind::Deleted;
        self.push(LayerChange { path, kind, from: None, old: Some(old), new: None, origin: Origin::Sandbox, protected: None })
    }

    fn delete_children(&mut self, lower: BorrowedFd<'_>, path: &Path, name: &OsStr, stat: &Stat) -> Result<(), LayerError> {
        debug_assert!(beneath::is_dir(stat));
        self.check_depth(path)?;
        let inner = open(lower, name, path, Locked::Leave)?;
        for name in self.names(inner.as_fd(), path)? {
            let stat = beneath::stat(&inner, &name).map_err(|source| failed("look at", &path.join(&name), source))?;
            self.delete(inner.as_fd(), path, &name, &stat)?;
        }
        Ok(())
    }

    fn describe(&mut self, parent: BorrowedFd<'_>, path: &Path, name: &OsStr, stat: &Stat, locked: Locked) -> Result<Entry, LayerError> {
        let kind = EntryType::of(stat);
        let digest = match kind {
            EntryType::File => self.digest(parent, path, name, stat, locked)?,
            EntryType::Symlink => {
                let text = beneath::read_link(parent, name).map_err(|source| failed("read the link", path, source))?;
                Some(ContentDigest::of(&text))
            }
            EntryType::Directory | EntryType::Special => None,
        };
        Ok(Entry { kind, mode: stat.st_mode & 0o7777, size: beneath::size(stat), digest, stamp: Stamp::of(stat) })
    }

    fn digest(
        &mut self,
        parent: BorrowedFd<'_>,
        path: &Path,
        name: &OsStr,
        stat: &Stat,
        locked: Locked,
    ) -> Result<Option<ContentDigest>, LayerError> {
        let inode = (stat.st_dev, stat.st_ino);
        if let Some(known) = self.digests.get(&inode) {
            return Ok(Some(*known));
        }
        let size = beneath::size(stat);
        if size > self.unread {
            return Ok(None);
        }
        let fd = match beneath::open_file(parent, name, locked) {
            Ok((fd, _)) => fd,
            // The host's own unreadable files are listed all the same; what the sandbox left can always be opened.
            Err(Errno::ACCESS | Errno::PERM) => return Ok(None),
            Err(source) => return Err(failed("open", path, source)),
        };
        if locked == Locked::Lift {
            refuse_marks(fd.as_fd(), path, &["user.overlay.metacopy", "trusted.overlay.metacopy"])?;
        }
        let digest = digest::of_file(&fd, self.unread).map_err(|source| failed("read", path, source))?;
        self.unread = self.unread.saturating_sub(size);
        if let (Some(digest), true) = (digest, stat.st_nlink > 1) {
            self.digests.insert(inode, digest);
        }
        Ok(digest)
    }

    /// Remembers directories that have become repositories by another name: git runs what their settings name.
    fn note_git_shape(&mut self, upper: BorrowedFd<'_>, lower: Option<BorrowedFd<'_>>, names: &[OsString], at: &Path) {
        if !names.iter().any(|name| GIT_SHAPE.iter().chain(&GIT_SHAPED).any(|git| name == git)) {
            return;
        }
        let there = |name: &str| {
            let name = OsStr::new(name);
            beneath::stat(upper, name).is_ok_and(|stat| !is_whiteout(upper, name, &stat))
                || lower.is_some_and(|lower| beneath::stat(lower, name).is_ok())
        };
        if protected::is_git_shaped(there) {
            self.git_shaped.insert(at.to_path_buf());
        }
    }

    fn names(&mut self, directory: BorrowedFd<'_>, at: &Path) -> Result<Vec<OsString>, LayerError> {
        let left = self.bounds.entries.saturating_sub(self.entries);
        let mut names = beneath::some_names(directory, left + 1).map_err(|source| failed("list", at, source))?;
        if names.len() > left {
            return Err(LayerError::TooMany { limit: self.bounds.entries });
        }
        self.entries += names.len();
        names.sort();
        Ok(names)
    }

    fn check_depth(&self, at: &Path) -> Result<(), LayerError> {
        if at.components().count() <= self.bounds.depth {
            return Ok(());
        }
        let start: PathBuf = at.components().take(8).collect();
        Err(LayerError::TooDeep { path: shown(&start), limit: self.bounds.depth })
    }

    fn push(&mut self, change: LayerChange) -> Result<(), LayerError> {
        self.path_bytes += change.path.as_os_str().len();
        if self.path_bytes > self.bounds.path_bytes {
            return Err(LayerError::TooLong { limit: self.bounds.path_bytes });
        }
        self.changes.push(change);
        Ok(())
    }

    fn finish(mut self) -> Vec<LayerChange> {
        for change in &mut self.changes {
            change.protected = protection(&change.path, change.old.as_ref(), change.new.as_ref(), &self.git_shaped);
        }
        let mut changes = join_renames(self.changes);
        changes.sort_by(|one, other| one.path.cmp(&other.path));
        changes
    }
}

/// Why a change of this path is protected.
fn protection(path: &Path, old: Option<&Entry>, new: Option<&Entry>, git_shaped: &BTreeSet<PathBuf>) -> Option<&'static str> {
    let is_directory = |entry: Option<&Entry>| entry.is_some_and(|entry| entry.kind == EntryType::Directory);
    // A directory that stays or becomes one is ordinary; one that is replaced or removed takes protected paths with it.
    let stays = is_directory(new) && (old.is_none() || is_directory(old));
    let replaced = || if stays { None } else { protected::holds_protected(path) };
    let in_repository = || {
        path.ancestors().skip(1).find_map(|ancestor| {
            let first = path.strip_prefix(ancestor).ok()?.components().next()?;
            (git_shaped.contains(ancestor) && GIT_SHAPED.iter().any(|name| first.as_os_str() == *name)).then_some(GIT_SHAPED_WHY)
        })
    };
    protected::is_protected(path).or_else(replaced).or_else(in_repository)
}

/// How two sides differ, if they do.
fn difference(old: Option<&Entry>, new: &Entry) -> Option<ChangeKind> {
    let Some(old) = old else { return Some(ChangeKind::Added) };
    let same_contents = match new.kind {
        EntryType::Directory | EntryType::Special => true,
        EntryType::File | EntryType::Symlink => old.digest.is_some() && old.digest == new.digest,
    };
    if old.kind != new.kind || !same_contents {
        return Some(ChangeKind::Modified);
    }
    // Applying drops these bits, so what differs in nothing else would stay a change for ever.
    (old.mode != new.mode && old.mode != new.mode & 0o777).then_some(ChangeKind::Mode)
}

/// Whether nothing of the lower directory shows through.
fn is_opaque(directory: BorrowedFd<'_>, at: &Path) -> Result<bool, LayerError> {
    refuse_marks(directory, at, &["user.overlay.redirect", "trusted.overlay.redirect"])?;
    let marked = |name: &str| {
        let mut value = [0_u8; 4];
        matches!(rustix::fs::fgetxattr(directory, name, value.as_mut_slice()), Ok(1)) && value.first() == Some(&b'y')
    };
    Ok(marked("user.overlay.opaque") || marked("trusted.overlay.opaque"))
}

/// Whether an entry of the upper tree says that the lower one is gone.
fn is_whiteout(parent: BorrowedFd<'_>, name: &OsStr, stat: &Stat) -> bool {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::CharacterDevice => stat.st_rdev == 0,
        // Where devices cannot be made, an empty file with a mark stands for one. A sandbox cannot set the mark: inside,
        // overlayfs stores such a name under another.
        FileType::RegularFile if stat.st_size == 0 => beneath::open_file(parent, name, Locked::Lift).is_ok_and(|(fd, _)| {
            ["user.overlay.whiteout", "trusted.overlay.whiteout"]
                .iter()
                .any(|mark| rustix::fs::fgetxattr(&fd, *mark, [0_u8; 4].as_mut_slice()).is_ok())
        }),
        _ => false,
    }
}

fn origin(parent: BorrowedFd<'_>, name: &OsStr) -> Origin {
    let marked = beneath::open_file(parent, name, Locked::Lift).is_ok_and(|(fd, _)| {
        let mut value = [0_u8; 256];
        ["user.overlay.origin", "trusted.overlay.origin"].iter().any(|mark| rustix::fs::fgetxattr(&fd, *mark, value.as_mut_slice()).is_ok())
    });
    if marked { Origin::Host } else { Origin::Sandbox }
}

/// Redirects and metadata-only copies would make the walk compare the wrong files; Stockade never turns them on.
fn refuse_marks(fd: BorrowedFd<'_>, path: &Path, marks: &[&'static str]) -> Result<(), LayerError> {
    for mark in marks {
        match rustix::fs::fgetxattr(fd, *mark, [0_u8; 0].as_mut_slice()) {
            Ok(_) | Err(Errno::RANGE) => return Err(LayerError::Mark { path: shown(path), mark }),
            Err(_) => {}
        }
    }
    Ok(())
}

fn open(parent: BorrowedFd<'_>, name: &OsStr, path: &Path, locked: Locked) -> Result<Directory, LayerError> {
    beneath::open_dir(parent, name, locked).map_err(|source| failed("open", path, source))
}

fn failed(step: &'static str, path: &Path, source: Errno) -> LayerError {
    LayerError::Entry { step, path: shown(path), source }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::workspace::testing::{Overlay, as_ordinary_user, base_of_ordinary_user};

    #[track_caller]
    fn check(prepare: &str, script: &str, expected: &[&str]) {
        let overlay = Overlay::new(prepare);
        overlay.inside(script);
        assert_eq!(overlay.listed(), expected);
    }

    #[test]
    fn every_kind_of_change_is_told() {
        check(
            "echo a >a; echo b >b; echo c >c; echo d >d; mkdir e; echo f >e/f; ln -s a l",
            "echo x >>a; rm b; chmod 755 c; mv d moved; echo n >new; mkdir dir; ln -sfn b l; mkfifo pipe",
            &["modified a", "deleted b", "mode c", "added dir", "modified l", "renamed moved from d", "added new", "added pipe"],
        );
    }

    #[test]
    fn what_was_only_copied_up_is_no_change() {
        check("echo a >a; mkdir d; echo b >d/b; echo c >c", "touch a d/b; chmod 600 c; chmod 644 c; echo b >d/b; mkdir t; rmdir t", &[]);
    }

    #[test]
    fn opaque_and_replaced_directories_are_expanded() {
        check(
            "mkdir -p d/sub e; echo a >d/a; echo b >d/sub/b; echo k >d/sub/k; echo f >e/f; echo g >g",
            "rm -rf d; mkdir d; echo new >d/n; mkdir d/sub; echo k >d/sub/k; rm -rf e; echo file >e; rm g; mkdir g; echo h >g/h",
            &["deleted d/a", "added d/n", "deleted d/sub/b", "modified e", "deleted e/f", "modified g", "added g/h"],
        );
        check("mkdir -p d/x; echo a >d/x/a", "rm -r d", &["deleted d", "deleted d/x", "deleted d/x/a"]);
        check("mkdir d; echo a >d/a", "rm -r d; ln -s /etc d", &["modified d", "deleted d/a"]);
        check("mkdir d; echo hello >d/a", "mv d moved", &["deleted d", "added moved", "renamed moved/a from d/a"]);
    }

    #[test]
    fn whiteouts_by_attribute_are_understood() {
        let overlay = Overlay::new("echo a >a; echo b >b");
        fs::write(overlay.upper.join("a"), b"").unwrap();
        fs::write(overlay.upper.join("b"), b"").unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(overlay.upper.join("a"), "user.overlay.whiteout", b"y", flags).unwrap();
        assert_eq!(overlay.listed(), ["deleted a", "modified b"]);
        rustix::fs::setxattr(&overlay.upper, "user.overlay.redirect", b"/etc", flags).unwrap();
        assert!(matches!(overlay.layer().changes(), Err(LayerError::Mark { .. })));
    }

    #[test]
    fn protected_paths_are_marked_and_their_parents_too() {
        check(
            "mkdir -p .git/hooks .vscode; echo x >.git/config; echo x >.git/HEAD; echo x >.envrc; echo t >.vscode/tasks.json",
            "echo evil >.git/hooks/pre-commit; echo y >.git/HEAD; mv .envrc env; rm -r .vscode; ln -s /tmp .vscode; \
             mkdir -p bare/objects bare/refs; echo x >bare/HEAD; echo evil >bare/config; mkdir .claude; ln -s /tmp .husky; \
             mkdir sub; echo 'gitdir: ../bare' >sub/.git; mkdir -p pkg/.vscode",
            &[
                "added .claude (protected)",
                "deleted .envrc (protected)",
                "modified .git/HEAD",
                "added .git/hooks/pre-commit (protected)",
                "added .husky (protected)",
                "modified .vscode (protected)",
                "deleted .vscode/tasks.json (protected)",
                "added bare",
                "added bare/HEAD",
                "added bare/config (protected)",
                "added bare/objects",
                "added bare/refs",
                "added env",
                "added pkg",
                "added pkg/.vscode",
                "added sub",
                "added sub/.git (protected)",
            ],
        );
    }

    #[test]
    fn modes_and_digests_are_those_of_the_files() {
        let overlay = Overlay::new("echo a >a");
        overlay.inside("echo new >a; chmod 4755 a");
        let changes = overlay.layer().changes().unwrap();
        let [change] = changes.as_slice() else { panic!("{changes:?}") };
        let (old, new) = (change.old.as_ref().unwrap(), change.new.as_ref().unwrap());
        assert_eq!((old.mode, new.mode), (0o644, 0o4755));
        assert_eq!((old.digest, new.digest), (Some(ContentDigest::of(b"a\n")), Some(ContentDigest::of(b"new\n"))));
        assert_eq!(change.to_change().path, "a");
    }

    #[test]
    fn links_in_the_upper_tree_are_never_followed() {
        let overlay = Overlay::new("mkdir d; echo a >d/a");
        let secret = overlay.base.path().join("secret");
        fs::create_dir(&secret).unwrap();
        fs::write(secret.join("key"), b"secret").unwrap();
        std::os::unix::fs::symlink(&secret, overlay.upper.join("d")).unwrap();
        std::os::unix::fs::symlink(secret.join("key"), overlay.upper.join("k")).unwrap();
        assert_eq!(overlay.listed(), ["modified d", "deleted d/a", "added k"]);
        // Nor in the host's tree, when a directory there became a link.
        let overlay = Overlay::new("mkdir d; echo a >d/a");
        overlay.inside("echo b >d/b");
        fs::remove_dir_all(overlay.lower.join("d")).unwrap();
        std::os::unix::fs::symlink(&secret, overlay.lower.join("d")).unwrap();
        assert_eq!(overlay.listed(), ["modified d", "added d/b"]);
    }

    #[test]
    fn hostile_trees_are_bounded() {
        let overlay = Overlay::new("true");
        let deep = format!("{}/{}", overlay.upper.display(), "d/".repeat(300));
        fs::create_dir_all(&deep).unwrap();
        assert!(matches!(overlay.layer().changes(), Err(LayerError::TooDeep { .. })));

        let overlay = Overlay::new("true");
        overlay.inside("touch a b c d; truncate -s 7E huge 2>/dev/null || truncate -s 15T huge");
        let mut layer = overlay.layer();
        let changes = layer.changes().unwrap();
        let huge = changes.iter().find(|change| change.path == Path::new("huge")).unwrap();
        assert_eq!(huge.new.as_ref().unwrap().digest, None);
        layer.bounds.entries = 4;
        assert!(matches!(layer.changes(), Err(LayerError::TooMany { limit: 4 })));
        layer.bounds = Bounds { path_bytes: 4, ..Bounds::DEFAULT };
        assert!(matches!(layer.changes(), Err(LayerError::TooLong { .. })));
    }

    #[test]
    fn hostile_names_are_kept_as_bytes() {
        let overlay = Overlay::new("true");
        let long = "n".repeat(255);
        overlay.inside(&format!("touch $'a\\nb' $'\\xff\\xfe' {long} -- -rf"));
        let paths: Vec<_> = overlay.layer().changes().unwrap().into_iter().map(|change| change.path).collect();
        let bytes = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        assert_eq!(paths, [bytes(b"-rf"), bytes(b"a\nb"), bytes(long.as_bytes()), bytes(b"\xff\xfe")]);
    }

    #[test]
    fn an_ordinary_user_reads_what_the_sandbox_locked_and_leaves_it_locked() {
        let overlay = Overlay::new("true");
        overlay.inside("mkdir d; echo x >d/f; chmod 0 d/f; chmod 0 d; mkdir r; echo y >r/g; chmod 400 r");
        as_ordinary_user(&["workspace::layer::tests::as_an_ordinary_user", "--ignored"], overlay.base.path());
        let mode = |name: &str| fs::symlink_metadata(overlay.upper.join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("d"), mode("d/f"), mode("r")), (0, 0, 0o400));
    }

    #[test]
    #[ignore = "started by another test, as another user"]
    fn as_an_ordinary_user() {
        let base = base_of_ordinary_user();
        let changes = Layer::new(base.join("upper"), base.join("lower")).changes().unwrap();
        let seen: Vec<_> = changes.iter().map(|change| (change.to_string(), change.new.as_ref().unwrap().mode)).collect();
        assert_eq!(
            seen,
            [("added d".into(), 0), ("added d/f".into(), 0), ("added r".into(), 0o400), ("added r/g".into(), 0o644)] as [(String, u32); 4]
        );
        assert!(
            changes.iter().filter(|change| change.path.components().count() == 2).all(|change| change
                .new
                .as_ref()
                .unwrap()
                .digest
                .is_some())
        );
    }
}
