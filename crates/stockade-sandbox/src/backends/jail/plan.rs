//! From a specification and a view of the machine to the plan of a jail: pure, printable, comparable.
//!
//! How a directory of the host gets into the plan differs for root (a detached, idmapped mount is passed) and ordinary users (the guest
//! opens the path in its own mount table); the caller gives that as a function, so that tests need no kernel.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use stockade_core::demand::Demand;
use stockade_core::spec::{MountMode, SandboxSpec};
use stockade_wire::codec::Bytes;
use stockade_wire::plan::{Access, Basis, Execution, Groups, Item, JailPlan, Landlock, Layer, Resource, Source};

use super::view::{SystemEntry, View};
use crate::guard::Entry;
use crate::wayout::{Shown, Use};

/// Where private copies of git configurations live inside.
pub const REDIRECTS: &str = "/run/stockade";

/// Files of `/proc` that say or do something about the whole machine.
const PROC_MASKS: [&str; 9] = [
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/key-users",
    "/proc/kallsyms",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/sched_debug",
    "/proc/scsi",
];

/// Whose files a mount shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// The system's: shown as they are.
    System,
    /// The person's, to be read.
    Read,
    /// The person's, to be written.
    Write,
}

/// Where an overlay keeps what is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayerPlace {
    /// A directory of the host.
    Host(PathBuf),
    /// The sandbox's scratch file system; the directory is handed to the host at the end.
    Scratch(String),
}

/// Where `/proc` comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcPlace {
    /// A new one, of the sandbox's own pid namespace.
    Fresh,
    /// The one around it, read-only: where the kernel refuses a new one and a person allowed that.
    Outer,
}

/// Who answers questions about names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// Whoever the machine's settings name; without a way out that is nobody.
    AsOutside,
    /// Egress, which the guest asks.
    ThroughEgress,
}

/// The resolver's settings inside, where egress answers.
const RESOLVER: &str = "nameserver 127.0.0.1\n";
/// The names that nobody is asked for, where egress answers. The machine's own list would lead past it, to addresses it knows no name of.
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 stockade\n";

/// Everything a plan is built from.
pub struct Inputs<'a> {
    /// What is wanted.
    pub spec: &'a SandboxSpec,
    /// What the machine has.
    pub view: &'a View,
    /// Where the lower side of the workspace really is (a copy, where ids cannot be mapped).
    pub workspace_source: &'a Path,
    /// Where the workspace's overlay keeps its writes.
    pub layer: LayerPlace,
    /// The same for further overlays, in the order of the specification's mounts.
    pub mount_layers: &'a [LayerPlace],
    /// Protected paths of what may be written through.
    pub guarded: &'a [Entry],
    /// Mounted things that are no directories.
    pub files: &'a BTreeSet<PathBuf>,
    /// Files that may be executed, when there is a list.
    pub executables: Option<&'a [PathBuf]>,
    /// Directories that must not be seen though they lie beneath something that is shown (our own state).
    pub hidden: &'a [PathBuf],
    /// Where `/proc` comes from.
    pub proc: ProcPlace,
    /// Who answers questions about names.
    pub names: Names,
    /// The authorities to trust: files of the host, each with a place where it is shown.
    pub authorities: &'a [(&'a Path, PathBuf)],
    /// Further files of the way out, at places of our own.
    pub shown: &'a [Shown],
    /// Where programs find the agent of SSH, if there is one for them.
    pub agent: Option<&'a Path>,
}

/// A plan that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Two mounts want one place.
    #[error("`{0}` is mounted twice")]
    Collision(String),
    /// A mount would cover the system.
    #[error("`{0}` cannot be a mount target: it would replace a part of the system")]
    Covers(String),
    /// A source cannot be opened.
    #[error("mounting `{path}`: {why}")]
    Source {
        /// Which.
        path: String,
        /// Why.
        why: String,
    },
}

/// Makes the wire form of a directory of the host.
pub type Open<'f> = dyn FnMut(&Path, Ownership) -> Result<Source, PlanError> + 'f;

