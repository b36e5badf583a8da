//! Where things are: the repository, the target directory, the cache outside the clone.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;

/// The repository and the directories this tool builds in.
pub(crate) struct Workspace {
    root: PathBuf,
    target: Target,
}

/// Where cargo builds.
enum Target {
    /// Cargo's own choice: `CARGO_TARGET_DIR` or `target` in the clone.
    CargoChooses(PathBuf),
    /// In the cache, so that a fresh clone on the same machine finds what the last one built.
    Shared(PathBuf),
}

impl Workspace {
    /// The repository that `cargo xtask` was called in. Where the tool was compiled may be another clone that shares the target directory.
    pub(crate) fn find() -> Result<Self, Failure> {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest.parent().map(Path::to_path_buf).ok_or_else(|| Failure::new("xtask has no parent directory"))?;
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let target = match std::env::var_os("CARGO_TARGET_DIR").filter(|value| !value.is_empty()) {
            Some(directory) => Target::CargoChooses(root.join(directory)),
            None if is_set("CI") => Target::Shared(cache_directory()?.join("target")),
            None => Target::CargoChooses(root.join("target")),
        };
        Ok(Self { root, target })
    }

    /// The top of the repository.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where cargo puts what it builds.
    pub(crate) fn target_directory(&self) -> &Path {
        match &self.target {
            Target::CargoChooses(path) | Target::Shared(path) => path,
        }
    }

    /// The `stockade` binary as the `ci` profile builds it.
    pub(crate) fn binary(&self) -> PathBuf {
        self.target_directory().join("ci").join("stockade")
    }

    /// A cargo command in the repository, with the chosen target directory.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root);
        if let Target::Shared(path) = &self.target {
            command.env("CARGO_TARGET_DIR", path);
        }
        command
    }
}

/// `${XDG_CACHE_HOME:-$HOME/.cache}/stockade-ci`: tools and builds that outlive one clone.
pub(crate) fn cache_directory() -> Result<PathBuf, Failure> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    base.map(|base| base.join("stockade-ci")).ok_or_else(|| Failure::new("neither XDG_CACHE_HOME nor HOME is set"))
}
