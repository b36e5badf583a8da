//! The jail: Linux namespaces, a new root, Landlock, seccomp and cgroups around one guest.
//!
//! ```text
//! view (facts) ─▶ plan (pure) ─▶ clone + exec the guest ─▶ guest applies the plan ─▶ read-back ─▶ judged ─▶ running
//! ```
//!
//! Behaviour on older kernels: everything needs Linux 5.12 (mount API, `mount_setattr`); overlays of ordinary users 5.11; Landlock 5.13.
//! What is missing refuses the start with the demand's name, unless a person wrote `--allow-degraded`.

mod bare;
mod enforcement;
mod exec_list;
mod hostmounts;
pub mod plan;
mod starter;
pub mod view;

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::process::{Signal, WaitId, WaitIdOptions};
use stockade_core::demand::{Demand, Enforcement, Level};
use stockade_core::spec::{BackendKind, MountMode};
use stockade_sys::guest::{Guest, Identity, Namespaces};
use stockade_wire::message::{Reply, Request};
use stockade_wire::plan::JailReport;

use super::{Backend, BackendError, Running, Start};
use crate::connection::{Connection, ConnectionError, Passing};
use crate::drive::Watch;
use crate::guard::Entry;
use crate::guest;
use crate::limits::{self, Cgroup, Frozen, JoinVersionTwo, Layout};
use crate::surroundings::facts::Facts;
use crate::workspace::kept;
use plan::{Inputs, LayerPlace, ProcPlace};
use starter::Starter;
use view::{Asker, View};

/// How far the limit per user namespace lies behind the cgroup's.
const SECOND_LINE: u64 = 64;
/// Without a limit, the scratch file system may take this part of memory.
const SCRATCH_PART: u64 = 2;
/// File systems that cannot hold the upper layer of an overlay.
const NOT_UPPER: [i64; 6] = [0x794c_7630, 0x6969, 0x6573_5546, 0x4d44, 0x0102_1997, 0xf15f];

/// The wall.
#[derive(Debug, Clone, Copy)]
pub struct Jail {
    /// Whether descriptors are passed to programs (switched off to prove that the plain stream works).
    pub passing: Passing,
}

impl Default for Jail {
    fn default() -> Self {
        Self { passing: Passing::Possible }
    }
}

impl Backend for Jail {
    fn kind(&self) -> BackendKind {
        BackendKind::Jail
    }

    fn start(&self, start: &Start<'_>) -> Result<Box<dyn Running>, BackendError> {
        match start_jail(start, self.passing) {
            Ok(jail) => Ok(Box::new(jail)),
            Err(BackendError::Obstacle { obstacle, .. }) if bare::may_stand_in(obstacle, start.spec) => {
                Ok(Box::new(bare::start(start, obstacle, self.passing)?))
            }
            Err(error) => Err(error),
        }
    }
}

/// A jail that stands.
struct StandingJail {
    connection: Connection,
    wall: Wall,
    enforcement: Enforcement,
    report: JailReport,
    exports: Vec<(String, OwnedFd)>,
    notes: Vec<String>,
}

/// The processes of a jail and what has to be looked at while programs run, because nothing tells us.
struct Wall {
    guest: Guest,
    cgroup: Cgroup,
    memory: Option<u64>,
    disk: Option<DiskWatch>,
    /// A directory of the scratch file system, to ask how full that is.
    scratch: Option<OwnedFd>,
    /// A full scratch file system is the disk limit that somebody asked for.
    full_is_limit: bool,
    pids: bool,
    /// How many processes and threads are too many, where no cgroup notices.
    tasks: Option<usize>,
    /// What a look found; it stays found.
    hit: Option<Demand>,
}

struct DiskWatch {
    upper: OwnedFd,
    limit: u64,
    next: std::time::Instant,
}

fn step(step: &str, detail: String) -> BackendError {
    BackendError::Step { step: step.into(), detail, fix: String::new() }
}

