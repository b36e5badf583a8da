//! Watching a path for changes with inotify.
//!
//! Owns `Watch`: one inotify instance per request, the path of each watch, and adding directories that appear. The first
//! reply is `Started` (with process number 0) once every directory is watched. Lost events are reported as
//! `Overflow`; a tree with too many directories fails with `TooMany`. A moved name is `Renamed` where it was and `Created` where it
//! is. When the watched path itself goes away the request is done.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use stockade_wire::codec::Bytes;
use stockade_wire::message::{Change, Reply};

use crate::context::{Context, Progress, Slot};
use crate::failure::Failure;
use crate::paths;

/// The most directories that one request watches.
const MOST_WATCHES: usize = 8192;
/// Events read before other requests get their turn; each is at least 16 bytes.
const EVENT_BUFFER: usize = 8 << 10;

/// A path being watched.
pub(crate) struct Watch {
    inotify: OwnedFd,
    root: i32,
    root_path: Vec<u8>,
    recursive: bool,
    directories: BTreeMap<i32, Vec<u8>>,
    /// Directories that may have children to watch; with `Announce` their contents are reported as created.
    unseen: Vec<(Vec<u8>, Contents)>,
    started: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contents {
    Known,
    Announce,
}

/// An event taken out of the kernel's buffer.
struct Event {
    watch: i32,
    flags: ReadFlags,
    name: Option<Vec<u8>>,
}

impl Watch {
    /// Watches the path itself; directories beneath follow in steps.
    pub(crate) fn start(context: &Context, id: u32, path: &[u8], recursive: bool) -> Result<Self, Failure> {
        let name = paths::absolute(path)?;
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(|errno| Failure::during("watch", errno))?;
        let root = inotify::add_watch(&inotify, &name, mask()).map_err(|errno| trouble(path, errno))?;
        context.poller.watch(&inotify, id, Slot::Both).map_err(|errno| Failure::during("watch", errno))?;
        let is_directory = rustix::fs::stat(&name).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
        let unseen = if recursive && is_directory { vec![(path.to_vec(), Contents::Known)] } else { Vec::new() };
        Ok(Self {
            inotify,
            root,
            root_path: path.to_vec(),
            recursive,
            directories: BTreeMap::from([(root, path.to_vec())]),
            unseen,
            started: false,
        })
    }

    /// Looks into one more directory, or reports what the kernel has.
    pub(crate) fn step(&mut self, context: &mut Context, id: u32) -> Progress {
        if let Some((path, contents)) = self.unseen.pop() {
            return match self.look_into(&path, contents, context, id) {
                Ok(()) => Progress::Again,
                Err(failure) => context.fail(id, failure),
            };
        }
        if !self.started {
            self.started = true;
            context.reply(id, &Reply::Started { pid: 0, program: "".into() });
        }
        let events = match self.read() {
            Ok(events) => events,
            Err(Errno::AGAIN) => return Progress::Idle,
            Err(errno) => return context.fail(id, Failure::during("read changes", errno)),
        };
        for event in events {
            match self.report(&event, context, id) {
                Ok(Progress::Finished) => return context.done(id),
                Ok(_) => {}
                Err(failure) => return context.fail(id, failure),
            }
        }
        Progress::Again
    }

    fn read(&self) -> Result<Vec<Event>, Errno> {
        let mut space = [MaybeUninit::uninit(); EVENT_BUFFER];
        let mut reader = inotify::Reader::new(&self.inotify, &mut space);
        let mut events = Vec::new();
        loop {
            let event = reader.next()?;
            events.push(Event { watch: event.wd(), flags: event.events(), name: event.file_name().map(|name| name.to_bytes().to_vec()) });
            if reader.is_buffer_empty() {
                return Ok(events);
            }
        }
    }

