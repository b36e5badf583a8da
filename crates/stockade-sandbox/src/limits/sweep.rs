//! Removes groups whose owner died without doing so, and kills what is still inside.
//!
//! A group is a leftover when the caller says that its id is not alive **and** nobody holds the lock on any of its
//! directories (see [`Cgroup`](super::Cgroup)): so the sandboxes of another settings directory, another container or
//! another test are left alone. Only groups of our own user are touched.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Access, Dir, FileType, FlockOperation};

use super::apply::Directory;
use super::cgroup::{PREFIX, is_name};
use super::hierarchy::{Controller, Version};
use super::layout::{self, Layout};
use super::{LimitError, files, kill, patience};

/// Leftovers lie below our own group, below one above it, or below a sibling: a session that has ended.
const DEEPEST: usize = 2;
/// Bounds of one sweep; what is left over is for the next.
const MOST_DIRECTORIES: usize = 4096;
const LONGEST: Duration = Duration::from_secs(2);
/// How long those who make groups may keep us from looking.
const LOCK_BOUND: Duration = Duration::from_millis(50);
const KILL_BOUND: Duration = Duration::from_secs(1);

/// What a sweep did.
#[derive(Debug, Default)]
pub struct Swept {
    /// Ids of sandboxes whose groups were removed.
    pub removed: BTreeSet<String>,
    /// Groups that could not be removed.
    pub failed: Vec<(PathBuf, LimitError)>,
}

/// Removes leftovers. `is_alive` is given the id: the group's name without `stockade-`.
pub fn sweep(layout: &Layout, is_alive: impl Fn(&str) -> bool) -> Swept {
    let mut swept = Swept::default();
    let end = Instant::now() + LONGEST;
    for (id, paths) in find(layout, end) {
        if is_alive(&id) {
            continue;
        }
        let Some(mut directories) = take_over(&paths) else { continue };
        let result = kill::kill(&directories, KILL_BOUND).and_then(|()| kill::remove(&mut directories, KILL_BOUND));
        match result {
            Ok(()) => {
                swept.removed.insert(id);
            }
            Err(error) => swept.failed.push((directories.first().map(|d| d.path.clone()).unwrap_or_default(), error)),
        }
        if Instant::now() > end {
            break;
        }
    }
    for (version, ancestor) in &layout.ancestors {
        if *version == Version::Two {
            let _ = rustix::fs::rmdir(ancestor.join(layout::SLICE)); // Stays while anything is in it.
        }
    }
    swept
}

/// Groups with our kind of name, by id.
fn find(layout: &Layout, end: Instant) -> BTreeMap<String, Vec<(Version, PathBuf)>> {
    let mut found: BTreeMap<String, Vec<(Version, PathBuf)>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut queue: Vec<(Version, PathBuf, usize)> = layout.ancestors.iter().map(|(v, path)| (*v, path.clone(), 0)).collect();
    while let Some((version, path, depth)) = queue.pop() {
        // A directory may be reached again nearer to an ancestor, and must then be looked at to its full depth.
        if !seen.insert((path.clone(), depth)) {
            continue;
        }
        if seen.len() > MOST_DIRECTORIES || Instant::now() > end {
            break;
        }
        for name in subdirectories(&path) {
            let child = path.join(&name);
            match name.strip_prefix(PREFIX) {
                Some(id) if is_name(&name) => {
                    let places = found.entry(id.to_owned()).or_default();
                    if !places.iter().any(|(_, known)| *known == child) {
                        places.push((version, child));
                    }
                }
                Some(_) | None if depth + 1 < DEEPEST => queue.push((version, child, depth + 1)),
                Some(_) | None => {}
            }
        }
    }
    found
}

fn subdirectories(path: &Path) -> Vec<String> {
    let Ok(entries) = files::open_directory(path).and_then(Dir::new) else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type() == FileType::Directory)
        .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
        .filter(|name| name != "." && name != "..")
        .collect()
}

/// Locks all directories of a sandbox that are still there; `None` if one is somebody's, or may be about to be: an owner
/// holds the parent's lock from before a directory exists until it has locked that.
fn take_over(paths: &[(Version, PathBuf)]) -> Option<Vec<Directory>> {
    let mut taken = Vec::new();
    for (version, path) in paths {
        let parent = files::open_directory(path.parent()?).ok()?;
        patience::lock(&parent, FlockOperation::NonBlockingLockExclusive, LOCK_BOUND).ok()?;
        let Ok(open) = files::open_directory(path) else { continue };
        if rustix::fs::fstat(&open).ok()?.st_uid != rustix::process::geteuid().as_raw() {
            return None;
        }
        rustix::fs::flock(&open, FlockOperation::NonBlockingLockExclusive).ok()?;
        // Its owner may have removed it, and let go of the lock, since we opened it.
        if rustix::fs::access(path, Access::EXISTS).is_err() {
            continue;
        }
        let mut directory = Directory { version: *version, mount: path.clone(), path: path.clone(), open, controllers: BTreeSet::new() };
        if *version == Version::One && directory.exists("freezer.state") {
            directory.controllers.insert(Controller::Freezer);
        }
        taken.push(directory);
    }
    (!taken.is_empty()).then_some(taken)
}
