//! A sandbox's control group: one directory per hierarchy it needs.
//!
//! ```text
//! create ─▶ (join) ─▶ sample … freeze/thaw … ─▶ kill ─▶ remove
//!    └ any failure, and Drop: kill and remove what was made
//! ```
//!
//! Every directory stays open and locked (`flock`) as long as the value lives, which is how [`sweep`](super::sweep) in
//! another process knows that its owner is alive; the kernel lets go of the lock whatever way the owner ends.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use stockade_core::demand::{Demand, Enforcement};
use stockade_core::limits::Limits;

use super::apply::{self, Directory};
use super::freeze::{self, Frozen};
use super::hierarchy::{Controller, Version};
use super::layout::{self, Candidate, Layout, Via};
use super::report::{self, Outcome};
use super::{LimitError, check, files, kill, patience};

/// What every group's name begins with; the sandbox's id follows.
pub(super) const PREFIX: &str = "stockade-";
/// The longest name: prefix and any sandbox id or name.
const LONGEST_NAME: usize = 80;
/// How long the kernel may take to freeze, to kill and to let a directory go.
const FREEZE_BOUND: Duration = Duration::from_secs(2);
const KILL_BOUND: Duration = Duration::from_secs(5);
const REMOVE_BOUND: Duration = Duration::from_secs(2);
/// The same when nobody waits for the answer.
const DROP_BOUND: Duration = Duration::from_millis(500);
/// How long a sweep may hold the parent's lock.
const LOCK_BOUND: Duration = Duration::from_millis(100);
/// Nobody else need look inside, and who cannot open a directory cannot hold its lock.
const DIRECTORY_MODE: Mode = Mode::RWXU;
/// Tries at making a directory whose parent another process may be sweeping away.
const TRIES: usize = 3;

/// What a group is using, and whether a limit was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// Bytes of memory, page cache included; where a group counts them.
    pub memory: Option<u64>,
    /// Processes and threads, the shim and zombies included; where a group counts them.
    pub processes: Option<u64>,
    /// A limit that was met. Memory: the kernel killed something. Processes: a fork failed; the program goes on unless the
    /// caller ends it.
    pub hit: Option<Demand>,
    /// A limit that no longer acts although it was set (somebody took the controller away): end the sandbox.
    pub lost: Option<Demand>,
}

/// A sandbox's control group; by default none.
#[derive(Debug, Default)]
pub struct Cgroup {
    name: String,
    /// Why a directory could not be made, if one could not.
    refused: Option<String>,
    directories: Vec<Directory>,
    held: Enforcement,
    holds_memory: bool,
    holds_pids: bool,
    sampled_memory: Option<u64>,
    process_rlimit: Option<u64>,
}

/// How a directory is made; tests fill it as the kernel would.
type Make<'a> = &'a dyn Fn(&Path) -> Result<(), Errno>;

impl Cgroup {
    /// Makes the group `stockade-<id>` and sets the limits. A limit that cannot be had is no error here: see [`Self::holds`].
    pub fn create(name: &str, limits: &Limits, layout: &Layout) -> Result<Self, LimitError> {
        Self::build(name, limits, layout, &|path| rustix::fs::mkdir(path, DIRECTORY_MODE))
    }

    /// Makes only what a process must be cloned into; [`Self::complete`] makes the rest and sets the limits while that process is
    /// already on its way.
    pub fn begin(name: &str, limits: &Limits, layout: &Layout) -> Result<Self, LimitError> {
        Self::begin_by(name, limits, layout, &|path| rustix::fs::mkdir(path, DIRECTORY_MODE))
    }

    /// See [`Self::begin`].
    pub fn complete(&mut self, limits: &Limits, layout: &Layout) -> Result<(), LimitError> {
        self.complete_by(limits, layout, &|path| rustix::fs::mkdir(path, DIRECTORY_MODE))
    }

    pub(super) fn build(name: &str, limits: &Limits, layout: &Layout, make: Make<'_>) -> Result<Self, LimitError> {
        let mut group = Self::begin_by(name, limits, layout, make)?;
        // An early return drops `group`, which removes what was made.
        group.complete_by(limits, layout, make)?;
        Ok(group)
    }

