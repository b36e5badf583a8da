//! A template of jails: one guest that holds what they share, and makes a fresh clone of itself for each.
//!
//! ```text
//! prepare:  guest ─▶ plan ─▶ split ─▶ Mould ─▶ Moulded
//! start:    Clone ─▶ (the clone makes namespaces │ layers made) ─▶ Begin, Jail ─▶ (it builds │ cgroup made) ─▶ Enter ─▶ Jailed ─▶ judged ─▶ running
//! ```
//!
//! A jail from a template goes through the same steps, is read back the same way and is judged by the same code as one from nothing. Its pid
//! namespace lies inside the template's, so it ends with the template at the latest, and the template ends with the stream to its owner.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sha2::{Digest as _, Sha256};
use stockade_core::spec::SandboxSpec;
use stockade_sys::guest::{Guest, Identity, Namespaces};
use stockade_wire::codec;
use stockade_wire::message::{Reply, Request};
use stockade_wire::plan::{Basis, Groups, Item, JailPlan, Source, TemplatePlan};

use super::hostmounts::HostMounts;
use super::layers::Layers;
use super::plan::{Ownership, ProcPlace};
use super::starter::Starter;
use super::wall::Wall;
use super::{Clock, basis_of, enforcement, plan_of, proc_place, raise, split, stand, step};
use crate::backends::{BackendError, Running, Start};
use crate::connection::{Connection, ConnectionError, Haste, Passing};
use crate::guest::{self, Surroundings};
use crate::limits;
use crate::wayout;

/// A template that stands. Dropping it ends it and every jail that came from it.
pub struct JailTemplate {
    wall: Wall,
    connection: Mutex<Connection>,
    mounts: Mutex<HostMounts>,
    /// What each clone begins with.
    basis: Basis,
    /// What each clone builds for itself.
    plan: JailPlan,
    layers: Layers,
    /// The directory that the plan's layers lie in.
    directory: PathBuf,
    /// Where clones find the directory of all sandboxes; not for root, whose mounts are passed.
    state: Option<String>,
    namespaces: Vec<(String, u64)>,
    starter: Starter,
    passing: Passing,
    /// What was seen of the host when it was made.
    seen: Seen,
}

/// A digest of everything on the host that a template was made of: the whole plan, where each place of it is, and of files when they last
/// changed.
#[derive(PartialEq, Eq)]
struct Seen([u8; 32]);

impl JailTemplate {
    /// Makes a template. `start` names a directory of its own, which must live as long as the template.
    pub fn prepare(start: &Start<'_>, passing: Passing) -> Result<Self, BackendError> {
        let spec = start.spec;
        limits::check(&spec.limits)?;
        refuse_way_out(start)?;
        if proc_place(spec) == ProcPlace::Outer {
            return Err(step("preparing a template", "the kernel refuses a fresh /proc here".into()));
        }
        let starter = Starter::current();
        let identity = starter.identity()?;
        // It is in no control group: it runs no program.
        let surroundings = Surroundings { namespaces: Namespaces::All, identity, join: &[], cgroup: None, programs: start.programs };
        let (process, greeted) = guest::spawn(&surroundings, Passing::Possible)?;
        let wall = Wall::around(process);
        let mut mounts = HostMounts::new((starter == Starter::Root).then_some(identity.outside), all_sandboxes(start.directory)?);
        let planned = plan(start, starter, identity, &mut mounts);
        let seen = planned.as_ref().ok().map(|(layers, ..)| see(start, starter, identity, layers)).transpose();
        let (layers, plan, split) = match planned {
            Ok(planned) => planned,
            Err(error) => return Err(greeted.welcome(&wall.guest).err().unwrap_or(error)),
        };
        let mut kept = split.kept;
        let state = match starter {
            Starter::Root => None,
            Starter::BoundRoot | Starter::Ordinary => {
                kept.push(mounts.open(all_sandboxes(start.directory)?, Ownership::System)?);
                Some(split::kept_at(kept.len() - 1))
            }
        };
        let basis = basis_of(start, starter, identity);
        let mould = TemplatePlan { uid: basis.uid, gid: basis.gid, groups: basis.groups, items: split.shared, kept };
        let mut connection = greeted.welcome(&wall.guest)?;
        let lost = |e| guest::lost(&wall.guest, e);
        connection.send(0, &Request::Mould { plan: mould }, &mounts.passed()).map_err(lost)?;
        let namespaces = match connection.receive(guest::PATIENCE_SECONDS).map_err(lost)? {
            (0, Reply::Moulded { namespaces, .. }) => namespaces,
            (0, Reply::JailFailed { step, detail, errno }) => return Err(enforcement::explain_step(&step, &detail, errno)),
            _ => return Err(ConnectionError::OutOfTurn("something else than a template").into()),
        };
        drop(mounts.take_passed());
        Ok(Self {
            wall,
            connection: Mutex::new(connection),
            mounts: Mutex::new(mounts),
            // The template dropped the groups, and the kernel lets nobody in its clones' user namespaces ask again.
            basis: Basis { groups: Groups::Kept {}, items: Vec::new(), ..basis },
            plan: JailPlan { items: split.own, ..plan },
            layers,
            directory: start.directory.to_owned(),
            state,
            namespaces,
            starter,
            passing,
            seen: seen?.ok_or_else(|| step("preparing a template", "there is no plan".into()))?,
        })
    }

