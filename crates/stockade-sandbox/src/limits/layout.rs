//! Where children may be made: looks at the directories that [`Hierarchies`] names. Reads only.
//!
//! Version 1 is simple: the child goes below our own group in each hierarchy. In version 2 a group that has processes may
//! not hand controllers to children (the rule against internal processes), so our own group is seldom the place. We walk
//! from it upwards and keep every directory in which a child can be made **and** joined (joining needs write access to
//! `cgroup.procs` of the nearest common ancestor, which is that directory):
//!
//! ```text
//! own group      only we are in it: we move into a leaf beside the sandboxes   (systemd-run --scope -p Delegate=yes)
//! ancestor       has no processes, belongs to us                               (app.slice of a desktop session)
//! top            root only: everything goes below `stockade.slice`
//! ```
//!
//! The nearest directory that offers the most of what is wanted is chosen when a sandbox is made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::hierarchy::{Controller, Hierarchies, Place, Version};
use super::{LimitError, files};

/// The leaf into which we move ourselves. It must not look like a sandbox's group.
pub(super) const OWN_LEAF: &str = "supervisor.stockade";
/// What holds all sandboxes at the top of a hierarchy.
pub(super) const SLICE: &str = "stockade.slice";

/// `f_type` of version 1 and 2; rustix does not name them.
const MAGIC_V1: i64 = 0x0027_e0eb;
const MAGIC_V2: i64 = 0x6367_7270;

/// More than any mount table we have met.
const MOST_PROC_BYTES: usize = 16 << 20;

/// Who we are, for the advice in reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Privilege {
    Root,
    Ordinary,
}

/// Whether directories must be on a real control group file system; tests use plain ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileSystem {
    Kernel,
    #[cfg(test)]
    Any,
}

/// How a child of a version 2 directory comes to have controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Via {
    /// Made there at once.
    Direct,
    /// We leave the directory first, into [`OWN_LEAF`].
    OwnLeaf,
    /// Made below [`SLICE`].
    Slice,
}

/// A version 2 directory in which a child can be made and joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) directory: PathBuf,
    /// Controllers that children get.
    pub(super) ready: BTreeSet<Controller>,
    /// Controllers that children get once they are enabled there.
    pub(super) enable: BTreeSet<Controller>,
    pub(super) via: Via,
}

impl Candidate {
    /// How many of the wanted controllers it offers.
    fn score(&self, wanted: &BTreeSet<Controller>) -> usize {
        wanted.iter().filter(|c| self.ready.contains(c) || self.enable.contains(c)).count()
    }
}

/// Where this process may make control groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Usable hierarchies of version 1.
    pub(super) v1: BTreeMap<Controller, Place>,
    /// Usable directories of version 2, nearest first.
    pub(super) v2: Vec<Candidate>,
    /// Why a controller cannot be had.
    pub(super) missing: BTreeMap<Controller, String>,
    pub(super) privilege: Privilege,
    /// Directories at and above our own groups, where [`sweep`](super::sweep) looks.
    pub(super) ancestors: BTreeSet<(Version, PathBuf)>,
    pub(super) file_system: FileSystem,
}

impl Layout {
    /// Whether version 2 is all there is, as far as the usual place tells.
    pub fn is_unified() -> bool {
        rustix::fs::statfs("/sys/fs/cgroup").is_ok_and(|stat| stat.f_type == MAGIC_V2)
    }

    /// Looks at this process and this machine.
    pub fn discover() -> Result<Self, LimitError> {
        let read = |path: &str| {
            files::read_whole(Path::new(path), MOST_PROC_BYTES).map_err(|source| LimitError::Proc { path: path.into(), source })
        };
        let hierarchies = Hierarchies::parse(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?);
        let privilege = if rustix::process::geteuid().is_root() { Privilege::Root } else { Privilege::Ordinary };
        Ok(Self::probe(&hierarchies, privilege, FileSystem::Kernel))
    }

    /// A layout without any group: for hosts that forbid them, and for tests of what happens then.
    pub fn none() -> Self {
        let privilege = if rustix::process::geteuid().is_root() { Privilege::Root } else { Privilege::Ordinary };
        Self::probe(&Hierarchies::default(), privilege, FileSystem::Kernel)
    }

    pub(super) fn probe(hierarchies: &Hierarchies, privilege: Privilege, file_system: FileSystem) -> Self {
        let mut layout =
            Self { v1: BTreeMap::new(), v2: Vec::new(), missing: BTreeMap::new(), privilege, ancestors: BTreeSet::new(), file_system };
        if let Some(place) = &hierarchies.v2 {
            layout.add_ancestors(place);
            layout.v2 = upwards(place).filter_map(|directory| candidate(directory, place, file_system)).collect();
        }
        for (controller, place) in &hierarchies.v1 {
            layout.add_ancestors(place);
            match usable_v1(&place.directory, file_system) {
                Ok(()) => {
                    layout.v1.insert(*controller, place.clone());
                }
                Err(why) => {
                    layout.missing.insert(*controller, why);
                }
            }
        }
        for controller in Controller::ALL {
            if !layout.offers(controller) && !layout.missing.contains_key(&controller) {
                layout.missing.insert(controller, why_not_v2(hierarchies.v2.as_ref(), controller, &layout.v2));
            }
        }
        layout
    }

    /// Whether sandboxes can have this controller at all.
    pub fn offers(&self, controller: Controller) -> bool {
        self.version_of(controller).is_some()
    }

