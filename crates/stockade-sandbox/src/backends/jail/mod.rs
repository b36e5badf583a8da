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
mod layers;
pub mod plan;
mod split;
mod starter;
mod template;
pub mod view;
mod wall;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use stockade_core::demand::{Demand, Enforcement};
use stockade_core::limits::Origin;
use stockade_core::spec::{BackendKind, MountMode, SandboxSpec};
use stockade_sys::guest::{Identity, Namespaces};
use stockade_sys::idmap::UserNamespace;
use stockade_wire::message::{Reply, Request};
use stockade_wire::plan::{Basis, Groups, JailPlan, JailReport, Network, Place};

use super::{Backend, BackendError, Running, Start};
use crate::connection::{Connection, ConnectionError, Passing};
use crate::drive::Watch;
use crate::guest::{self, Surroundings};
use crate::limits::{self, Cgroup, Frozen, Layout};
use crate::surroundings::facts::Facts;
use crate::wayout::{self, WayOut};
use hostmounts::HostMounts;
use layers::Layers;
use plan::{Inputs, Names, ProcPlace};
use starter::Starter;
pub use template::JailTemplate;
pub(crate) use template::pid_of;
use view::{Asker, View};
use wall::Wall;
pub(crate) use wall::{end, silence};

/// How far the limit per user namespace lies behind the cgroup's.
const SECOND_LINE: u64 = 64;
/// How long a guest that could not be told everything may take to say why.
const LAST_WORDS_SECONDS: u64 = 1;

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
    /// What mapped ids during the start; each is held by a process, whose end nobody needs to wait for.
    namespaces: Vec<UserNamespace>,
}

fn step(step: &str, detail: String) -> BackendError {
    BackendError::Step { step: step.into(), detail, fix: String::new() }
}

/// The name of a sandbox's control groups.
fn group_name(start: &Start<'_>) -> String {
    format!("stockade-{}", start.id)
}

/// What the guest begins with.
fn basis_of(start: &Start<'_>, starter: Starter, identity: Identity) -> Basis {
    let groups = if starter == Starter::Root { Groups::Dropped {} } else { Groups::Kept {} };
    plan::basis(identity.inside, groups, layers::scratch_bytes(start.spec), proc_place(start.spec))
}

/// Starts the guest first and plans while it makes its namespaces; the plan is sent when both are ready.
fn start_jail(start: &Start<'_>, passing: Passing) -> Result<StandingJail, BackendError> {
    let spec = start.spec;
    let mut clock = Clock::default();
    limits::check(&spec.limits)?;
    // Refused before anything is made.
    start.way_out.map(|way_out| way_out.plan(passing)).transpose()?;
    let starter = Starter::current();
    let identity = starter.identity()?;
    // Where there is only version 2, the guest is cloned into its group; elsewhere it joins when it is there, and groups are made
    // while it starts.
    let mut groups = None;
    if Layout::is_unified() {
        let layout = Layout::discover().unwrap_or_else(|_| Layout::none());
        groups = Some((Cgroup::begin(&group_name(start), &spec.limits, &layout)?, layout));
    }
    clock.mark("host: groups");

    let surroundings = Surroundings {
        namespaces: Namespaces::All,
        identity,
        join: &[],
        cgroup: groups.as_ref().and_then(|(cgroup, _)| cgroup.v2_directory()).map(AsFd::as_fd),
        programs: start.programs,
    };
    let (guest, greeted) = guest::spawn(&surroundings, Passing::Possible)?;
    let wall = Wall::around(guest);
    greeted.follow_with(&Request::Begin { basis: basis_of(start, starter, identity) });
    clock.mark("host: clone");

    let mut mounts = HostMounts::new((starter == Starter::Root).then_some(identity.outside), start.directory);
    let planned = Layers::prepare(start, &mut mounts, identity).and_then(|layers| {
        let mut open = |path: &Path, ownership| mounts.open(path, ownership);
        plan_of(start, starter, identity, &layers, &mut open, &mut clock).map(|plan| (layers, plan))
    });
    let (layers, plan) = match planned {
        Ok(planned) => planned,
        // Where the guest could not even start, that is why nothing can be mounted here either, and the better thing to tell.
        Err(error) => return Err(greeted.welcome(&wall.guest).err().unwrap_or(error)),
    };
    clock.mark("host: plan");

    let connection = greeted.welcome(&wall.guest)?;
    clock.mark("host: greeting");
    let raised = raise(start, groups, plan, &mounts.passed(), connection, wall, clock)?;
    let mut jail = stand(raised, start, starter, passing, layers)?;
    jail.namespaces = mounts.into_namespaces();
    Ok(jail)
}

