//! Where the writes of a sandbox go: a layer on disk or in memory, a copy of the workspace where owners cannot be mapped.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use stockade_core::demand::{Demand, Level};
use stockade_core::limits::Origin;
use stockade_core::spec::{MountMode, SandboxSpec};
use stockade_sys::guest::Identity;

use super::plan::LayerPlace;
use super::wall::DiskWatch;
use super::{hostmounts, step};
use crate::backends::{BackendError, Start};
use crate::guard::Entry;
use crate::workspace::kept;

/// Where the workspace's overlay keeps its writes, in a sandbox's directory.
const LAYER: &str = "layer";
/// Without a limit, the scratch file system may take this part of memory.
const SCRATCH_PART: u64 = 2;
/// File systems that cannot hold the upper layer of an overlay.
const NOT_UPPER: [i64; 6] = [0x794c_7630, 0x6969, 0x6573_5546, 0x4d44, 0x0102_1997, 0xf15f];

/// Where writes to the workspace and to further mounts go.
pub(super) struct Layers {
    pub(super) workspace: LayerPlace,
    pub(super) workspace_source: PathBuf,
    pub(super) mounts: Vec<LayerPlace>,
    pub(super) guarded: Vec<Entry>,
    pub(super) disk_level: (Level, String),
    upper: Option<PathBuf>,
    pub(super) notes: Vec<String>,
}

impl Layers {
    pub(super) fn prepare(start: &Start<'_>, mounts: &mut hostmounts::HostMounts, identity: Identity) -> Result<Self, BackendError> {
        let spec = start.spec;
        let workspace = spec.workspace.path.as_path();
        let memory = memory_total();
        let disk = spec.limits.disk;
        let scratch_bytes = scratch_bytes(spec);
        let in_memory = match disk {
            // Somebody asked for a limit: only a file system of that size holds it for certain.
            Some(limit) if limit.origin == Origin::Asked => Some("a file system of that size in memory"),
            _ if start.directory.starts_with(workspace) => Some("the state directory lies inside the workspace"),
            _ if !holds_upper(start.directory) => Some("the state directory's file system cannot hold an overlay"),
            _ => None,
        };
        if let Some(limit) = disk.filter(|l| l.origin == Origin::Asked && l.value > memory / SCRATCH_PART)
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
        // Programs before this one may have left their changes here; who may only look sees them too.
        let shown = start.directory.join(LAYER);
        let shown = (mode == MountMode::Ro && shown.join("upper").is_dir()).then_some(shown);
        if (mode != MountMode::Ro || shown.is_some()) && !mounts.can_map(workspace) {
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
        let layer = match (mode, shown) {
            (MountMode::Overlay, _) => place(LAYER)?,
            (MountMode::Ro, Some(directory)) => LayerPlace::Host(directory),
            (MountMode::Ro | MountMode::Rw, _) => LayerPlace::Scratch(LAYER.into()),
        };
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
            LayerPlace::Host(directory) if mode == MountMode::Overlay => Some(directory.join("upper")),
            LayerPlace::Host(_) | LayerPlace::Scratch(_) => None,
        };
        Ok(Self { workspace: layer, workspace_source, mounts: mount_layers, guarded, disk_level, upper, notes })
    }

    /// The same layers for another sandbox of the same specification: fresh ones, in its own directory.
    pub(super) fn anew(&self, from: &Path, to: &Path) -> Result<Self, BackendError> {
        let moved = |place: &LayerPlace| match place {
            LayerPlace::Scratch(name) => Ok(LayerPlace::Scratch(name.clone())),
            LayerPlace::Host(path) => {
                let name = path.strip_prefix(from).map_err(|e| step("making the overlay's layer", e.to_string()))?;
                let directory = to.join(name);
                make_layer(&directory).map_err(|e| step("making the overlay's layer", e.to_string()))?;
                Ok(LayerPlace::Host(directory))
            }
        };
        let workspace = moved(&self.workspace)?;
        let upper = match &workspace {
            LayerPlace::Host(directory) => Some(directory.join("upper")),
            LayerPlace::Scratch(_) => None,
        };
        Ok(Self {
            workspace,
            workspace_source: self.workspace_source.clone(),
            mounts: self.mounts.iter().map(moved).collect::<Result<_, BackendError>>()?,
            guarded: self.guarded.clone(),
            disk_level: self.disk_level.clone(),
            upper,
            notes: self.notes.clone(),
        })
    }

    pub(super) fn disk_watch(&self, limit: Option<u64>) -> Result<Option<DiskWatch>, BackendError> {
        let (Some(upper), Some(limit)) = (&self.upper, limit) else { return Ok(None) };
        let upper = fs::File::open(upper).map_err(|e| step("opening the overlay's layer", e.to_string()))?.into();
        Ok(Some(DiskWatch::new(upper, limit)))
    }
}

/// Size of the scratch file system.
pub(super) fn scratch_bytes(spec: &SandboxSpec) -> u64 {
    spec.limits.disk.map_or(u64::MAX, |l| l.value).min(memory_total() / SCRATCH_PART)
}

/// Makes `upper` and `work`, with an upper directory that has the mode people expect of a workspace.
fn make_layer(directory: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700).recursive(true).create(directory)?;
    // A forked sandbox brings its upper directory along, and one whose overlay lasts longer than a program has it from the one before.
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