    /// Which interface would hold this controller.
    pub fn version_of(&self, controller: Controller) -> Option<Version> {
        let in_v2 = match controller {
            Controller::Freezer => !self.v2.is_empty(),
            Controller::Cpu | Controller::Memory | Controller::Pids | Controller::Io => {
                self.v2.iter().any(|c| c.ready.contains(&controller) || c.enable.contains(&controller))
            }
        };
        if in_v2 { Some(Version::Two) } else { self.v1.contains_key(&controller).then_some(Version::One) }
    }

    /// The nearest version 2 directory that offers the most of what is wanted. One that offers nothing is worth having only to
    /// freeze and kill by, where version 1 cannot.
    pub(super) fn choose(&self, wanted: &BTreeSet<Controller>) -> Option<&Candidate> {
        // `max_by_key` takes the last of equals, and the nearest is first.
        let best = self.v2.iter().rev().max_by_key(|candidate| candidate.score(wanted));
        best.filter(|candidate| candidate.score(wanted) > 0 || !self.v1.contains_key(&Controller::Freezer))
    }

    fn add_ancestors(&mut self, place: &Place) {
        self.ancestors.extend(upwards(place).map(|directory| (place.version, directory.to_owned())));
    }
}

/// Our own directory and those above it, up to the mount and no further.
fn upwards(place: &Place) -> impl Iterator<Item = &Path> {
    place.directory.ancestors().take_while(|directory| directory.starts_with(&place.mount))
}

fn usable_v1(directory: &Path, file_system: FileSystem) -> Result<(), String> {
    if !is_cgroup(directory, Version::One, file_system) {
        return Err(format!("`{}` cannot be seen", directory.display()));
    }
    rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| format!("no group can be made in `{}`: {error}", directory.display()))
}

fn candidate(directory: &Path, place: &Place, file_system: FileSystem) -> Option<Candidate> {
    let is_own_leaf = directory.file_name().is_some_and(|name| name == OWN_LEAF);
    if is_own_leaf || !is_cgroup(directory, Version::Two, file_system) {
        return None;
    }
    rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK).ok()?;
    rustix::fs::access(directory.join("cgroup.procs"), Access::WRITE_OK).ok()?;
    let open = files::open_directory(directory).ok()?;
    // Only the top of the whole hierarchy has no type; a namespace's root has one.
    let kind = files::read(&open, "cgroup.type").ok();
    if kind.as_deref().is_some_and(|kind| kind.trim() != "domain") {
        return None;
    }
    let is_top = kind.is_none();
    let ready = controllers(&files::read(&open, "cgroup.subtree_control").ok()?);
    let available = controllers(&files::read(&open, "cgroup.controllers").ok()?);
    let may_enable = rustix::fs::access(directory.join("cgroup.subtree_control"), Access::WRITE_OK).is_ok();
    let missing: BTreeSet<Controller> = available.difference(&ready).copied().collect();
    let occupants = occupants(&files::read(&open, "cgroup.procs").ok()?);
    let (enable, via) = match occupants {
        _ if is_top && (!available.is_empty()) => (missing, Via::Slice),
        _ if is_top => (missing, Via::Direct),
        Occupants::None => (missing, Via::Direct),
        Occupants::OnlyUs if directory == place.directory && !missing.is_empty() => (missing, Via::OwnLeaf),
        Occupants::OnlyUs | Occupants::Others => (BTreeSet::new(), Via::Direct),
    };
    let enable = if may_enable { enable } else { BTreeSet::new() };
    Some(Candidate { directory: directory.to_owned(), ready, enable, via })
}

enum Occupants {
    None,
    OnlyUs,
    Others,
}

fn occupants(procs: &str) -> Occupants {
    let own = std::process::id().to_string();
    let mut pids = procs.lines();
    match (pids.next(), pids.next()) {
        (None, _) => Occupants::None,
        (Some(only), None) if only == own => Occupants::OnlyUs,
        (Some(_), _) => Occupants::Others,
    }
}

/// The controllers we know in a list such as `cpuset cpu io memory pids`.
pub(super) fn controllers(list: &str) -> BTreeSet<Controller> {
    Controller::ALL.into_iter().filter(|c| list.split_whitespace().any(|word| Some(word) == c.name_v2())).collect()
}

fn is_cgroup(directory: &Path, version: Version, file_system: FileSystem) -> bool {
    match file_system {
        FileSystem::Kernel => {
            let magic = match version {
                Version::One => MAGIC_V1,
                Version::Two => MAGIC_V2,
            };
            #[allow(clippy::unnecessary_cast, clippy::cast_lossless, reason = "the type of f_type differs between architectures")]
            let found = |stat: rustix::fs::StatFs| stat.f_type as i64 == magic;
            rustix::fs::statfs(directory).is_ok_and(found)
        }
        #[cfg(test)]
        FileSystem::Any => directory.is_dir(),
    }
}

fn why_not_v2(place: Option<&Place>, controller: Controller, candidates: &[Candidate]) -> String {
    let name = controller.name_v2().unwrap_or("freezer");
    match place {
        None => format!("no control group hierarchy with `{name}` is mounted where this process can see it"),
        Some(place) if candidates.is_empty() => {
            format!("no group can be made in or above `{}`", place.directory.display())
        }
        Some(place) => format!("`{name}` cannot be enabled for children of `{}` or of a group above it", place.directory.display()),
    }
}