    fn begin_by(name: &str, limits: &Limits, layout: &Layout, make: Make<'_>) -> Result<Self, LimitError> {
        check::check(limits)?;
        if !is_name(name) {
            return Err(LimitError::BadName(stockade_core::escape::escape(name)));
        }
        let mut group = Self::default();
        name.clone_into(&mut group.name);
        let wanted = wanted(limits);
        if let Some(candidate) = layout.choose(&wanted) {
            match make_v2(candidate, name, &wanted, make) {
                Ok(directory) => group.directories.push(directory),
                Err(error) => group.refused = Some(forgive(error)?),
            }
        }
        Ok(group)
    }

    fn complete_by(&mut self, limits: &Limits, layout: &Layout, make: Make<'_>) -> Result<(), LimitError> {
        let processes = check::process_ceiling(limits);
        let memory = limits.memory.map(|limit| limit.value);
        let cpu = limits.cpu_millis.map(|limit| limit.value);
        self.make_v1(&wanted(limits), layout, make)?;
        let missing = |controller: Controller| {
            let known = layout.missing.get(&controller).cloned();
            let refused = || self.refused.clone();
            Outcome::Missing(known.or_else(refused).unwrap_or_else(|| format!("`{}` was not handed down", controller.name_v1())))
        };
        let cpu = match cpu {
            None => Outcome::NotWanted,
            Some(millis) => self.outcome(Controller::Cpu, |d| apply::cpu(d, millis)).unwrap_or_else(|| missing(Controller::Cpu)),
        };
        let memory_outcome = match memory {
            None => Outcome::NotWanted,
            Some(bytes) => self.outcome(Controller::Memory, |d| apply::memory(d, bytes)).unwrap_or_else(|| missing(Controller::Memory)),
        };
        let pids = match processes {
            None => Outcome::NotWanted,
            Some(most) => self.outcome(Controller::Pids, |d| apply::pids(d, most)).unwrap_or_else(|| missing(Controller::Pids)),
        };
        report::cpu(&mut self.held, &cpu, limits.cpu_millis.map(|limit| limit.origin), layout);
        report::memory(&mut self.held, &memory_outcome, layout);
        report::pids(&mut self.held, &pids);
        self.holds_memory = matches!(memory_outcome, Outcome::Held(_));
        self.holds_pids = matches!(pids, Outcome::Held(_));
        self.sampled_memory = memory.filter(|_| !self.holds_memory);
        self.process_rlimit = processes.filter(|_| !self.holds_pids);
        Ok(())
    }

    /// How each of the limits on processors, memory and processes is held, or why it is not and what would help.
    pub fn holds(&self) -> &Enforcement {
        &self.held
    }

    /// No group holds processes: before it makes the sandbox's user namespace, the caller **must** set `RLIMIT_NPROC` (soft
    /// and hard) to this; [`Self::holds`] counts on it.
    pub fn process_rlimit(&self) -> Option<u64> {
        self.process_rlimit
    }

    /// No group holds memory: the caller must watch it with [`sampler`](super::sampler) and kill above this many bytes.
    pub fn sampled_memory(&self) -> Option<u64> {
        self.sampled_memory
    }

    /// Open files of version 1, into each of which the joining process writes `0`; into version 2 it is cloned
    /// ([`Self::v2_directory`]). The right to move is that of who opened them: us.
    ///
    /// `tasks`, not `cgroup.procs`: a thread that moves itself alone needs no lock on all forks of the machine, and taking
    /// that lock waits for RCU (5 to 10 ms where this was measured). The joining process has one thread.
    pub fn join_files(&self) -> Result<Vec<OwnedFd>, LimitError> {
        self.directories.iter().filter(|d| d.version == Version::One).map(|d| join_file(d, "tasks")).collect()
    }

