//! The new root: every item of the plan in order, then the pivot.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use stockade_wire::plan::{Access, Execution, Item, Source};

use super::scratch::Scratch;
use super::{Doing, Trouble, devices, mounts, overlay, shown};

/// Name of the new root's mount point on the scratch file system.
const ROOT: &[u8] = b"root";
/// Connections to the agent that may wait to be accepted.
const AGENT_BACKLOG: i32 = 64;

/// Which part of a root is built.
#[derive(Clone, Copy)]
pub(crate) enum Part<'a> {
    /// All of it.
    Whole,
    /// What the clones of a template share.
    Shared,
    /// The rest, upon a copy of what is shared.
    Own(&'a Shared),
}

/// What a template built for its clones.
pub(crate) struct Shared {
    /// The root.
    pub(crate) path: &'static CStr,
    /// Paths that it masked already.
    pub(crate) masked: BTreeSet<Vec<u8>>,
}

/// Builds the new root in a directory of the scratch file system.
pub(crate) struct Builder<'a> {
    part: Part<'a>,
    /// Paths that are masked now.
    masked: BTreeSet<Vec<u8>>,
    root: NewRoot,
    /// The root's own mount.
    tree: OwnedFd,
    scratch: Scratch,
    sources: mounts::Sources,
    /// Empty things to show instead of others, by kind and mode: mounted once, restricted once, copied for every mask.
    masks: Vec<(FileType, u32, OwnedFd)>,
    /// Numbers the names of helper files and directories.
    count: u32,
    /// Listens at the agent's place.
    agent: Option<OwnedFd>,
}

impl<'a> Builder<'a> {
    /// A root that is empty, or that has what is shared.
    pub(crate) fn begin(scratch: Scratch, part: Part<'a>) -> Result<Self, Trouble> {
        let tree = match part {
            Part::Whole | Part::Shared => scratch.tree(ROOT, 0o755)?,
            Part::Own(shared) => {
                scratch.make(ROOT, 0o755)?;
                mounts::clone_tree(CWD, shared.path).doing(|| "copying the template's root".into())?
            }
        };
        mounts::attach_named(tree.as_fd(), scratch.top(), ROOT).doing(|| "attaching the root".into())?;
        let root = NewRoot { top: scratch.existing(ROOT)? };
        let (masked, sources) = (BTreeSet::new(), mounts::Sources::default());
        Ok(Self { part, masked, root, tree, scratch, sources, masks: Vec::new(), count: 0, agent: None })
    }

    /// Adds these items, in order.
    pub(crate) fn build(&mut self, items: &[Item], sources: mounts::Sources) -> Result<(), Trouble> {
        self.sources = sources;
        items.iter().try_for_each(|item| self.item(item))
    }

    /// The agent's listener, where the root has one.
    pub(crate) fn take_agent(&mut self) -> Option<OwnedFd> {
        self.agent.take()
    }

    /// Nothing is added to the root itself from here on. Gives what it was built on, and the paths that are masked.
    pub(crate) fn seal(self) -> Result<(Scratch, BTreeSet<Vec<u8>>), Trouble> {
        let attributes = mounts::BASE | libc::MOUNT_ATTR_RDONLY;
        mounts::set_attributes(self.tree.as_fd(), attributes, mounts::Reach::One).doing(|| "sealing the root".into())?;
        Ok((self.scratch, self.masked))
    }

    fn item(&mut self, item: &Item) -> Result<(), Trouble> {
        match item {
            Item::Directory { path, mode } => self.root.make(&path.0, Thing::Directory, *mode).map(drop),
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
                let tree = overlay::make(&self.scratch, name.as_bytes(), lower.as_fd(), layer.as_fd())?;
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
            Item::Agent { path } if self.agent.is_some() => Err(Trouble::new(format!("{} is a second agent", shown(&path.0)))),
            Item::Agent { path } => {
                self.agent = Some(self.root.listener(&path.0)?);
                Ok(())
            }
            Item::Proc { path } => devices::proc(&self.root, &path.0),
            Item::Devices { path } => match self.part {
                Part::Shared => devices::devices(&self.root, &path.0),
                Part::Own(_) => devices::own_devices(&self.root, &self.scratch, &path.0),
                Part::Whole => {
                    devices::devices(&self.root, &path.0)?;
                    devices::own_devices(&self.root, &self.scratch, &path.0)
                }
            },
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
        let thing = if is_directory(tree)? { Thing::Directory } else { Thing::File };
        let (parent, name) = self.root.make(target, thing, thing.mode())?;
        mounts::attach_named(tree, parent.as_fd(), name).doing(|| format!("mounting {}", shown(target)))?;
        mounts::set_attributes(tree, mounts::attributes(access, execution), mounts::Reach::Tree)
            .doing(|| format!("restricting {}", shown(target)))
    }

    fn mask(&mut self, path: &[u8], mode: u32) -> Result<(), Trouble> {
        let found = match self.part {
            Part::Own(shared) if shared.masked.contains(path) => return Ok(()),
            Part::Whole | Part::Own(_) => self.root.existing_through_links(path),
            // A link may lead to where each clone has something of its own; then the clone masks it.
            Part::Shared => match self.root.existing(path) {
                Err(Errno::LOOP) => return Ok(()),
                Ok(fd) if is_link(fd.as_fd())? => return Ok(()),
                found => found,
            },
        };
        let onto = match found {
            Ok(fd) => fd,
            // Nothing is there, so there is nothing to hide.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(errno) => return Err(errno).doing(|| format!("looking at {}", shown(path))),
        };
        let kind = if is_directory(onto.as_fd())? { FileType::Directory } else { FileType::RegularFile };
        let what = || format!("masking {}", shown(path));
        let tree = mounts::clone_tree(self.nothing(kind, mode)?, c"").doing(what)?;
        mounts::attach(tree.as_fd(), onto.as_fd()).doing(what)?;
        self.masked.insert(path.to_vec());
        Ok(())
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

/// What a mount stands on.
#[derive(Clone, Copy)]
pub(crate) enum Thing {
    Directory,
    File,
}

impl Thing {
    /// The mode of one that is only there to be covered.
    fn mode(self) -> u32 {
        match self {
            Self::Directory => 0o755,
            Self::File => 0o444,
        }
    }
}

/// A directory of the new root: its top, or one beneath.
pub(crate) enum Parent<'a> {
    Top(BorrowedFd<'a>),
    Opened(OwnedFd),
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Top(top) => *top,
            Self::Opened(opened) => opened.as_fd(),
        }
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
        let (parent, name) = self.make(path, Thing::Directory, mode)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&parent, name, flags, Mode::empty()).doing(what)
    }