fn start_jail(start: &Start<'_>, passing: Passing) -> Result<StandingJail, BackendError> {
    let spec = start.spec;
    let mut clock = Clock::default();
    limits::check(&spec.limits)?;
    let starter = Starter::current(start.directory);
    let identity = starter.identity()?;
    let layout = Layout::discover().unwrap_or_else(|_| Layout::none());
    let cgroup = Cgroup::create(&format!("stockade-{}", start.id), &spec.limits, &layout)?;
    let mut early = Enforcement::default();
    for (demand, answer) in &cgroup.holds().0 {
        early.0.insert(*demand, answer.clone());
    }
    enforcement::refuse_limits(&early, spec)?;
    clock.mark("host: cgroup");

    let asker = Asker {
        home: start.home,
        path_dirs: &spec.path_dirs,
        roots: start.toolchain_roots,
        workspace: spec.workspace.path.as_path(),
        ids: identity.inside,
        named: starter == Starter::Ordinary,
    };
    let view = View::gather(&asker);
    clock.mark("host: view");
    let mut mounts = hostmounts::HostMounts::new((starter == Starter::Root).then_some(identity.outside), start.directory);
    let layers = Layers::prepare(start, &mut mounts, identity)?;
    let executables = spec.exec_list.as_ref().map(|list| exec_list::resolve(list, &spec.path_dirs)).transpose()?;
    refuse_writable_programs(executables.as_deref().unwrap_or_default(), spec)?;
    let files = spec.mounts.iter().map(|m| m.host.as_path()).filter(|p| !p.is_dir()).map(Path::to_owned).collect();
    let inputs = Inputs {
        files: &files,
        spec,
        view: &view,
        ids: identity.inside,
        workspace_source: &layers.workspace_source,
        layer: layers.workspace.clone(),
        mount_layers: &layers.mounts,
        guarded: &layers.guarded,
        executables: executables.as_deref(),
        processes: process_rlimit(&cgroup, spec),
        scratch_bytes: layers.scratch_bytes,
        hidden: start.hidden,
        proc: proc_place(spec),
    };
    let proc = inputs.proc;
    let plan = plan::build(&inputs, &mut |path, ownership| mounts.open(path, ownership))?;
    clock.mark("host: plan");

    let join = cgroup.join_files(JoinVersionTwo::ByFile)?;
    let mut stream = guest::spawn(Namespaces::All, identity, &join, Passing::Possible)?;
    drop(join);
    clock.mark("host: clone");
    let applied = guest::greet(&mut stream).and_then(|()| {
        clock.mark("host: greeting");
        let exports = plan.export.clone();
        stream.connection.send(0, &Request::Jail { plan }, &mounts.passed()).map_err(|e| guest::lost(&stream, e))?;
        drop(mounts);
        match stream.connection.receive(guest::PATIENCE_SECONDS).map_err(|e| guest::lost(&stream, e))? {
            (0, Reply::Jailed { report }) => Ok((report, exports)),
            (0, Reply::JailFailed { step, detail, errno }) => Err(enforcement::explain_step(&step, &detail, errno)),
            _ => Err(ConnectionError::OutOfTurn("something else than a report").into()),
        }
    });
    clock.mark("host: jail");
    let (mut report, export_names) = match applied {
        Ok(applied) => applied,
        Err(error) => {
            end(&stream.guest);
            return Err(error);
        }
    };
    let descriptors = stream.connection.take_descriptors();
    if descriptors.len() != export_names.len() {
        end(&stream.guest);
        return Err(step(
            "jail: export",
            format!("the guest handed over {} directories instead of {}", descriptors.len(), export_names.len()),
        ));
    }
    let exports: Vec<(String, OwnedFd)> =
        export_names.iter().map(|n| String::from_utf8_lossy(&n.0).into_owned()).zip(descriptors).collect();
    let mut enforcement = enforcement::from_report(&report, &cgroup, start, layers.disk_level.clone());
    starter.qualify(&mut enforcement);
    if proc == ProcPlace::Outer {
        enforcement::outer_proc(&mut enforcement);
    }
    if cgroup.sampled_memory().is_some()
        && let Err(error) = limits::sampler::memory_of_tree(stream.guest.pid as u32, u64::MAX)
    {
        enforcement::nothing_samples_memory(&mut enforcement, &error);
    }
    let scratch = exports.first().map(|(_, fd)| fd.try_clone()).transpose();
    let scratch = match scratch {
        Ok(scratch) => scratch,
        Err(error) => {
            end(&stream.guest);
            return Err(step("jail: export", format!("keeping the scratch file system open to measure it: {error}")));
        }
    };
    let connection = if passing == Passing::Possible { stream.connection } else { stream.connection.without_passing() };
    let counted = spec.limits.pids.filter(|l| l.origin == stockade_core::limits::Origin::Asked && cgroup.process_rlimit().is_some());
    let cgroup_free_tasks = counted.map(|l| l.value as usize);
    let wall = Wall {
        guest: stream.guest,
        memory: cgroup.sampled_memory(),
        cgroup,
        pids: spec.limits.is_asked(Demand::Pids),
        tasks: cgroup_free_tasks,
        full_is_limit: spec.limits.is_asked(Demand::Disk),
        scratch,
        disk: layers.disk_watch(spec.limits.disk.map(|l| l.value))?,
        hit: None,
    };
    clock.mark("host: report");
    report.steps.append(&mut clock.steps);
    let jail = StandingJail { connection, wall, enforcement, report, exports, notes: layers.notes };
    super::judge(&jail.enforcement, spec)?;
    Ok(jail)
}

