//! A jail without namespaces: what can be held where the machine refuses them and a person allowed every demand that needs them.
//!
//! The guest runs as an ordinary child and confines itself: Landlock for files, a filter for system calls and sockets, no new
//! privileges, limits per process. There is no new root and no overlay; home and temporary files are a directory of the sandbox's own.
//! `docs/design/without-namespaces.md` says why it is like this. Only for ordinary users: root without namespaces would stay root.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Signal, WaitId, WaitIdOptions};
use stockade_core::demand::{Demand, Enforcement, Level};
use stockade_core::spec::{MountMode, SandboxSpec};
use stockade_sys::guest::{Guest, Identity, Namespaces};
use stockade_wire::codec::Bytes;
use stockade_wire::message::{Reply, Request};
use stockade_wire::plan::{BarePlan, JailReport, Layer};

use super::super::{BackendError, Running, Start};
use super::plan::rlimits;
use super::view::{Asker, SystemEntry, View};
use super::{enforcement, exec_list, step};
use crate::connection::{Connection, ConnectionError, Passing};
use crate::drive::Watch;
use crate::guest::{self, Surroundings};
use crate::limits::{self, Cgroup, Frozen, Layout};
use crate::surroundings::{OF_NAMESPACES, Obstacle};
use crate::wayout;

/// Rules are opened one by one; more than this and the start would take forever.
const MOST_RULES: usize = 8192;

/// Whether a failed start may go on without namespaces: they are what is missing, and every demand they hold may be missing.
pub(super) fn may_stand_in(obstacle: Obstacle, spec: &SandboxSpec) -> bool {
    obstacle.demands() == OF_NAMESPACES && OF_NAMESPACES.iter().all(|demand| spec.allow_degraded.contains(demand))
}

/// Starts it; `obstacle` is why there are no namespaces.
pub(super) fn start(start: &Start<'_>, obstacle: Obstacle, passing: Passing) -> Result<Bare, BackendError> {
    let spec = start.spec;
    refuse_impossible(spec)?;
    wayout::refuse(
        start.way_out,
        "without a network namespace nothing keeps connections on their way out",
        "run without allowed hosts, or make namespaces possible: see `stockade doctor`",
    )?;
    let ids = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let asker = Asker {
        home: start.home,
        path_dirs: &spec.path_dirs,
        roots: start.toolchain_roots,
        workspace: spec.workspace.path.as_path(),
        ids,
        named: true,
    };
    let view = View::gather(&asker);
    let executables = spec.exec_list.as_ref().map(|list| exec_list::resolve(list, &spec.path_dirs)).transpose()?;
    super::refuse_writable_programs(executables.as_deref().unwrap_or_default(), spec)?;
    let scratch = Scratch::make(start.directory).map_err(|e| step("making home and temporary files", e.to_string()))?;
    let plan = plan(start, &view, executables.as_deref(), &scratch)?;
    let layout = Layout::discover().unwrap_or_else(|_| Layout::none());
    let cgroup = Cgroup::create(&format!("stockade-{}", start.id), &spec.limits, &layout)?;
    let join = cgroup.join_files()?;
    let surroundings = Surroundings {
        namespaces: Namespaces::None,
        identity: Identity { outside: ids, inside: ids },
        join: &join,
        cgroup: cgroup.v2_directory().map(AsFd::as_fd),
        programs: start.programs,
    };
    let (guest, greeted) = guest::spawn(&surroundings, Passing::Possible)?;
    drop(join);
    // Dropping the process ends it.
    let process = Process { guest, memory: cgroup.sampled_memory(), cgroup, hit: None };
    let lost = |e| guest::lost(&process.guest, e);
    let mut connection = greeted.welcome(&process.guest)?;
    connection.send(0, &Request::Confine { plan }, &[]).map_err(lost)?;
    let report = match connection.receive(guest::PATIENCE_SECONDS).map_err(lost)? {
        (0, Reply::Jailed { report }) => report,
        (0, Reply::JailFailed { step, detail, errno }) => return Err(enforcement::explain_step(&step, &detail, errno)),
        _ => return Err(ConnectionError::OutOfTurn("something else than a report").into()),
    };
    let mut answers = answers(&report, &process.cgroup, spec, obstacle);
    if process.memory.is_some()
        && let Err(error) = limits::sampler::memory_of_tree(process.guest.pid as u32, u64::MAX)
    {
        enforcement::nothing_samples_memory(&mut answers, &error);
    }
    let connection = if passing == Passing::Possible { connection } else { connection.without_passing() };
    let mut notes = vec![format!("held without namespaces, as --allow-degraded says: {}", obstacle.why())];
    if spec.workspace.mode == MountMode::Rw {
        notes.push("protected paths that exist can be changed: nothing can be mounted over them".into());
    }
    Ok(Bare { connection, process, enforcement: answers, report, notes, environment: scratch.environment() })
}