/// A jail as its guest says it is.
struct Raised {
    connection: Connection,
    wall: Wall,
    report: JailReport,
    /// Directories by their names in the plan.
    exports: Vec<(String, OwnedFd)>,
    clock: Clock,
}

/// Sends the plan, makes what the guest goes into while it builds its root, and waits until it stands.
fn raise(
    start: &Start<'_>,
    groups: Option<(Cgroup, Layout)>,
    plan: JailPlan,
    mounts: &[BorrowedFd<'_>],
    mut connection: Connection,
    mut wall: Wall,
    mut clock: Clock,
) -> Result<Raised, BackendError> {
    let names: Vec<String> = plan.export.iter().map(|n| String::from_utf8_lossy(&n.0).into_owned()).collect();
    let sent = connection.send(0, &Request::Jail { plan }, mounts);
    let (place, passed) = place_of(start, groups, &group_name(start), &mut wall, &mut clock)?;
    let sent = sent.and_then(|()| connection.send(0, &Request::Enter { place }, &passed.in_order()));
    clock.mark("host: network");
    if let Some(meanwhile) = start.meanwhile {
        meanwhile();
        clock.mark("host: meanwhile");
    }
    let (report, exports) = stands(&mut connection, names, &wall, sent)?;
    clock.mark("host: jail");
    Ok(Raised { connection, wall, report, exports, clock })
}

/// Judges what the guest read back; from here on everything is as it was asked for, or there is no jail.
fn stand(raised: Raised, start: &Start<'_>, starter: Starter, passing: Passing, layers: Layers) -> Result<StandingJail, BackendError> {
    let spec = start.spec;
    let Raised { mut connection, mut wall, mut report, exports, mut clock } = raised;
    if passing == Passing::Impossible {
        connection = connection.without_passing();
    }
    let mut enforcement = enforcement::from_report(&report, &wall.cgroup, start, layers.disk_level.clone());
    starter.qualify(&mut enforcement);
    if proc_place(spec) == ProcPlace::Outer {
        enforcement::outer_proc(&mut enforcement);
    }
    wall.memory = wall.cgroup.sampled_memory();
    let alarm = start.way_out.and_then(|way_out| way_out.alarm.as_ref()).map(OwnedFd::try_clone).transpose();
    wall.alarm = alarm.map_err(|e| BackendError::Step {
        step: "way out".into(),
        detail: format!("keeping the alarm: {e}"),
        fix: "raise the limit of open files (ulimit -n)".into(),
    })?;
    if wall.memory.is_some()
        && let Err(error) = limits::sampler::memory_of_tree(wall.guest.pid as u32, u64::MAX)
    {
        enforcement::nothing_samples_memory(&mut enforcement, &error);
    }
    wall.pids = spec.limits.is_asked(Demand::Pids);
    let counted = spec.limits.pids.filter(|l| l.origin == Origin::Asked && wall.cgroup.process_rlimit().is_some());
    wall.tasks = counted.map(|l| l.value as usize);
    wall.full_is_limit = spec.limits.is_asked(Demand::Disk);
    let scratch = exports.first().map(|(_, fd)| fd.try_clone()).transpose();
    wall.scratch = scratch.map_err(|e| step("jail: export", format!("keeping the scratch file system open to measure it: {e}")))?;
    wall.disk = layers.disk_watch(spec.limits.disk.map(|l| l.value))?;
    clock.mark("host: report");
    report.steps.append(&mut clock.steps);
    let jail = StandingJail { connection, wall, enforcement, report, exports, notes: layers.notes, namespaces: Vec::new() };
    super::judge(&jail.enforcement, spec)?;
    Ok(jail)
}

/// Looks at the machine and builds the plan.
fn plan_of(
    start: &Start<'_>,
    starter: Starter,
    identity: Identity,
    layers: &Layers,
    open: &mut plan::Open<'_>,
    clock: &mut Clock,
) -> Result<JailPlan, BackendError> {
    let spec = start.spec;
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
    let executables = spec.exec_list.as_ref().map(|list| exec_list::resolve(list, &spec.path_dirs)).transpose()?;
    refuse_writable_programs(executables.as_deref().unwrap_or_default(), spec)?;
    let files = spec.mounts.iter().map(|m| m.host.as_path()).filter(|p| !p.is_dir()).map(Path::to_owned).collect();
    let authorities = start.way_out.map(authority_places).unwrap_or_default();
    let inputs = Inputs {
        files: &files,
        spec,
        view: &view,
        workspace_source: &layers.workspace_source,
        layer: layers.workspace.clone(),
        mount_layers: &layers.mounts,
        guarded: &layers.guarded,
        executables: executables.as_deref(),
        hidden: start.hidden,
        proc: proc_place(spec),
        names: if start.way_out.is_some() { Names::ThroughEgress } else { Names::AsOutside },
        authorities: &authorities,
        shown: start.way_out.map(|way_out| way_out.shown.as_slice()).unwrap_or_default(),
        agent: start.way_out.and_then(|way_out| way_out.agent.as_deref()),
    };
    Ok(plan::build(&inputs, open)?)
}

/// Which files of authorities are shown where: at our own place, at those of the system's that this machine has, and at Java's.
fn authority_places(way_out: &WayOut) -> Vec<(&Path, PathBuf)> {
    let mut places = Vec::new();
    if let Some(file) = &way_out.authorities {
        let system = wayout::shown(wayout::SYSTEM_AUTHORITIES.iter().map(PathBuf::from));
        places.extend(system.into_iter().chain([wayout::AUTHORITIES.into()]).map(|place| (file.as_path(), place)));
    }
    if let Some(file) = &way_out.java_authorities {
        places.extend(wayout::java_places().into_iter().map(|place| (file.as_path(), place)));
    }
    places
}

/// Makes what the guest goes into when its root stands: the rest of its groups, and its network namespace. The guest builds its root
/// meanwhile.
fn place_of<'a>(
    start: &Start<'a>,
    groups: Option<(Cgroup, Layout)>,
    name: &str,
    wall: &mut Wall,
    clock: &mut Clock,
) -> Result<(Place, Passed<'a>), BackendError> {
    let spec = start.spec;
    let joins = if let Some((cgroup, layout)) = groups {
        wall.cgroup = cgroup;
        wall.cgroup.complete(&spec.limits, &layout)?;
        wall.cgroup.join_files()?
    } else {
        wall.cgroup = Cgroup::create(name, &spec.limits, &Layout::discover().unwrap_or_else(|_| Layout::none()))?;
        wall.cgroup.late_join_files()?
    };
    enforcement::refuse_limits(wall.cgroup.holds(), spec)?;
    clock.mark("host: limits");
    let made = wall.guest.user_namespace.as_ref().and_then(|user| stockade_sys::network::make(user.as_fd()).ok());
    let network = if made.is_some() { Network::Passed {} } else { Network::Own {} };
    let rlimits = plan::rlimits(spec, process_rlimit(&wall.cgroup, spec));
    let way_out = start.way_out.map(|way_out| way_out.plan(Passing::Possible)).transpose()?;
    let place = Place { network, way_out, joins: joins.len() as u32, rlimits };
    Ok((place, Passed { network: made, channel: start.way_out.map(|way_out| way_out.channel.as_fd()), joins }))
}

