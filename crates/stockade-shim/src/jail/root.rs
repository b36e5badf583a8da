//! The new root: every item of the plan in order, then the pivot.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use stockade_wire::plan::{Access, Execution, Item, JailPlan, Source};

use super::scratch::Scratch;
use super::{Doing, Trouble, devices, mounts, overlay, shown};

/// Name of the new root's mount point on the scratch file system.
const ROOT: &[u8] = b"root";

/// Builds the new root in a directory of the scratch file system.
pub(crate) fn build(plan: &JailPlan, scratch: &Scratch, sources: mounts::Sources) -> Result<(), Trouble> {
    let tree = scratch.tree(ROOT, 0o755)?;
    let mount_point = scratch.directory(ROOT, 0o755)?;
    mounts::attach(tree.as_fd(), mount_point.as_fd()).doing(|| "attaching the root".into())?;
    let mut builder = Builder { root: NewRoot { top: scratch.directory(ROOT, 0o755)? }, scratch, sources, masks: Vec::new(), count: 0 };
    for item in &plan.items {
        builder.item(item)?;
    }
    // Nothing is added to the root itself from here on.
    mounts::set_attributes(tree.as_fd(), mounts::BASE | libc::MOUNT_ATTR_RDONLY, mounts::Reach::One).doing(|| "sealing the root".into())
}

struct Builder<'a> {
    root: NewRoot,
    scratch: &'a Scratch,
    sources: mounts::Sources,
    /// Empty things to show instead of others, by kind and mode: mounted once, restricted once, copied for every mask.
    masks: Vec<(FileType, u32, OwnedFd)>,
    /// Numbers the names of helper files and directories.
    count: u32,
}

impl Builder<'_> {
    fn item(&mut self, item: &Item) -> Result<(), Trouble> {
        match item {
            Item::Directory { path, mode } => self.root.directory(&path.0, *mode).map(drop),
            Item::Symlink { path, target } => self.root.symlink(&path.0, &target.0),
            Item::File { path, contents, mode } => {
                let name = self.name("file");
                let tree = self.scratch.file_tree(name.as_bytes(), &contents.0, *mode)?;
                self.mount(tree.as_fd(), &path.0, &Access::ReadOnly {}, &Execution::Denied {})
            }
            Item::Bind { source, target, access, execution } => {
                let tree = self.tree(source)?;
                self.mount(tree.as_fd(), &target.0, access, execution)
            }
            Item::Overlay { lower, layer, target, access, execution } => {
                let (lower, layer) = (self.tree(lower)?, self.tree(layer)?);
                let name = self.name("overlay");
                let tree = overlay::make(self.scratch, name.as_bytes(), lower.as_fd(), layer.as_fd())?;
                self.mount(tree.as_fd(), &target.0, access, execution)
            }
            Item::Mask { path, mode } => self.mask(&path.0, *mode),
            Item::Redirect { path, link } => {
                let name = self.name("redirect");
                let tree = self.scratch.link_tree(name.as_bytes(), &link.0)?;
                let onto = self.root.existing(&path.0).doing(|| format!("opening {}", shown(&path.0)))?;
                mounts::attach(tree.as_fd(), onto.as_fd()).doing(|| format!("redirecting {}", shown(&path.0)))
            }
            Item::Seed { directory, name, contents, mode } => self.scratch.seed(&directory.0, &name.0, &contents.0, *mode).map(drop),
            Item::Proc { path } => devices::proc(&self.root, &path.0),
            Item::Devices { path } => devices::devices(&self.root, self.scratch, &path.0),
        }
    }

    fn name(&mut self, kind: &str) -> String {
        self.count += 1;
        format!("{kind}-{}", self.count)
    }

    fn tree(&mut self, source: &Source) -> Result<OwnedFd, Trouble> {
        let opened = self.sources.next()?;
        match (source, opened) {
            (Source::Scratch { name, mode }, None) => self.scratch.tree(&name.0, *mode),
            (Source::Host { .. } | Source::Passed { .. }, Some(tree)) => Ok(tree),
            (Source::Scratch { .. }, Some(_)) | (Source::Host { .. } | Source::Passed { .. }, None) => {
                Err(Trouble::new("sources and items are out of step"))
            }
        }
    }

    fn mount(&self, tree: BorrowedFd<'_>, target: &[u8], access: &Access, execution: &Execution) -> Result<(), Trouble> {
        let onto = self.root.mount_point(target, tree)?;
        mounts::attach(tree, onto.as_fd()).doing(|| format!("mounting {}", shown(target)))?;
        mounts::set_attributes(tree, mounts::attributes(access, execution), mounts::Reach::Tree)
            .doing(|| format!("restricting {}", shown(target)))
    }

    fn mask(&mut self, path: &[u8], mode: u32) -> Result<(), Trouble> {
        let onto = match self.root.existing_through_links(path) {
            Ok(fd) => fd,
            // Nothing is there, so there is nothing to hide.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(errno) => return Err(errno).doing(|| format!("looking at {}", shown(path))),
        };
        let kind = if is_directory(onto.as_fd())? { FileType::Directory } else { FileType::RegularFile };
        let what = || format!("masking {}", shown(path));
        let tree = mounts::clone_tree(self.nothing(kind, mode)?, c"").doing(what)?;
        mounts::attach(tree.as_fd(), onto.as_fd()).doing(what)
    }

    /// An empty file or directory, mounted read-only where nothing inside sees it.
    fn nothing(&mut self, kind: FileType, mode: u32) -> Result<BorrowedFd<'_>, Trouble> {
        let known = self.masks.iter().position(|(k, m, _)| (*k, *m) == (kind, mode));
        let at = if let Some(at) = known {
            at
        } else {
            let name = self.name("empty");
            let tree = match kind {
                FileType::Directory => self.scratch.tree(name.as_bytes(), mode)?,
                _ => self.scratch.file_tree(name.as_bytes(), b"", mode)?,
            };
            let place = if kind == FileType::Directory { name } else { ["files/", &name].concat() };
            let onto = self.scratch.existing(place.as_bytes())?;
            mounts::attach(tree.as_fd(), onto.as_fd()).doing(|| "mounting an empty thing".into())?;
            let attributes = mounts::attributes(&Access::ReadOnly {}, &Execution::Denied {});
            mounts::set_attributes(tree.as_fd(), attributes, mounts::Reach::One).doing(|| "restricting an empty thing".into())?;
            self.masks.push((kind, mode, tree));
            self.masks.len() - 1
        };
        self.masks.get(at).map(|(_, _, tree)| tree.as_fd()).ok_or_else(|| Trouble::new("an empty thing was lost"))
    }
}