fn refuse_impossible(spec: &SandboxSpec) -> Result<(), BackendError> {
    let refuse = |demand, why: &str, fix: &str| Err(BackendError::Demand { demand, why: why.into(), fix: fix.into() });
    if rustix::process::geteuid().is_root() {
        return refuse(
            Demand::Privileges,
            "without namespaces a program that root starts would stay root",
            "run stockade as an ordinary user",
        );
    }
    let overlay = spec.workspace.mode == MountMode::Overlay || spec.mounts.iter().any(|m| m.mode == MountMode::Overlay);
    if overlay {
        return refuse(
            Demand::Files,
            "without namespaces there is no overlay to keep changes apart",
            "--workspace-mode ro, or rw to let it change the files",
        );
    }
    if spec.mounts.iter().any(|m| m.host != m.guest) {
        return refuse(Demand::Files, "without namespaces nothing can be shown under another path", "mount it at its own path");
    }
    Ok(())
}

/// Home and temporary files, on disk.
struct Scratch {
    home: PathBuf,
    temporary: PathBuf,
    probe: PathBuf,
}

impl Scratch {
    fn make(directory: &Path) -> std::io::Result<Self> {
        let scratch = Self { home: directory.join("home"), temporary: directory.join("tmp"), probe: directory.join("probe") };
        for path in [&scratch.home, &scratch.temporary, &scratch.probe] {
            crate::state::private_directory(path)?;
        }
        Ok(scratch)
    }

    fn environment(&self) -> Vec<(String, OsString)> {
        let temporary = self.temporary.clone().into_os_string();
        let mut variables = vec![("HOME".to_owned(), self.home.clone().into_os_string())];
        variables.extend(["TMPDIR", "TMP", "TEMP"].map(|name| (name.to_owned(), temporary.clone())));
        variables
    }
}

fn plan(start: &Start<'_>, view: &View, executables: Option<&[PathBuf]>, scratch: &Scratch) -> Result<BarePlan, BackendError> {
    let spec = start.spec;
    let mut shown: Vec<PathBuf> = Vec::new();
    for entry in &view.system {
        if let SystemEntry::Directory(path) = entry {
            shown.push(path.clone());
        }
    }
    shown.extend(view.toolchains.iter().chain(&view.caches).cloned());
    let mut written = vec![scratch.home.clone(), scratch.temporary.clone()];
    let places = [(&spec.workspace.path, spec.workspace.mode)].into_iter();
    let common = spec.workspace.git_common.iter().map(|path| (path, spec.workspace.mode));
    for (path, mode) in places.chain(common).chain(spec.mounts.iter().map(|m| (&m.host, m.mode))) {
        let list = if mode == MountMode::Rw { &mut written } else { &mut shown };
        list.push(path.as_path().to_owned());
    }
    let hidden: Vec<PathBuf> = view.masks.iter().chain(start.hidden).cloned().collect();
    if let Some(path) = written.iter().skip(2).find(|path| start.hidden.iter().any(|h| h.starts_with(path))) {
        return Err(step("planning", format!("`{}` holds Stockade's own state, which nothing inside may change", path.display())));
    }
    let mut readable = Vec::new();
    for path in shown.iter().filter(|path| path.exists()) {
        without(path, &hidden, &mut readable)?;
    }
    let layer = if spec.allow_degraded.contains(&Demand::Files) { Layer::Wanted {} } else { Layer::Required {} };
    Ok(BarePlan {
        // The kernel would count every process of this user, so there is no limit of processes here.
        rlimits: rlimits(spec, u64::MAX),
        readable: readable.iter().map(|p| bytes(p)).collect(),
        writable: written.iter().map(|p| bytes(p)).collect(),
        executable: executables.map(|list| list.iter().map(|p| bytes(p)).collect()),
        landlock_layer: layer,
        probe: bytes(&scratch.probe),
    })
}