/// The limit of processes that the kernel holds per user namespace. Where a cgroup counts them this is only a second line behind it,
/// so that the cgroup is the one that notices; where none does, one more than was asked for may start, so that it can be seen.
fn process_rlimit(cgroup: &Cgroup, spec: &stockade_core::spec::SandboxSpec) -> u64 {
    match cgroup.process_rlimit() {
        Some(limit) if spec.limits.is_asked(Demand::Pids) => limit + 1,
        Some(limit) => limit,
        None => spec.limits.pids.map_or(u64::MAX, |pids| u64::from(pids.value) + SECOND_LINE),
    }
}

/// Where `/proc` comes from: a fresh one, unless a person allowed otherwise and the kernel will refuse it.
fn proc_place(spec: &stockade_core::spec::SandboxSpec) -> ProcPlace {
    let covered = spec.allow_degraded.contains(&Demand::Processes) && Facts::gather().proc_covered;
    if covered { ProcPlace::Outer } else { ProcPlace::Fresh }
}

/// How long the host's own steps take; the guest times its own.
struct Clock {
    last: std::time::Instant,
    steps: Vec<(String, u32)>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { last: std::time::Instant::now(), steps: Vec::new() }
    }
}

impl Clock {
    /// Ends a step.
    fn mark(&mut self, step: &str) {
        self.steps.push((step.to_owned(), u32::try_from(self.last.elapsed().as_micros()).unwrap_or(u32::MAX)));
        self.last = std::time::Instant::now();
    }
}

/// A listed program that the sandbox could rewrite is no listed program.
fn refuse_writable_programs(executables: &[PathBuf], spec: &stockade_core::spec::SandboxSpec) -> Result<(), BackendError> {
    let mut writable = spec.mounts.iter().filter(|m| m.mode == MountMode::Rw).map(|m| m.host.as_path()).collect::<Vec<_>>();
    if spec.workspace.mode == MountMode::Rw {
        writable.push(spec.workspace.path.as_path());
    }
    match executables.iter().find(|program| writable.iter().any(|directory| program.starts_with(directory))) {
        None => Ok(()),
        Some(program) => Err(BackendError::Step {
            step: "exec list".into(),
            detail: format!("`{}` lies where the sandbox may write", stockade_core::escape::escape(&program.to_string_lossy())),
            fix: "use --workspace-mode overlay or ro".into(),
        }),
    }
}

/// Where writes to the workspace and to further mounts go.
struct Layers {
    workspace: LayerPlace,
    workspace_source: PathBuf,
    mounts: Vec<LayerPlace>,
    guarded: Vec<Entry>,
    scratch_bytes: u64,
    disk_level: (Level, String),
    upper: Option<PathBuf>,
    notes: Vec<String>,
}

