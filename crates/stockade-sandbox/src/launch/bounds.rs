//! What a launcher does at all: fixed when it starts, whatever is asked of it later.

use std::path::{Path, PathBuf};

use stockade_core::escape::escape;
use stockade_core::path::SafePath;
use stockade_core::spec::{BackendKind, SandboxSpec};

/// What is fixed when a launcher starts.
#[derive(Debug)]
pub struct Bounds {
    /// The directory that holds all state.
    pub state: PathBuf,
    /// The directory that holds sockets.
    pub runtime: PathBuf,
    /// Directories of ours that nothing inside may see, nor have as its workspace.
    pub hidden: Vec<PathBuf>,
    /// Whatever is mounted lies beneath one of these.
    pub roots: Vec<PathBuf>,
    /// Walls that are raised from nothing; `local`, which is none, only where a person chose it before.
    pub walls: Vec<BackendKind>,
    /// What a person can do about a refusal.
    pub hint: String,
}

impl Bounds {
    /// Why a sandbox of this kind is not made here.
    pub fn refusal(&self, spec: &SandboxSpec) -> Option<String> {
        let mounts = spec.mounts.iter().map(|mount| mount.host.as_path());
        let git = spec.workspace.git_common.as_ref().map(SafePath::as_path);
        let mut places = mounts.chain(git).chain([spec.workspace.path.as_path()]);
        places.find_map(|place| self.refusal_of(place))
    }

    /// Why nothing is behind this wall here.
    pub fn refusal_of_wall(&self, wall: BackendKind) -> Option<String> {
        (!self.walls.contains(&wall)).then(|| format!("the wall `{wall}` was not chosen when this server started"))
    }

    /// Why this place is not shown.
    fn refusal_of(&self, place: &Path) -> Option<String> {
        let shown = escape(&place.to_string_lossy());
        if self.hidden.iter().any(|hidden| place.starts_with(hidden)) {
            return Some(format!("`{shown}` is Stockade's own"));
        }
        (!self.roots.iter().any(|root| place.starts_with(root))).then(|| format!("`{shown}` is outside the directories that are served"))
    }
}

#[cfg(test)]
mod tests {
    use stockade_core::limits::Limits;
    use stockade_core::spec::{MountMode, Workspace};

    use super::*;

    fn spec(place: &str) -> SandboxSpec {
        let place = SafePath::new(place).unwrap();
        SandboxSpec {
            workspace: Workspace { path: place.clone(), mode: MountMode::Overlay, git_common: None },
            mounts: Vec::new(),
            env: Vec::new(),
            cwd: place.clone(),
            home: place,
            exec_list: None,
            limits: Limits::default(),
            allow_degraded: std::collections::BTreeSet::new(),
            path_dirs: Vec::new(),
        }
    }

    #[test]
    fn places_outside_the_roots_and_our_own_are_refused_and_so_are_other_walls() {
        let bounds = Bounds {
            state: "/home/a/.state".into(),
            runtime: "/home/a/.run".into(),
            hidden: vec!["/home/a/.state".into()],
            roots: vec!["/home/a".into(), "/srv/x".into()],
            walls: vec![BackendKind::Jail],
            hint: String::new(),
        };
        let refused = |place: &str| bounds.refusal(&spec(place));
        assert_eq!(refused("/home/a/work"), None);
        assert_eq!(refused("/srv/x"), None);
        for place in ["/home/ab", "/srv", "/etc", "/home/a/.state", "/home/a/.state/sandboxes"] {
            assert!(refused(place).is_some(), "{place}");
        }
        assert_eq!(bounds.refusal_of_wall(BackendKind::Jail), None);
        assert!(bounds.refusal_of_wall(BackendKind::Local).is_some());
    }
}