/// A directory less what is hidden in it. Landlock can only add, so its entries are named one by one where something is left out.
fn without(path: &Path, hidden: &[PathBuf], to: &mut Vec<PathBuf>) -> Result<(), BackendError> {
    if to.len() >= MOST_RULES {
        return Err(step("planning", format!("too many files around what is hidden in `{}`", path.display())));
    }
    if hidden.iter().any(|h| path.starts_with(h)) {
        return Ok(());
    }
    if !hidden.iter().any(|h| h.starts_with(path)) {
        to.push(path.to_owned());
        return Ok(());
    }
    // A directory that cannot be listed cannot be read inside either.
    let Ok(entries) = std::fs::read_dir(path) else { return Ok(()) };
    for entry in entries.flatten() {
        // Links are followed when they are opened, to a place that has its own rule or none.
        if entry.file_type().is_ok_and(|kind| kind.is_dir() || kind.is_file()) {
            without(&entry.path(), hidden, to)?;
        }
    }
    Ok(())
}

fn bytes(path: &Path) -> Bytes {
    path.as_os_str().as_bytes().into()
}

/// What holds, from what the guest read back.
fn answers(report: &JailReport, cgroup: &Cgroup, spec: &SandboxSpec, obstacle: Obstacle) -> Enforcement {
    let mut answers = Enforcement::default();
    let landlock = report.landlock_restricted && report.landlock_probe;
    let filter = report.seccomp_mode == 2 && report.seccomp_probe;
    let fix = obstacle.fix();
    let level = |held: bool, best: Level| if held { best } else { Level::Unavailable };
    let abi = report.landlock_abi;
    answers.set(
        Demand::Files,
        level(landlock, Level::Partial),
        if landlock {
            format!("Landlock version {abi} alone: names and attributes of other files can be seen")
        } else {
            "no Landlock either".into()
        },
        fix,
    );
    answers.set(
        Demand::Secrets,
        level(landlock, Level::Partial),
        if landlock {
            "clean environment; Landlock alone keeps files closed"
        } else {
            "clean environment, but every file of this user can be read"
        },
        fix,
    );
    answers.set(Demand::Network, level(filter, Level::Enforced), "no socket can be made", fix);
    let processes = match (landlock, abi >= 6) {
        (true, true) => "processes outside can be seen, not signalled or looked into; what kills its guardian may outlive it",
        (true, false) => "processes outside can be seen and signalled; what kills its guardian may outlive it",
        (false, _) => "processes of this user are within reach",
    };
    answers.set(Demand::Processes, level(landlock, Level::Partial), processes, fix);
    let plain = report.no_new_privs && report.uid != 0;
    answers.set(Demand::Privileges, level(plain, Level::Enforced), format!("user {}, no_new_privs, nothing to gain", report.uid), fix);
    answers.set(Demand::Syscalls, level(filter, Level::Enforced), "seccomp allow-list", "");
    match &spec.exec_list {
        None => answers.set(Demand::Exec, Level::Enforced, "no list was given: any program may run", ""),
        Some(_) => answers.set(Demand::Exec, level(landlock, Level::Partial), "Landlock alone: a loader can still be given a file", fix),
    }
    for (demand, answer) in &cgroup.holds().0 {
        answers.0.insert(*demand, answer.clone());
    }
    if cgroup.process_rlimit().is_some() {
        answers.set(Demand::Pids, Level::Unavailable, "no control group, and no user namespace to count in", fix);
    }
    answers.set(Demand::Disk, Level::Partial, "the size of each file is limited, their number is not", fix);
    let grouped = cgroup.paths().next().is_some();
    let how = if grouped { "the control group is killed" } else { "the tree of processes is killed; what kills its guardian lives on" };
    answers.set(Demand::Time, if grouped { Level::Enforced } else { Level::Partial }, how, fix);
    answers.set(Demand::Output, Level::Enforced, "captured output is cut at the limit", "");
    answers
}