impl Layers {
    fn prepare(start: &Start<'_>, mounts: &mut hostmounts::HostMounts, identity: Identity) -> Result<Self, BackendError> {
        let spec = start.spec;
        let workspace = spec.workspace.path.as_path();
        let memory = memory_total();
        let disk = spec.limits.disk;
        let scratch_bytes = disk.map_or(u64::MAX, |l| l.value).min(memory / SCRATCH_PART);
        let in_memory = match disk {
            // Somebody asked for a limit: only a file system of that size holds it for certain.
            Some(limit) if limit.origin == stockade_core::limits::Origin::Asked => Some("a file system of that size in memory"),
            _ if start.directory.starts_with(workspace) => Some("the state directory lies inside the workspace"),
            _ if !holds_upper(start.directory) => Some("the state directory's file system cannot hold an overlay"),
            _ => None,
        };
        if let Some(limit) = disk.filter(|l| l.origin == stockade_core::limits::Origin::Asked && l.value > memory / SCRATCH_PART)
            && !spec.allow_degraded.contains(&Demand::Disk)
        {
            return Err(BackendError::Demand {
                demand: Demand::Disk,
                why: format!("a limit of {} MiB is held in memory, and this machine has {} MiB", limit.value >> 20, memory >> 20),
                fix: format!("ask for at most {}M, or --allow-degraded disk", (memory / SCRATCH_PART) >> 20),
            });
        }
        let place = |name: &str| -> Result<LayerPlace, BackendError> {
            if in_memory.is_some() {
                return Ok(LayerPlace::Scratch(name.to_owned()));
            }
            let directory = start.directory.join(name);
            make_layer(&directory).map_err(|e| step("making the overlay's layer", e.to_string()))?;
            Ok(LayerPlace::Host(directory))
        };
        let mut workspace_source = workspace.to_owned();
        let mut notes = Vec::new();
        if let Some(why) = in_memory.filter(|_| spec.workspace.mode == MountMode::Overlay && !spec.limits.is_asked(Demand::Disk)) {
            notes.push(format!("changes are held in memory until the end: {why}"));
        }
        let mode = spec.workspace.mode;
        if mode != MountMode::Ro && !mounts.can_map(workspace) {
            if mode == MountMode::Rw {
                return Err(BackendError::Step {
                    step: "mounting the workspace".into(),
                    detail: "its file system cannot map owners, so root cannot give it to the sandbox's user read-write".into(),
                    fix: "use --workspace-mode overlay, or run Stockade as the owner of the files".into(),
                });
            }
            if start.directory.starts_with(workspace) {
                return Err(BackendError::Step {
                    step: "copying the workspace".into(),
                    detail: "the state directory lies inside it".into(),
                    fix: "set XDG_STATE_HOME to a place outside".into(),
                });
            }
            workspace_source = start.directory.join("copy");
            notes.push("the workspace was copied: its file system cannot map owners, and root started this".to_owned());
            let from = fs::File::open(workspace).map_err(|e| step("copying the workspace", e.to_string()))?;
            let ownership = kept::Ownership::User { uid: identity.outside.0, gid: identity.outside.1 };
            kept::copy_tree(from.as_fd(), &workspace_source, ownership).map_err(|e| step("copying the workspace", e.to_string()))?;
        }
        let layer = if mode == MountMode::Overlay { place("layer")? } else { LayerPlace::Scratch("layer".into()) };
        let mut mount_layers = Vec::new();
        for (index, mount) in spec.mounts.iter().enumerate() {
            let name = format!("mount-{index}");
            mount_layers.push(if mount.mode == MountMode::Overlay { place(&name)? } else { LayerPlace::Scratch(name) });
        }
        let guarded = start.guard.entries().map_err(|e| step("looking for protected paths", e))?;
        let writes_host = mode == MountMode::Rw || spec.mounts.iter().any(|m| m.mode == MountMode::Rw);
        let on_disk = mode == MountMode::Overlay || spec.mounts.iter().any(|m| m.mode == MountMode::Overlay);
        let disk_level = match (in_memory, writes_host, on_disk) {
            (_, true, _) => (Level::Partial, "writes to the host's own files are limited per file only".to_owned()),
            (Some(how), false, _) => (Level::Enforced, format!("writes are held in {} MiB of memory: {how}", scratch_bytes >> 20)),
            (None, false, false) => (Level::Enforced, format!("only {} MiB of memory can be written", scratch_bytes >> 20)),
            (None, false, true) => (Level::Partial, "the overlay is measured while programs run".to_owned()),
        };
        let upper = match &layer {
            LayerPlace::Host(directory) => Some(directory.join("upper")),
            LayerPlace::Scratch(_) => None,
        };
        Ok(Self { workspace: layer, workspace_source, mounts: mount_layers, guarded, scratch_bytes, disk_level, upper, notes })
    }

    fn disk_watch(&self, limit: Option<u64>) -> Result<Option<DiskWatch>, BackendError> {
        let (Some(upper), Some(limit)) = (&self.upper, limit) else { return Ok(None) };
        let upper = fs::File::open(upper).map_err(|e| step("opening the overlay's layer", e.to_string()))?.into();
        Ok(Some(DiskWatch { upper, limit, next: std::time::Instant::now() }))
    }
}