    /// As [`Self::join_files`], for a process that was not cloned into version 2: joining that takes the lock.
    pub fn late_join_files(&self) -> Result<Vec<OwnedFd>, LimitError> {
        let second = self.directories.iter().filter(|d| d.version == Version::Two).map(|d| join_file(d, "cgroup.procs"));
        self.join_files()?.into_iter().map(Ok).chain(second).collect()
    }

    /// The directory for `CLONE_INTO_CGROUP`.
    pub fn v2_directory(&self) -> Option<&OwnedFd> {
        self.directories.iter().find(|d| d.version == Version::Two).map(|d| &d.open)
    }

    /// Every directory of the group, for `doctor` and the log.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.directories.iter().map(|d| d.path.as_path())
    }

    /// Bytes of memory in use, where a group counts them.
    pub fn memory_used(&self) -> Option<u64> {
        let directory = self.directory(Controller::Memory)?;
        let name = match directory.version {
            Version::One => "memory.usage_in_bytes",
            Version::Two => "memory.current",
        };
        files::read(&directory.open, name).ok()?.trim().parse().ok()
    }

    /// The files that count how often a limit was met; none where one of them cannot be had.
    pub fn counters(&self) -> Vec<OwnedFd> {
        let pids = self.holds_pids.then_some((Controller::Pids, "pids.events"));
        let memory = self.holds_memory.then(|| (Controller::Memory, self.memory_events()));
        let open = |(controller, name): (Controller, &str)| files::open(&self.directory(controller)?.open, name).ok();
        pids.into_iter().chain(memory).map(open).collect::<Option<_>>().unwrap_or_default()
    }

    /// The limit that was met, memory first.
    pub fn hit(&self) -> Option<Demand> {
        self.sample().hit
    }

    /// Use and hits, from at most four small files; cheap enough for every 50 ms.
    pub fn sample(&self) -> Sample {
        let mut sample = Sample::default();
        if self.holds_pids {
            let directory = self.directory(Controller::Pids);
            let read = |name: &str| directory.and_then(|d| files::read(&d.open, name).ok());
            sample.processes = read("pids.current").and_then(|text| text.trim().parse().ok());
            if sample.processes.is_none() {
                sample.lost = Some(Demand::Pids);
            }
            if read("pids.events").and_then(|text| files::keyed(&text, "max")).is_some_and(|count| count > 0) {
                sample.hit = Some(Demand::Pids);
            }
        }
        if self.holds_memory {
            sample.memory = self.memory_used();
            if sample.memory.is_none() {
                sample.lost = Some(Demand::Memory);
            }
            if self.memory_kills() > 0 {
                sample.hit = Some(Demand::Memory);
            }
        }
        sample
    }

    /// Whether [`Self::freeze`] can work here.
    pub fn can_freeze(&self) -> bool {
        freeze::freezer(&self.directories).is_some()
    }

    /// Stops or resumes all processes, and waits until it is so.
    pub fn freeze(&self, frozen: Frozen) -> Result<(), LimitError> {
        freeze::freeze(freeze::freezer(&self.directories).ok_or(LimitError::NoFreezer)?, frozen, FREEZE_BOUND)
    }

    /// Kills everything inside, frozen or not, and waits until it is dead.
    pub fn kill(&self) -> Result<(), LimitError> {
        kill::kill(&self.directories, KILL_BOUND)
    }

    /// Removes the group once it is empty; waits a little for dying processes.
    pub fn remove(mut self) -> Result<(), LimitError> {
        kill::remove(&mut self.directories, REMOVE_BOUND)
    }

    fn directory(&self, controller: Controller) -> Option<&Directory> {
        self.directories.iter().find(|d| d.controllers.contains(&controller))
    }

    fn outcome(&self, controller: Controller, set: impl Fn(&Directory) -> Result<String, LimitError>) -> Option<Outcome> {
        self.directory(controller).map(|directory| match set(directory) {
            Ok(how) => Outcome::Held(how),
            Err(error) => Outcome::Missing(error.line()),
        })
    }

    /// How often the kernel killed for want of memory. (Kernels before 4.13 do not say so in version 1; they also lack
    /// Landlock, so no sandbox starts there.)
    fn memory_kills(&self) -> u64 {
        let Some(directory) = self.directory(Controller::Memory) else { return 0 };
        files::read(&directory.open, self.memory_events()).ok().and_then(|text| files::keyed(&text, "oom_kill")).unwrap_or(0)
    }

    /// Where the kernel says that.
    fn memory_events(&self) -> &'static str {
        match self.directory(Controller::Memory).map(|directory| directory.version) {
            Some(Version::One) => "memory.oom_control",
            Some(Version::Two) | None => "memory.events",
        }
    }

    /// Makes the directories of version 1, for what version 2 does not have. That one was refused is kept, if it is no reason to
    /// give up.
    fn make_v1(&mut self, wanted: &BTreeSet<Controller>, layout: &Layout, make: Make<'_>) -> Result<(), LimitError> {
        let mut rest: Vec<Controller> = wanted.iter().copied().filter(|c| self.directory(*c).is_none()).collect();
        if self.directories.is_empty() {
            rest.push(Controller::Freezer);
        }
        for controller in rest {
            let Some(place) = layout.v1.get(&controller) else { continue };
            let path = place.directory.join(&self.name);
            // Controllers that are mounted together share a directory.
            if let Some(shared) = self.directories.iter_mut().find(|d| d.path == path) {
                shared.controllers.insert(controller);
                continue;
            }
            match open_new(Version::One, &place.mount, path, make) {
                Ok(mut directory) => {
                    directory.controllers.insert(controller);
                    // Pushed before anything else can fail, so that it is removed then.
                    self.directories.push(directory);
                    if place.with_cpuset
                        && let Some(directory) = self.directories.last()
                    {
                        fill_cpuset(directory, &place.directory)?;
                    }
                }
                Err(error) => self.refused = Some(forgive(error)?),
            }
        }
        Ok(())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Most groups are empty by now; only where they are not is there anything to kill.
        if kill::remove(&mut self.directories, Duration::ZERO).is_err() {
            let _ = kill::kill(&self.directories, DROP_BOUND);
            let _ = kill::remove(&mut self.directories, DROP_BOUND); // What stays is for the next sweep.
        }
    }
}