/// A confined guest.
pub(super) struct Bare {
    connection: Connection,
    process: Process,
    enforcement: Enforcement,
    report: JailReport,
    notes: Vec<String>,
    environment: Vec<(String, OsString)>,
}

struct Process {
    guest: Guest,
    cgroup: Cgroup,
    memory: Option<u64>,
    hit: Option<Demand>,
}

impl Watch for Process {
    fn tick(&mut self) -> Option<Demand> {
        if self.hit.is_none() {
            let sample = self.cgroup.sample();
            let grouped = sample.lost.or(sample.hit.filter(|hit| *hit != Demand::Pids));
            self.hit = grouped.or_else(|| {
                let limit = self.memory?;
                let used = limits::sampler::memory_of_tree(self.guest.pid as u32, limit).ok()?;
                (used.bytes > limit).then_some(Demand::Memory)
            });
        }
        self.hit
    }

    fn is_needed(&self) -> bool {
        true
    }

    fn kill(&mut self) {
        // Asked to end, the guest takes everything below it along; one that does not is killed alone.
        let _ = rustix::process::pidfd_send_signal(&self.guest.pidfd, Signal::TERM);
        let patience = rustix::event::Timespec { tv_sec: 2, tv_nsec: 0 };
        if rustix::event::poll(&mut [PollFd::new(&self.guest.pidfd, PollFlags::IN)], Some(&patience)) != Ok(1) {
            let _ = rustix::process::pidfd_send_signal(&self.guest.pidfd, Signal::KILL);
        }
        let _ = rustix::process::waitid(WaitId::PidFd(self.guest.pidfd.as_fd()), WaitIdOptions::EXITED);
        // Where there is a group, nothing in it outlives this, whatever it did.
        let _ = self.cgroup.kill();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Running for Bare {
    fn parts(&mut self) -> (&mut Connection, &mut dyn Watch) {
        (&mut self.connection, &mut self.process)
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

    fn environment(&self) -> &[(String, OsString)] {
        &self.environment
    }

    fn freeze(&mut self, frozen: Frozen) -> Result<(), BackendError> {
        let id = self.connection.fresh_id();
        Ok(self.connection.send(id, &Request::Freeze { frozen: frozen == Frozen::Yes }, &[])?)
    }

    fn take_exports(&mut self) -> Vec<(String, OwnedFd)> {
        Vec::new()
    }

    fn process(&self) -> &OwnedFd {
        &self.process.guest.pidfd
    }

    fn silence(&mut self) {
        self.process.kill();
    }

    fn destroy(self: Box<Self>) {
        drop(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_left_out_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path();
        for path in ["a/x", "a/secret", "b/deep/secret", "b/deep/y", "b/z"] {
            std::fs::create_dir_all(top.join(path).parent().unwrap()).unwrap();
            std::fs::write(top.join(path), "").unwrap();
        }
        let hidden = [top.join("a/secret"), top.join("b/deep"), top.join("nothing/here")];
        let mut found = Vec::new();
        without(top, &hidden, &mut found).unwrap();
        found.sort();
        assert_eq!(found, [top.join("a/x"), top.join("b/z")]);
        let mut whole = Vec::new();
        without(&top.join("a"), &[], &mut whole).unwrap();
        assert_eq!(whole, [top.join("a")]);
    }
}