    /// Makes a directory or an empty file where nothing is yet, and returns its parent and its name in there.
    pub(crate) fn make<'p>(&self, path: &'p [u8], thing: Thing, mode: u32) -> Result<(Parent<'_>, &'p [u8]), Trouble> {
        let (parent, name) = self.parent(path)?;
        let mode = Mode::from_raw_mode(mode);
        let made = match thing {
            Thing::Directory => rustix::fs::mkdirat(&parent, name, mode),
            Thing::File => rustix::fs::mknodat(&parent, name, FileType::RegularFile, mode, 0),
        };
        match made {
            Ok(()) | Err(Errno::EXIST) => Ok((parent, name)),
            Err(errno) => Err(errno).doing(|| format!("making {}", shown(path))),
        }
    }

    /// A socket of the root itself that listens. It stays when the root is sealed, and only who built the root could make it.
    fn listener(&self, path: &[u8]) -> Result<OwnedFd, Trouble> {
        let what = || format!("listening at {}", shown(path));
        let (parent, name) = self.parent(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).doing(what)?;
        // There is no call to bind beneath a descriptor. This process has one thread, and goes to the new root before anything else asks where it is.
        rustix::process::fchdir(&parent).doing(what)?;
        bind(&socket, &SocketAddrUnix::new(name).doing(what)?).doing(what)?;
        listen(&socket, AGENT_BACKLOG).doing(what)?;
        Ok(socket)
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
    fn parent<'p>(&self, path: &'p [u8]) -> Result<(Parent<'_>, &'p [u8]), Trouble> {
        let cut = path.iter().rposition(|b| *b == b'/').ok_or_else(|| Trouble::new(format!("{} is not absolute", shown(path))))?;
        let (parent, name) = path.split_at_checked(cut).unwrap_or((b"", path));
        let name = name.get(1..).filter(|n| !n.is_empty()).ok_or_else(|| Trouble::new(format!("{} has no name", shown(path))))?;
        let parent = if parent.is_empty() { Parent::Top(self.top.as_fd()) } else { Parent::Opened(self.directory(parent, 0o755)?) };
        Ok((parent, name))
    }

    fn symlink(&self, path: &[u8], target: &[u8]) -> Result<(), Trouble> {
        let (parent, name) = self.parent(path)?;
        rustix::fs::symlinkat(target, &parent, name).doing(|| format!("linking {}", shown(path)))
    }
}

pub(crate) fn is_directory(fd: BorrowedFd<'_>) -> Result<bool, Trouble> {
    kind(fd).map(|kind| kind == FileType::Directory)
}

fn is_link(fd: BorrowedFd<'_>) -> Result<bool, Trouble> {
    kind(fd).map(|kind| kind == FileType::Symlink)
}

fn kind(fd: BorrowedFd<'_>) -> Result<FileType, Trouble> {
    let stat = rustix::fs::fstat(fd).doing(|| "looking at a mount".into())?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

/// Makes the new root the root of this process and everything it will start.
pub(crate) fn pivot(scratch: &Scratch) -> Result<(), Trouble> {
    let root = rustix::fs::openat(scratch.top(), ROOT, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .doing(|| "opening the new root".into())?;
    pivot_to(root.as_fd())
}

/// Makes a mount point the root of this process.
pub(crate) fn pivot_to(root: BorrowedFd<'_>) -> Result<(), Trouble> {
    rustix::process::fchdir(root).doing(|| "entering the new root".into())?;
    rustix::process::pivot_root(c".", c".").doing(|| "switching roots".into())
}

/// Unmounts the old root, and with it every mount the building needed.
pub(crate) fn detach() -> Result<(), Trouble> {
    rustix::mount::unmount(c".", UnmountFlags::DETACH).doing(|| "unmounting the old root".into())?;
    rustix::process::chdir(c"/").doing(|| "entering the root".into())
}