fn join_file(directory: &Directory, name: &str) -> Result<OwnedFd, LimitError> {
    rustix::fs::openat(&directory.open, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|source| LimitError::Read { path: directory.path.join(name), source })
}

/// The controllers that these limits need.
fn wanted(limits: &Limits) -> BTreeSet<Controller> {
    let cpu = limits.cpu_millis.map(|_| Controller::Cpu);
    let memory = limits.memory.map(|_| Controller::Memory);
    let pids = check::process_ceiling(limits).map(|_| Controller::Pids);
    [cpu, memory, pids].into_iter().flatten().collect()
}

/// Whether a group of this name is one of ours.
pub(super) fn is_name(name: &str) -> bool {
    name.len() <= LONGEST_NAME
        && name
            .strip_prefix(PREFIX)
            .is_some_and(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')))
}

/// Not being allowed means a limit less, which is reported; anything else (a name in use, no more groups) ends the creation.
fn forgive(error: LimitError) -> Result<String, LimitError> {
    match &error {
        LimitError::Make { source: Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP, .. } => {
            Ok(error.line())
        }
        _ => Err(error),
    }
}

fn make_v2(candidate: &Candidate, name: &str, wanted: &BTreeSet<Controller>, make: Make<'_>) -> Result<Directory, LimitError> {
    let mut result = Err(LimitError::Make { path: candidate.directory.join(name), source: Errno::NOENT });
    for _ in 0..TRIES {
        let parent = prepare(candidate, wanted, make)?;
        result = open_new(Version::Two, &candidate.directory, parent.join(name), make);
        if !matches!(result, Err(LimitError::Make { source: Errno::NOENT, .. })) {
            break;
        }
    }
    let mut directory = result?;
    // What the child really got, whatever we tried above.
    directory.controllers = layout::controllers(&files::read(&directory.open, "cgroup.controllers").unwrap_or_default());
    Ok(directory)
}

/// Gets a version 2 parent ready to hand down what is wanted. That a controller could not be enabled shows in the child.
fn prepare(candidate: &Candidate, wanted: &BTreeSet<Controller>, make: Make<'_>) -> Result<PathBuf, LimitError> {
    let directory = &candidate.directory;
    let offered: BTreeSet<Controller> =
        wanted.iter().copied().filter(|c| candidate.ready.contains(c) || candidate.enable.contains(c)).collect();
    match candidate.via {
        Via::Direct => {
            enable(directory, &offered);
            Ok(directory.clone())
        }
        Via::OwnLeaf => {
            if !is_enabled(directory, &offered) {
                let leaf = directory.join(layout::OWN_LEAF);
                make_shared(&leaf, make)?;
                let moved =
                    files::open_directory(&leaf).and_then(|leaf| files::write(leaf, "cgroup.procs", &std::process::id().to_string()));
                if moved.is_ok() {
                    enable(directory, &offered);
                }
            }
            Ok(directory.clone())
        }
        Via::Slice => {
            enable(directory, &offered);
            let slice = directory.join(layout::SLICE);
            make_shared(&slice, make)?;
            enable(&slice, &offered);
            Ok(slice)
        }
    }
}

/// Makes a directory that several sandboxes share.
fn make_shared(path: &Path, make: Make<'_>) -> Result<(), LimitError> {
    match make(path) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(source) => Err(LimitError::Make { path: path.to_owned(), source }),
    }
}