/// What is passed with a place.
struct Passed<'a> {
    network: Option<OwnedFd>,
    channel: Option<BorrowedFd<'a>>,
    joins: Vec<OwnedFd>,
}

impl Passed<'_> {
    /// In the order that [`Place`] says.
    fn in_order(&self) -> Vec<BorrowedFd<'_>> {
        self.network.iter().map(AsFd::as_fd).chain(self.channel).chain(self.joins.iter().map(AsFd::as_fd)).collect()
    }
}

/// Waits for the report, and takes the directories that come with it, by their names in the plan.
fn stands(
    connection: &mut Connection,
    names: Vec<String>,
    wall: &Wall,
    sent: Result<(), ConnectionError>,
) -> Result<(JailReport, Vec<(String, OwnedFd)>), BackendError> {
    let patience = if sent.is_ok() { guest::PATIENCE_SECONDS } else { LAST_WORDS_SECONDS };
    let answer = match (connection.receive(patience), sent) {
        // It lives and was not told everything.
        (Err(ConnectionError::Silent(_)), Err(error)) => return Err(error.into()),
        // If it is gone, or gave up before it was told everything, its answer says why.
        (answer, _) => answer.map_err(|error| guest::lost(&wall.guest, error))?,
    };
    let report = match answer {
        (0, Reply::Jailed { report }) => report,
        (0, Reply::JailFailed { step, detail, errno }) => return Err(enforcement::explain_step(&step, &detail, errno)),
        _ => return Err(ConnectionError::OutOfTurn("something else than a report").into()),
    };
    let descriptors = connection.take_descriptors();
    if descriptors.len() != names.len() {
        let detail = format!("the guest handed over {} directories instead of {}", descriptors.len(), names.len());
        return Err(step("jail: export", detail));
    }
    Ok((report, names.into_iter().zip(descriptors).collect()))
}