/// Builds the plan.
pub fn build(inputs: &Inputs<'_>, open: &mut Open<'_>) -> Result<JailPlan, PlanError> {
    let mut builder = Builder { inputs, items: Vec::new(), writable: Vec::new(), exports: vec!["tmp".into()], redirects: 0, shields: 0 };
    builder.system(open)?;
    builder.placed(open)?;
    builder.links();
    builder.guarded(open)?;
    builder.authorities(open)?;
    builder.shown(open)?;
    builder.agent()?;
    builder.hide();
    builder.executables(open)?;
    builder.kernel(open)?;
    let Builder { items, writable, exports, .. } = builder;
    let spec = inputs.spec;
    let executable = inputs.executables.map(|list| {
        let own = inputs.shown.iter().filter(|shown| shown.use_ == Use::Execute).map(|shown| bytes(&shown.place));
        list.iter().map(|path| bytes(path)).chain(own).collect()
    });
    let layer = |demand| if spec.allow_degraded.contains(&demand) { Layer::Wanted {} } else { Layer::Required {} };
    Ok(JailPlan {
        items,
        export: exports,
        landlock: Landlock { writable, executable, connectable: inputs.agent.map(bytes).into_iter().collect() },
        landlock_layer: layer(Demand::Files),
        seccomp_layer: layer(Demand::Syscalls),
        no_memory_files: inputs.executables.is_some(),
    })
}

/// The most that a crash may leave, in bytes. Not 0: that keeps the kernel from writing a file, but a host whose `core_pattern` names a
/// program would still run it, as root and outside, on memory that the sandbox chose. A limit of exactly 1 the kernel takes as "do not", and
/// it is too small for a file as well.
const CORE_BYTES: u64 = 1;

/// Limits per process. `processes` are those that the user inside may have, the guest included.
pub(super) fn rlimits(spec: &SandboxSpec, processes: u64) -> Vec<(Resource, u64)> {
    let mut limits = vec![(Resource::CoreSize {}, CORE_BYTES)];
    if let Some(files) = spec.limits.open_files {
        limits.push((Resource::OpenFiles {}, files.value));
    }
    limits.push((Resource::Processes {}, processes));
    if let Some(disk) = spec.limits.disk {
        limits.push((Resource::FileSize {}, disk.value));
    }
    limits
}