fn is_enabled(directory: &Path, wanted: &BTreeSet<Controller>) -> bool {
    let text = files::open_directory(directory).and_then(|open| files::read(open, "cgroup.subtree_control")).unwrap_or_default();
    wanted.is_subset(&layout::controllers(&text))
}

fn enable(directory: &Path, wanted: &BTreeSet<Controller>) {
    if is_enabled(directory, wanted) {
        return;
    }
    let Ok(open) = files::open_directory(directory) else { return };
    let words: Vec<String> = wanted.iter().filter_map(|c| c.name_v2()).map(|name| format!("+{name}")).collect();
    // All at once, which is one change of the tree; else those that can be had.
    if files::write(&open, "cgroup.subtree_control", &words.join(" ")).is_err() {
        for word in &words {
            let _ = files::write(&open, "cgroup.subtree_control", word);
        }
    }
}

/// Makes a directory, opens it and locks it. Meanwhile the parent is locked too (shared), which keeps a sweep from taking
/// what is not yet locked for a leftover. Who cannot have the parent's lock goes on: any user may hold that one.
fn open_new(version: Version, mount: &Path, path: PathBuf, make: Make<'_>) -> Result<Directory, LimitError> {
    let parent = path.parent().and_then(|parent| files::open_directory(parent).ok());
    if let Some(parent) = &parent {
        let _ = patience::lock(parent, FlockOperation::NonBlockingLockShared, LOCK_BOUND);
    }
    match make(&path) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Err(LimitError::Exists(path)),
        Err(source) => return Err(LimitError::Make { path, source }),
    }
    let opened =
        files::open_directory(&path).and_then(|open| rustix::fs::flock(&open, FlockOperation::NonBlockingLockExclusive).map(|()| open));
    match opened {
        Ok(open) => Ok(Directory { version, mount: mount.to_owned(), path, open, controllers: BTreeSet::new() }),
        Err(source) => {
            let _ = rustix::fs::rmdir(&path);
            Err(LimitError::Make { path, source })
        }
    }
}

/// A new `cpuset` group of version 1 has no processors and no memory, and nothing can join it until it has: take the parent's.
fn fill_cpuset(directory: &Directory, parent: &Path) -> Result<(), LimitError> {
    for name in ["cpuset.cpus", "cpuset.mems"] {
        if directory.read(name).is_ok_and(|text| text.trim().is_empty()) {
            let value = files::open_directory(parent).and_then(|open| files::read(open, name));
            let value = value.map_err(|source| LimitError::Read { path: parent.join(name), source })?;
            directory.write(name, value.trim())?;
        }
    }
    Ok(())
}