/// The limit of processes that the kernel holds per user namespace. Where a cgroup counts them this is only a second line behind it,
/// so that the cgroup is the one that notices; where none does, one more than was asked for may start, so that it can be seen.
fn process_rlimit(cgroup: &Cgroup, spec: &SandboxSpec) -> u64 {
    match cgroup.process_rlimit() {
        Some(limit) if spec.limits.is_asked(Demand::Pids) => limit + 1,
        Some(limit) => limit,
        None => spec.limits.pids.map_or(u64::MAX, |pids| u64::from(pids.value) + SECOND_LINE),
    }
}

/// Where `/proc` comes from: a fresh one, unless a person allowed otherwise and the kernel will refuse it.
fn proc_place(spec: &SandboxSpec) -> ProcPlace {
    let covered = spec.allow_degraded.contains(&Demand::Processes) && Facts::gather().proc_covered;
    if covered { ProcPlace::Outer } else { ProcPlace::Fresh }
}

/// How long the host's own steps take; the guest times its own.
struct Clock {
    last: Instant,
    steps: Vec<(String, u32)>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { last: Instant::now(), steps: Vec::new() }
    }
}

impl Clock {
    /// Ends a step.
    fn mark(&mut self, step: &str) {
        self.steps.push((step.to_owned(), u32::try_from(self.last.elapsed().as_micros()).unwrap_or(u32::MAX)));
        self.last = Instant::now();
    }
}

/// A listed program that the sandbox could rewrite is no listed program.
fn refuse_writable_programs(executables: &[PathBuf], spec: &SandboxSpec) -> Result<(), BackendError> {
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

    fn counters(&self) -> Vec<OwnedFd> {
        if self.wall.is_counted() { self.wall.cgroup.counters() } else { Vec::new() }
    }

    fn process(&self) -> &OwnedFd {
        &self.wall.guest.pidfd
    }

    fn settle(&mut self) {
        self.namespaces.clear();
    }

    fn silence(&mut self) {
        self.wall.silence();
    }

    fn destroy(self: Box<Self>) {
        drop(self);
    }
}