/// One thing with a place of its own, before places are ordered.
enum Placed<'a> {
    Scratch { name: &'static str, mode: u32 },
    Toolchain,
    Cache(usize),
    Workspace,
    Mount(&'a stockade_core::spec::Mount, usize),
    GitCommon,
}

struct Builder<'a, 'b> {
    inputs: &'b Inputs<'a>,
    items: Vec<Item>,
    writable: Vec<Bytes>,
    exports: Vec<Bytes>,
    redirects: usize,
    shields: usize,
}

impl<'a> Builder<'a, '_> {
    /// How files of ordinary mounts may be used: with an exec list nothing is executable but what the list adds.
    fn execution(&self) -> Execution {
        if self.inputs.executables.is_some() { Execution::Denied {} } else { Execution::Allowed {} }
    }

    fn bind(&mut self, source: Source, target: &Path, access: Access) {
        self.items.push(Item::Bind { source, target: bytes(target), access, execution: self.execution() });
    }

    fn system(&mut self, open: &mut Open<'_>) -> Result<(), PlanError> {
        for entry in &self.inputs.view.system {
            match entry {
                SystemEntry::Directory(path) => {
                    let source = open(path, Ownership::System)?;
                    self.bind(source, path, Access::ReadOnly {});
                }
                SystemEntry::Link(path, target) => self.items.push(Item::Symlink { path: bytes(path), target: bytes(target) }),
            }
        }
        for directory in ["/run", "/var", "/sys", "/mnt", "/home"] {
            // On some systems `/home` is a link, which is made when everything else stands.
            if self.inputs.view.links.contains_key(Path::new(directory)) {
                continue;
            }
            self.items.push(Item::Directory { path: directory.into(), mode: 0o755 });
        }
        self.items.push(Item::Symlink { path: "/var/run".into(), target: "/run".into() });
        for (path, contents) in [("/etc/passwd", &self.inputs.view.passwd), ("/etc/group", &self.inputs.view.group)] {
            if self.inputs.view.system.contains(&SystemEntry::Directory("/etc".into())) {
                self.items.push(Item::File { path: path.into(), contents: contents.into(), mode: 0o444 });
            }
        }
        // Where there is no such file, resolvers ask the same address.
        if let (Names::ThroughEgress, Some(path)) = (self.inputs.names, &self.inputs.view.resolver) {
            self.items.push(Item::File { path: bytes(path), contents: RESOLVER.into(), mode: 0o444 });
        }
        if let (Names::ThroughEgress, Some(path)) = (self.inputs.names, &self.inputs.view.hosts) {
            self.items.push(Item::File { path: bytes(path), contents: HOSTS.into(), mode: 0o444 });
        }
        Ok(())
    }

    /// Home, temporary directories, toolchains, caches, the workspace and further mounts: outer before inner.
    fn placed(&mut self, open: &mut Open<'_>) -> Result<(), PlanError> {
        let spec = self.inputs.spec;
        let view = self.inputs.view;
        let mut places: Vec<(PathBuf, Placed<'a>)> = vec![
            ("/tmp".into(), Placed::Scratch { name: "tmp", mode: 0o1777 }),
            ("/var/tmp".into(), Placed::Scratch { name: "var-tmp", mode: 0o1777 }),
            (spec.home.as_path().to_owned(), Placed::Scratch { name: "home", mode: 0o700 }),
            (spec.workspace.path.as_path().to_owned(), Placed::Workspace),
        ];
        for (index, mount) in spec.mounts.iter().enumerate() {
            places.push((mount.guest.as_path().to_owned(), Placed::Mount(mount, index)));
        }
        if let Some(common) = &spec.workspace.git_common {
            places.push((common.as_path().to_owned(), Placed::GitCommon));
        }
        // Who works in `/tmp`, or mounts something there, does without a fresh one.
        let named: BTreeSet<PathBuf> = places.iter().filter(|p| !matches!(p.1, Placed::Scratch { .. })).map(|p| p.0.clone()).collect();
        places.retain(|(path, placed)| !(matches!(placed, Placed::Scratch { .. }) && named.contains(path)));
        let asked: BTreeSet<PathBuf> = places.iter().map(|p| p.0.clone()).collect();
        if asked.len() != places.len() {
            let mut seen = BTreeSet::new();
            let twice = places.iter().find(|p| !seen.insert(&p.0)).map(|p| shown(&p.0)).unwrap_or_default();
            return Err(PlanError::Collision(twice));
        }
        for (path, placed) in &places {
            let kernel = ["/proc", "/sys", "/dev"].iter().any(|k| path.starts_with(k));
            let system =
                view.system.iter().any(|e| matches!(e, SystemEntry::Directory(d) | SystemEntry::Link(d, _) if d.starts_with(path)));
            if matches!(placed, Placed::Mount(..) | Placed::Workspace) && (kernel || system || path.as_path() == Path::new("/run")) {
                return Err(PlanError::Covers(shown(path)));
            }
        }
        // What a person mounted (or the workspace itself) shows its own toolchains and caches.
        let own = |path: &Path| {
            path.starts_with(&spec.workspace.path) || spec.mounts.iter().any(|m| path.starts_with(&m.guest)) || asked.contains(path)
        };
        for path in view.toolchains.iter().filter(|p| !own(p)) {
            places.push((path.clone(), Placed::Toolchain));
        }
        for (index, path) in view.caches.iter().enumerate().filter(|(_, p)| !own(p)) {
            places.push((path.clone(), Placed::Cache(index)));
        }
        places.sort_by(|a, b| (a.0.components().count(), &a.0).cmp(&(b.0.components().count(), &b.0)));
        for (path, placed) in places {
            self.place(&path, &placed, open)?;
        }
        Ok(())
    }

    fn place(&mut self, path: &Path, placed: &Placed<'_>, open: &mut Open<'_>) -> Result<(), PlanError> {
        let spec = self.inputs.spec;
        match placed {
            Placed::Scratch { name, mode } => {
                if *name == "home" && !self.inputs.view.gitconfig.is_empty() {
                    let contents = Bytes::from(&self.inputs.view.gitconfig);
                    self.items.push(Item::Bind {
                        source: Source::Scratch { name: (*name).into(), mode: *mode },
                        target: bytes(path),
                        access: Access::ReadWrite {},
                        execution: self.execution(),
                    });
                    self.items.push(Item::Seed { directory: "home".into(), name: ".gitconfig".into(), contents, mode: 0o644 });
                } else {
                    self.bind(Source::Scratch { name: (*name).into(), mode: *mode }, path, Access::ReadWrite {});
                }
                self.writable.push(bytes(path));
            }
            Placed::Toolchain => {
                let source = open(path, Ownership::Read)?;
                self.bind(source, path, Access::ReadOnly {});
            }
            Placed::Cache(index) => {
                // A cache whose owner cannot be mapped (root's, on such a file system) is still worth reading.
                let Ok(lower) = open(path, Ownership::Write) else {
                    let source = open(path, Ownership::Read)?;
                    self.bind(source, path, Access::ReadOnly {});
                    return Ok(());
                };
                let layer = Source::Scratch { name: format!("cache-{index}").into(), mode: 0o755 };
                self.items.push(Item::Overlay {
                    lower,
                    layer,
                    target: bytes(path),
                    access: Access::ReadWrite {},
                    execution: self.execution(),
                });
                self.writable.push(bytes(path));
            }
            Placed::Workspace => self.directory(self.inputs.workspace_source, path, spec.workspace.mode, &self.inputs.layer, open)?,
            Placed::Mount(mount, index) => {
                let layer = self.inputs.mount_layers.get(*index).cloned().unwrap_or_else(|| LayerPlace::Scratch(format!("mount-{index}")));
                self.directory(mount.host.as_path(), path, mount.mode, &layer, open)?;
            }
            Placed::GitCommon => {
                let layer = LayerPlace::Scratch("git-common".into());
                self.directory(path, path, spec.workspace.mode, &layer, open)?;
            }
        }
        Ok(())
    }

    fn directory(&mut self, host: &Path, target: &Path, mode: MountMode, layer: &LayerPlace, open: &mut Open<'_>) -> Result<(), PlanError> {
        match mode {
            MountMode::Ro if self.inputs.files.contains(host) => {
                let source = open(host, Ownership::Read)?;
                self.bind(source, target, Access::ReadOnly {});
            }
            // Not the directory itself but an overlay of it that cannot be written: a socket seen through an overlay is
            // not the host's, so nothing outside can be reached by connecting to one.
            MountMode::Ro => {
                let (lower, layer) = match layer {
                    // What others wrote before is seen, and cannot be written.
                    LayerPlace::Host(path) => (open(host, Ownership::Write)?, open(path, Ownership::Write)?),
                    LayerPlace::Scratch(_) => {
                        self.shields += 1;
                        let layer = Source::Scratch { name: format!("shield-{}", self.shields).into(), mode: 0o755 };
                        (open(host, Ownership::Read)?, layer)
                    }
                };
                let (target, access, execution) = (bytes(target), Access::ReadOnly {}, self.execution());
                self.items.push(Item::Overlay { lower, layer, target, access, execution });
            }
            MountMode::Rw => {
                let source = open(host, Ownership::Write)?;
                self.bind(source, target, Access::ReadWrite {});
                self.writable.push(bytes(target));
            }
            MountMode::Overlay => {
                let lower = open(host, Ownership::Write)?;
                let layer = match layer {
                    LayerPlace::Host(path) => open(path, Ownership::Write)?,
                    LayerPlace::Scratch(name) => {
                        let name = format!("layers/{name}");
                        self.exports.push(format!("{name}/upper").into());
                        Source::Scratch { name: name.into(), mode: 0o755 }
                    }
                };
                self.items.push(Item::Overlay {
                    lower,
                    layer,
                    target: bytes(target),
                    access: Access::ReadWrite {},
                    execution: self.execution(),
                });
                self.writable.push(bytes(target));
            }
        }
        Ok(())
    }

    fn guarded(&mut self, open: &mut Open<'_>) -> Result<(), PlanError> {
        for guarded in self.inputs.guarded {
            match guarded {
                Entry::ReadOnly { host, guest } => {
                    let source = open(host, Ownership::Write)?;
                    self.bind(source, guest, Access::ReadOnly {});
                }
                Entry::Pinned { host, guest } => {
                    let source = open(host, Ownership::Write)?;
                    self.bind(source, guest, Access::ReadWrite {});
                }
                Entry::Covered { guest } => self.items.push(Item::Mask { path: bytes(guest), mode: 0 }),
                Entry::Redirected { guest, contents, .. } => {
                    self.redirects += 1;
                    let name = format!("git-config-{}", self.redirects);
                    let inside = format!("{REDIRECTS}/{name}");
                    self.bind(Source::Scratch { name: name.as_str().into(), mode: 0o755 }, Path::new(&inside), Access::ReadWrite {});
                    self.items.push(Item::Seed {
                        directory: name.as_str().into(),
                        name: "config".into(),
                        contents: contents.into(),
                        mode: 0o644,
                    });
                    self.items.push(Item::Redirect { path: bytes(guest), link: format!("{inside}/config").into() });
                    self.writable.push(inside.into());
                    self.exports.push(name.into());
                }
            }
        }
        Ok(())
    }

    /// The files of authorities, over the system's own and at a place that is always there.
    fn authorities(&mut self, open: &mut Open<'_>) -> Result<(), PlanError> {
        for (file, place) in self.inputs.authorities {
            let source = open(file, Ownership::Read)?;
            let (target, access, execution) = (bytes(place), Access::ReadOnly {}, Execution::Denied {});
            self.items.push(Item::Bind { source, target, access, execution });
        }
        Ok(())
    }

    /// Files of the way out: only here, and only to be read, unless they are programs of ours.
    fn shown(&mut self, open: &mut Open<'_>) -> Result<(), PlanError> {
        if self.inputs.shown.is_empty() {
            return Ok(());
        }
        self.refuse_covered()?;
        for Shown { file, place, use_ } in self.inputs.shown {
            let source = open(file, Ownership::Read)?;
            let execution = match use_ {
                Use::Read => Execution::Denied {},
                Use::Execute => Execution::Allowed {},
            };
            self.items.push(Item::Bind { source, target: bytes(place), access: Access::ReadOnly {}, execution });
        }
        Ok(())
    }

    /// The agent's socket: the guest listens at it, and nothing of the host is behind it but egress.
    fn agent(&mut self) -> Result<(), PlanError> {
        let Some(place) = self.inputs.agent else { return Ok(()) };
        self.refuse_covered()?;
        self.items.push(Item::Agent { path: bytes(place) });
        Ok(())
    }

    /// Places of our own would be made in what a person gave.
    fn refuse_covered(&self) -> Result<(), PlanError> {
        let spec = self.inputs.spec;
        let mut given = spec.mounts.iter().map(|mount| mount.guest.as_path()).chain([spec.workspace.path.as_path(), spec.home.as_path()]);
        given.find(|path| path.starts_with(REDIRECTS)).map_or(Ok(()), |path| Err(PlanError::Covers(shown(path))))
    }

    fn hide(&mut self) {
        for path in self.inputs.view.masks.iter().chain(self.inputs.hidden) {
            // Programs of a toolchain read their own settings and stumble over a file they may not open; an empty one
            // is as good as none. Everything else may not even be opened.
            let mode = if self.inputs.view.toolchains.iter().any(|t| path.starts_with(t)) { 0o444 } else { 0 };
            self.items.push(Item::Mask { path: bytes(path), mode });
        }
        // A mount shows them under another name.
        for mount in &self.inputs.spec.mounts {
            for path in self.inputs.hidden {
                if mount.host.as_path().starts_with(path) {
                    self.items.push(Item::Mask { path: bytes(mount.guest.as_path()), mode: 0 });
                } else if let Ok(rest) = path.strip_prefix(mount.host.as_path()) {
                    self.items.push(Item::Mask { path: bytes(&mount.guest.as_path().join(rest)), mode: 0 });
                }
            }
        }
    }

    /// Links on the way to home or a toolchain, made where nothing of the host shows them anyway.
    fn links(&mut self) {
        let (spec, view) = (self.inputs.spec, self.inputs.view);
        for (path, target) in &view.links {
            let shown = path.starts_with(&spec.workspace.path)
                || spec.mounts.iter().any(|m| path.starts_with(&m.guest))
                || view.toolchains.iter().chain(&view.caches).any(|t| path.starts_with(t));
            if !shown {
                self.items.push(Item::Symlink { path: bytes(path), target: bytes(target) });
            }
        }
    }

    /// Listed programs are mounted over themselves, executable; everything else stays not executable.
    fn executables(&mut self, open: &mut Open<'_>) -> Result<(), PlanError> {
        for path in self.inputs.executables.unwrap_or_default() {
            let source = open(path, Ownership::System)?;
            self.items.push(Item::Bind { source, target: bytes(path), access: Access::ReadOnly {}, execution: Execution::Allowed {} });
        }
        Ok(())
    }

    /// The basis has the rest.
    fn kernel(&mut self, open: &mut Open<'_>) -> Result<(), PlanError> {
        if self.inputs.proc == ProcPlace::Outer {
            let (source, target) = (open(Path::new("/proc"), Ownership::System)?, "/proc".into());
            self.items.push(Item::Bind { source, target, access: Access::ReadOnly {}, execution: Execution::Denied {} });
            self.items.extend(proc_masks());
        }
        self.writable.push("/dev/shm".into());
        Ok(())
    }
}

/// What a jail begins with.
pub fn basis(ids: (u32, u32), groups: Groups, scratch_bytes: u64, proc: ProcPlace) -> Basis {
    let mut items = vec![Item::Devices { path: "/dev".into() }];
    if proc == ProcPlace::Fresh {
        items.push(Item::Proc { path: "/proc".into() });
        items.extend(proc_masks());
    }
    Basis { hostname: "stockade".into(), uid: ids.0, gid: ids.1, groups, scratch_bytes, items }
}

fn proc_masks() -> impl Iterator<Item = Item> {
    PROC_MASKS.iter().map(|path| Item::Mask { path: (*path).into(), mode: 0 })
}

fn bytes(path: &Path) -> Bytes {
    path.as_os_str().as_bytes().into()
}

fn shown(path: &Path) -> String {
    stockade_core::escape::escape_bytes(path.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests;