    /// Whether a jail that is planned now would be the same: nothing that it is made of was moved, exchanged or changed since, and there is
    /// nothing new to hide. `start` repeats what the template was prepared with.
    pub fn is_true(&self, start: &Start<'_>) -> bool {
        let identity = self.starter.identity();
        identity.is_ok_and(|identity| see(start, self.starter, identity, &self.layers).is_ok_and(|seen| seen == self.seen))
    }

    /// A fresh jail of the template's specification, which `start` repeats, with an id and a directory of its own.
    pub fn start(&self, start: &Start<'_>, haste: Haste) -> Result<Box<dyn Running>, BackendError> {
        refuse_way_out(start)?;
        let mut clock = Clock::default();
        let (wall, mut connection) = self.clone_guest(haste)?;
        connection.set_haste(haste);
        // If it is gone already, its answer says why.
        let _ = connection.send(0, &Request::Begin { basis: self.basis.clone() }, &[]);
        clock.mark("host: clone");
        let layers = self.layers.anew(&self.directory, start.directory)?;
        let (plan, passed) = self.plan_for(start)?;
        clock.mark("host: plan");
        let mounts: Vec<BorrowedFd<'_>> = passed.iter().map(AsFd::as_fd).collect();
        let raised = raise(start, None, plan, &mounts, connection, wall, clock)?;
        drop(passed);
        if let Some((name, _)) = raised.report.namespaces.iter().find(|namespace| self.namespaces.contains(namespace)) {
            return Err(step("jail: read back", format!("the jail shares its {name} namespace with its template")));
        }
        let mut standing = stand(raised, start, self.starter, self.passing, layers)?;
        // Whoever takes it waits for what it does.
        standing.parts().0.set_haste(Haste::Somebody);
        Ok(Box::new(standing))
    }

    /// Has the template clone itself: the clone's process and the stream to it.
    fn clone_guest(&self, haste: Haste) -> Result<(Wall, Connection), BackendError> {
        let failed = |what: &str, errno: Errno| step("starting the guest", format!("{what}: {errno}"));
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|e| failed("making the control stream", e))?;
        let mut template = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        template.set_haste(haste);
        let lost = |e| guest::lost(&self.wall.guest, e);
        template.send(0, &Request::Clone {}, &[theirs.as_fd()]).map_err(lost)?;
        match template.receive(guest::PATIENCE_SECONDS).map_err(lost)? {
            (0, Reply::Cloned {}) => {}
            (0, Reply::JailFailed { step, detail, errno }) => return Err(enforcement::explain_step(&step, &detail, errno)),
            _ => return Err(ConnectionError::OutOfTurn("something else than a clone").into()),
        }
        let pidfd = template.take_descriptors().pop().ok_or(ConnectionError::OutOfTurn("a clone without its process"))?;
        drop(template);
        let pid = pid_of(&pidfd).ok_or_else(|| step("starting the guest", "the clone ended at once".into()))?;
        // What a guest from nothing could not do before its exec it tells here; a clone has its stream for that.
        let failure = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| failed("opening the null device", e))?;
        Ok((Wall::around(Guest::adopted(pid, pidfd, failure)), Connection::new(ours, Passing::Possible)))
    }

    /// The plan with the layers of one jail, and mounts to pass with it.
    fn plan_for(&self, start: &Start<'_>) -> Result<(JailPlan, Vec<OwnedFd>), BackendError> {
        let mut plan = self.plan.clone();
        let mut mounts = self.mounts.lock().unwrap_or_else(PoisonError::into_inner);
        for item in &mut plan.items {
            let Item::Overlay { layer, .. } = item else { continue };
            let Some(name) = own_layer(layer, &self.directory) else { continue };
            let directory = start.directory.join(&name);
            *layer = match &self.state {
                None => mounts.open(&directory, Ownership::Write)?,
                Some(state) => {
                    let stat = rustix::fs::lstat(&directory).map_err(|e| step("opening the overlay's layer", e.to_string()))?;
                    let path = Path::new(state).join(start.id.as_str()).join(name);
                    Source::Host { path: path.as_os_str().as_bytes().into(), dev: stat.st_dev as u64, ino: stat.st_ino as u64 }
                }
            };
        }
        Ok((plan, mounts.take_passed()))
    }
}