/// The root under construction; every path is resolved beneath it.
pub(crate) struct NewRoot {
    top: OwnedFd,
}

impl NewRoot {
    /// Opens (making what is missing) a directory, never through a link.
    pub(crate) fn directory(&self, path: &[u8], mode: u32) -> Result<OwnedFd, Trouble> {
        let what = || format!("making the directory {}", shown(path));
        match self.existing(path) {
            Err(Errno::NOENT) => {}
            found => return found.doing(what),
        }
        let (parent, name) = self.parent(path)?;
        match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno).doing(what),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&parent, name, flags, Mode::empty()).doing(what)
    }

    /// Opens a path that is there, following no link.
    pub(crate) fn existing(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.resolve(path, OFlags::PATH | OFlags::NOFOLLOW, ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS)
    }

    /// Opens a path that is there, following links inside the new root only.
    fn existing_through_links(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.resolve(path, OFlags::PATH, ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
    }

    fn resolve(&self, path: &[u8], flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
        rustix::fs::openat2(&self.top, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    /// Opens the parent directory of a path and returns the last name with it.
    pub(crate) fn parent<'p>(&self, path: &'p [u8]) -> Result<(OwnedFd, &'p [u8]), Trouble> {
        let cut = path.iter().rposition(|b| *b == b'/').ok_or_else(|| Trouble::new(format!("{} is not absolute", shown(path))))?;
        let (parent, name) = path.split_at_checked(cut).unwrap_or((b"", path));
        let name = name.get(1..).filter(|n| !n.is_empty()).ok_or_else(|| Trouble::new(format!("{} has no name", shown(path))))?;
        let parent = if parent.is_empty() { b"/" } else { parent };
        Ok((self.directory(parent, 0o755)?, name))
    }

    fn symlink(&self, path: &[u8], target: &[u8]) -> Result<(), Trouble> {
        let (parent, name) = self.parent(path)?;
        rustix::fs::symlinkat(target, &parent, name).doing(|| format!("linking {}", shown(path)))
    }

    /// A place to mount `tree` on: a directory or an empty file, made where it is missing.
    fn mount_point(&self, target: &[u8], tree: BorrowedFd<'_>) -> Result<OwnedFd, Trouble> {
        if is_directory(tree)? {
            return self.directory(target, 0o755);
        }
        match self.existing(target) {
            Ok(fd) => Ok(fd),
            Err(Errno::NOENT) => {
                let (parent, name) = self.parent(target)?;
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                let what = || format!("making the mount point {}", shown(target));
                rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o444)).doing(what)?;
                self.existing(target).doing(what)
            }
            Err(errno) => Err(errno).doing(|| format!("opening {}", shown(target))),
        }
    }
}

fn is_directory(fd: BorrowedFd<'_>) -> Result<bool, Trouble> {
    let stat = rustix::fs::fstat(fd).doing(|| "looking at a mount".into())?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Makes the new root the root of this process and everything it will start.
pub(crate) fn pivot(scratch: &Scratch) -> Result<(), Trouble> {
    let root = rustix::fs::openat(scratch.top(), ROOT, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .doing(|| "opening the new root".into())?;
    rustix::process::fchdir(&root).doing(|| "entering the new root".into())?;
    rustix::process::pivot_root(c".", c".").doing(|| "switching roots".into())
}

/// Unmounts the old root, and with it every mount the building needed.
pub(crate) fn detach() -> Result<(), Trouble> {
    rustix::mount::unmount(c".", UnmountFlags::DETACH).doing(|| "unmounting the old root".into())?;
    rustix::process::chdir(c"/").doing(|| "entering the root".into())
}