/// Makes `upper` and `work`, with an upper directory that has the mode people expect of a workspace.
fn make_layer(directory: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700).recursive(true).create(directory)?;
    // A forked sandbox brings its upper directory along.
    builder.mode(0o755).create(directory.join("upper"))?;
    builder.create(directory.join("work"))
}

fn holds_upper(directory: &Path) -> bool {
    rustix::fs::statfs(directory).is_ok_and(|s| !NOT_UPPER.contains(&s.f_type))
}

fn memory_total() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
}

impl Running for StandingJail {
    fn parts(&mut self) -> (&mut Connection, &mut dyn Watch) {
        (&mut self.connection, &mut self.wall)
    }

    fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    fn steps(&self) -> &[(String, u32)] {
        &self.report.steps
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn freeze(&mut self, frozen: Frozen) -> Result<(), BackendError> {
        if self.wall.cgroup.can_freeze() {
            return Ok(self.wall.cgroup.freeze(frozen)?);
        }
        let id = self.connection.fresh_id();
        self.connection.send(id, &Request::Freeze { frozen: frozen == Frozen::Yes }, &[])?;
        match self.connection.answer_to(id, guest::PATIENCE_SECONDS)? {
            Reply::Done {} => Ok(()),
            Reply::Failed { message, .. } => Err(step("freezing", message)),
            _ => Err(ConnectionError::OutOfTurn("something else than an end of freezing").into()),
        }
    }

    fn take_exports(&mut self) -> Vec<(String, OwnedFd)> {
        std::mem::take(&mut self.exports)
    }

    fn process(&self) -> &OwnedFd {
        &self.wall.guest.pidfd
    }

    fn destroy(self: Box<Self>) {
        drop(self);
    }
}

impl Watch for Wall {
    fn tick(&mut self) -> Option<Demand> {
        if self.hit.is_none() {
            self.hit = self.look();
        }
        self.hit
    }

    fn is_needed(&self) -> bool {
        true
    }

    fn kill(&mut self) {
        end(&self.guest);
    }
}

impl Wall {
    fn look(&mut self) -> Option<Demand> {
        let sample = self.cgroup.sample();
        if let Some(lost) = sample.lost {
            // Somebody outside took a limit away that was promised.
            return Some(lost);
        }
        if let Some(hit) = sample.hit {
            // Running into the limit of processes only makes forks fail, unless somebody asked for it.
            if hit != Demand::Pids || self.pids {
                return Some(hit);
            }
        }
        if let Some(limit) = self.tasks
            && limits::sampler::tasks_below(self.guest.pid as u32).is_ok_and(|tasks| tasks > limit)
        {
            return Some(Demand::Pids);
        }
        let scratch = self.scratch.as_ref().and_then(|fd| rustix::fs::fstatfs(fd).ok());
        if let Some(limit) = self.memory {
            // Files of the scratch file system are memory too, though no process maps them.
            let files = scratch.as_ref().map_or(0, |s| (s.f_blocks - s.f_bfree).saturating_mul(s.f_bsize as u64));
            let processes = limits::sampler::memory_of_tree(self.guest.pid as u32, limit).map_or(0, |used| used.bytes);
            if files.saturating_add(processes) > limit {
                return Some(Demand::Memory);
            }
        }
        if self.full_is_limit && scratch.is_some_and(|s| s.f_bavail == 0) {
            return Some(Demand::Disk);
        }
        let now = std::time::Instant::now();
        if let Some(disk) = self.disk.as_mut().filter(|d| now >= d.next) {
            let used = limits::disk::usage(disk.upper.as_fd(), disk.limit, limits::disk::Bounds::default());
            // A large tree is looked at less often: looking may take a twentieth of the time at most.
            disk.next = std::time::Instant::now() + now.elapsed().saturating_mul(20).max(std::time::Duration::from_millis(200));
            if used.is_ok_and(|u| u.bytes > disk.limit) {
                return Some(Demand::Disk);
            }
        }
        None
    }
}

impl Drop for Wall {
    fn drop(&mut self) {
        end(&self.guest);
    }
}

/// Kills the guest, and with it the whole pid namespace, and waits until it is gone.
fn end(guest: &Guest) {
    // Both fail only when it is gone already.
    let _ = rustix::process::pidfd_send_signal(&guest.pidfd, Signal::KILL);
    let _ = rustix::process::waitid(WaitId::PidFd(guest.pidfd.as_fd()), WaitIdOptions::EXITED);
}