/// Plans a jail without opening anything.
fn see(start: &Start<'_>, starter: Starter, identity: Identity, layers: &Layers) -> Result<Seen, BackendError> {
    let mut digest = Sha256::new();
    let mut look = |path: &Path, _: Ownership| {
        let (mut dev, mut ino) = (0, 0);
        // Layers are each jail's own.
        if !path.starts_with(start.directory)
            && let Ok(found) = std::fs::metadata(path)
        {
            (dev, ino) = (found.dev(), found.ino());
            if found.is_file() {
                digest.update(format!("{:?}", (found.size(), found.ctime(), found.ctime_nsec())));
            }
        }
        Ok(Source::Host { path: path.as_os_str().as_bytes().into(), dev, ino })
    };
    let plan = plan_of(start, starter, identity, layers, &mut look, &mut Clock::default())?;
    for hidden in plan.items.iter().filter_map(hidden) {
        // What is not there is not covered; what was put there since is not covered either.
        for place in outside(hidden, start.spec) {
            let found = std::fs::symlink_metadata(&place).ok().map(|found| (found.dev(), found.ino()));
            digest.update(format!("{found:?}"));
        }
    }
    digest.update(codec::to_bytes(&Request::Jail { plan }));
    Ok(Seen(digest.finalize().into()))
}

/// The path that an item covers, if it does so only where something is.
fn hidden(item: &Item) -> Option<&Path> {
    match item {
        Item::Mask { path, .. } | Item::Redirect { path, .. } => Some(Path::new(std::ffi::OsStr::from_bytes(&path.0))),
        Item::Directory { .. }
        | Item::Symlink { .. }
        | Item::File { .. }
        | Item::Bind { .. }
        | Item::Overlay { .. }
        | Item::Proc { .. }
        | Item::Devices { .. }
        | Item::Agent { .. }
        | Item::Seed { .. } => None,
    }
}

/// Where on the host a path of the sandbox may lie: at itself, or in a directory that is shown elsewhere.
fn outside<'a>(path: &'a Path, spec: &'a SandboxSpec) -> impl Iterator<Item = PathBuf> + 'a {
    let shown = spec.mounts.iter().filter_map(move |mount| Some(mount.host.as_path().join(path.strip_prefix(mount.guest.as_path()).ok()?)));
    std::iter::once(path.to_owned()).chain(shown)
}

/// The resolver's settings are in the part of the root that all jails share, and each would need a channel of its own.
fn refuse_way_out(start: &Start<'_>) -> Result<(), BackendError> {
    wayout::refuse(start.way_out, "jails from a template have no way out in this version", "start the sandbox without a template")
}

/// Plans a jail in the template's directory and splits the plan.
fn plan(
    start: &Start<'_>,
    starter: Starter,
    identity: Identity,
    mounts: &mut HostMounts,
) -> Result<(Layers, JailPlan, split::Split), BackendError> {
    let layers = Layers::prepare(start, mounts, identity)?;
    if layers.workspace_source != start.spec.workspace.path.as_path() {
        return Err(BackendError::Step {
            step: "preparing a template".into(),
            detail: "the workspace would have to be copied for each jail: its file system cannot map owners".into(),
            fix: "run Stockade as the owner of the files".into(),
        });
    }
    let mut open = |path: &Path, ownership: Ownership| {
        if path.starts_with(start.directory) {
            // A layer: each jail has its own in its place.
            return Ok(Source::Host { path: path.as_os_str().as_bytes().into(), dev: 0, ino: 0 });
        }
        mounts.open(path, ownership)
    };
    let plan = plan_of(start, starter, identity, &layers, &mut open, &mut Clock::default())?;
    let basis = basis_of(start, starter, identity).items;
    let split = split::split(basis.iter().chain(&plan.items)).map_err(|path| {
        let shown = stockade_core::escape::escape_bytes(&path.0);
        step("preparing a template", format!("`{shown}` would cover what each jail has for itself"))
    })?;
    Ok((layers, plan, split))
}

/// The name of a layer in the directory of a template.
fn own_layer(layer: &Source, directory: &Path) -> Option<PathBuf> {
    match layer {
        Source::Host { path, .. } => Path::new(std::ffi::OsStr::from_bytes(&path.0)).strip_prefix(directory).ok().map(Path::to_owned),
        Source::Passed { .. } | Source::Scratch { .. } => None,
    }
}

fn all_sandboxes(directory: &Path) -> Result<&Path, BackendError> {
    directory.parent().ok_or_else(|| step("preparing a template", "its directory has no parent".into()))
}

/// The number of a process as this process counts it.
pub(crate) fn pid_of(pidfd: &OwnedFd) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok()).filter(|pid| *pid > 0)
}