    fn report(&mut self, event: &Event, context: &mut Context, id: u32) -> Result<Progress, Failure> {
        if event.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            changed(&self.root_path, Change::Overflow {}, context, id);
            // Directories made meanwhile are not watched yet.
            if self.recursive {
                self.unseen.push((self.root_path.clone(), Contents::Known));
            }
            return Ok(Progress::Again);
        }
        if event.flags.contains(ReadFlags::IGNORED) {
            self.directories.remove(&event.watch);
            return Ok(if event.watch == self.root { Progress::Finished } else { Progress::Again });
        }
        let Some(directory) = self.directories.get(&event.watch) else { return Ok(Progress::Again) };
        let path = match &event.name {
            Some(name) => paths::join(directory, name),
            // Its parent reports the same with a name, unless it has no watched parent.
            None if event.watch != self.root => return Ok(Progress::Again),
            None => directory.clone(),
        };
        if let Some(change) = change(event.flags) {
            changed(&path, change, context, id);
        }
        let is_directory = event.flags.contains(ReadFlags::ISDIR) && event.name.is_some();
        if self.recursive && is_directory {
            if event.flags.contains(ReadFlags::MOVED_FROM) {
                self.forget(&path);
            }
            if event.flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) && self.add(&path)? {
                self.unseen.push((path, Contents::Announce));
            }
        }
        Ok(Progress::Again)
    }

    /// Watches the directories in `path`. What appeared before its watch did would otherwise never be reported.
    fn look_into(&mut self, path: &[u8], contents: Contents, context: &mut Context, id: u32) -> Result<(), Failure> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // A directory that vanished or cannot be read has nothing to report.
        let Ok(directory) = rustix::fs::open(path, flags, Mode::empty()).and_then(Dir::new) else { return Ok(()) };
        for entry in directory.flatten() {
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let child = paths::join(path, name);
            if contents == Contents::Announce {
                changed(&child, Change::Created {}, context, id);
            }
            if entry.file_type() == FileType::Directory && self.add(&child)? {
                self.unseen.push((child, contents));
            }
        }
        Ok(())
    }

    /// Watches a directory; false if it is gone or was watched already.
    fn add(&mut self, path: &[u8]) -> Result<bool, Failure> {
        if self.directories.len() >= MOST_WATCHES {
            return Err(Failure::too_many(format!("more than {MOST_WATCHES} directories to watch; watch a smaller tree")));
        }
        match inotify::add_watch(&self.inotify, path, mask() | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW) {
            Ok(watch) => Ok(self.directories.insert(watch, path.to_vec()).as_deref() != Some(path)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => Ok(false),
            Err(errno) => Err(trouble(path, errno)),
        }
    }

    /// Stops watching what was moved away.
    fn forget(&mut self, path: &[u8]) {
        let beneath = paths::join(path, b"");
        let inotify = &self.inotify;
        self.directories.retain(|watch, directory| {
            let gone = directory == path || directory.starts_with(&beneath);
            if gone {
                let _ = inotify::remove_watch(inotify, *watch);
            }
            !gone
        });
    }
}

fn changed(path: &[u8], change: Change, context: &mut Context, id: u32) {
    context.reply(id, &Reply::Changed { path: Bytes::from(path), change });
}

fn mask() -> WatchFlags {
    WatchFlags::CREATE
        | WatchFlags::MODIFY
        | WatchFlags::DELETE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::MOVE_SELF
        | WatchFlags::ATTRIB
}

fn change(flags: ReadFlags) -> Option<Change> {
    Some(if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
        Change::Created {}
    } else if flags.contains(ReadFlags::MODIFY) {
        Change::Modified {}
    } else if flags.intersects(ReadFlags::DELETE | ReadFlags::DELETE_SELF) {
        Change::Removed {}
    } else if flags.intersects(ReadFlags::MOVED_FROM | ReadFlags::MOVE_SELF) {
        Change::Renamed {}
    } else if flags.contains(ReadFlags::ATTRIB) {
        Change::Attributes {}
    } else {
        return None;
    })
}

fn trouble(path: &[u8], errno: Errno) -> Failure {
    match errno {
        Errno::NOSPC | Errno::NOMEM => Failure::too_many("the kernel allows no more watches"),
        _ => Failure::about(path, errno),
    }
}
