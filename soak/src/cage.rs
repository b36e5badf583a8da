//! The cage around the soak: namespaces and control groups of its own, so that what is counted is the soak's alone.
//!
//! ```text
//! outside: directory, copy of the binary, groups ─▶ `unshare` ─▶ inside (the first process of its pid namespace) ─▶ all removed
//! ```
//!
//! It holds nobody back: it is there to count in, not to protect from.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use rustix::mount::{MountFlags, mount};

use crate::failure::Failure;
use crate::groups::Groups;

/// Directories in which leftovers would be temporary files; inside they are empty file systems of the cage.
pub const TEMPORARY: [&str; 2] = ["/tmp", "/dev/shm"];
/// Name of the copy of the program.
const BINARY: &str = "stockade";

/// What the inside is told.
#[derive(Debug, Clone)]
pub struct Cage {
    /// A directory of the soak's own, on a disk.
    pub base: PathBuf,
    /// Its control groups.
    pub groups: Groups,
}

impl Cage {
    /// The program under test, where everybody can execute it.
    pub fn binary(&self) -> PathBuf {
        self.base.join(BINARY)
    }

    /// Makes the inside what it should be: in its groups, with empty directories for temporary files.
    pub fn settle_in(&self) -> Result<(), Failure> {
        self.groups.join()?;
        for place in TEMPORARY {
            mount("soak", place, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"mode=1777"))
                .map_err(|e| Failure::at("mounting over", Path::new(place))(e.into()))?;
        }
        Ok(())
    }
}

/// Starts this program again inside a cage, with these words and what it needs to know, and removes the cage after it.
#[expect(clippy::disallowed_methods, reason = "starts this very program in namespaces of its own")]
pub fn run_inside(binary: &Path, words: &[OsString]) -> Result<ExitStatus, Failure> {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::NotRoot);
    }
    // Not in /tmp, which is covered inside.
    let directory = tempfile::Builder::new().prefix("stockade-soak-").tempdir_in("/var/tmp");
    let directory = directory.map_err(Failure::at("making a directory in", Path::new("/var/tmp")))?;
    let base = fs::canonicalize(directory.path()).map_err(Failure::at("looking at", directory.path()))?;
    let copy = base.join(BINARY);
    fs::copy(binary, &copy).map_err(Failure::at("copying", binary))?;
    for path in [&base, &copy] {
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).map_err(Failure::at("opening up", path))?;
    }
    let groups = Groups::make()?;
    let program = std::env::current_exe().map_err(|error| Failure::Start { program: "this program".into(), error })?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--ipc", "--"]);
    command.arg(program).arg("--inside").arg(&base);
    for name in groups.names() {
        command.arg("--group").arg(name);
    }
    let status = command.args(words).status().map_err(|error| Failure::Start { program: "unshare".into(), error });
    groups.remove()?;
    status
}
