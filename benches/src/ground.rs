//! Where everything happens: one directory below `/var/tmp`, removed at the end, with a corner for root and one for an ordinary user.
//!
//! Contestants get a small environment of their own and never the developer's; Stockade's state, settings and sockets lie here too.

use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// The uid and gid that stand for an ordinary user.
pub(crate) const NOBODY: u32 = 65_534;
/// Where programs are found, for everybody.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The directory of one run of the harness.
pub(crate) struct Ground {
    directory: tempfile::TempDir,
    /// The `stockade` that is measured: a copy that everybody can execute.
    pub(crate) stockade: PathBuf,
    /// The corner of whoever runs the harness.
    pub(crate) own: Corner,
}

/// Directories of one user.
#[derive(Debug, Clone)]
pub(crate) struct Corner {
    /// All of them.
    pub(crate) base: PathBuf,
    /// Whose; `None`: whoever runs the harness.
    user: Option<u32>,
}

impl Ground {
    /// Makes the directories.
    pub(crate) fn make(stockade: &Path) -> Result<Self, Failure> {
        let parent = Path::new("/var/tmp");
        let directory = tempfile::Builder::new().prefix("stockade-bench-").tempdir_in(parent).map_err(Failure::io("make", parent))?;
        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).map_err(Failure::io("open up", directory.path()))?;
        let copy = directory.path().join("stockade");
        std::fs::copy(stockade, &copy).map_err(Failure::io("copy", stockade))?;
        std::fs::set_permissions(&copy, Permissions::from_mode(0o755)).map_err(Failure::io("open up", &copy))?;
        let own = Corner::make(&directory.path().join("own"), None)?;
        Ok(Self { stockade: copy, own, directory })
    }

    /// The corner of an ordinary user.
    pub(crate) fn user(&self) -> Result<Corner, Failure> {
        Corner::make(&self.directory.path().join("user"), Some(NOBODY))
    }

    /// A corner of whoever runs the harness, where a policy holds.
    pub(crate) fn governed(&self, preset: &str) -> Result<Corner, String> {
        let base = self.directory.path().join(preset);
        if base.exists() {
            return Ok(Corner { base, user: None });
        }
        let corner = Corner::make(&base, None).map_err(|failure| failure.to_string())?;
        let words = ["init", "--preset", preset].map(OsString::from);
        let argv: Vec<OsString> = std::iter::once(self.stockade.clone().into_os_string()).chain(words).collect();
        crate::spawn::output(&mut corner.command(&argv))?;
        Ok(corner)
    }

    /// Another corner of whoever runs the harness.
    pub(crate) fn corner(&self, name: &str) -> Result<Corner, Failure> {
        Corner::make(&self.directory.path().join(name), None)
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Puts a program where everybody can execute it.
    pub(crate) fn lend(&self, program: &Path, name: &str) -> Result<PathBuf, Failure> {
        let copy = self.path().join(name);
        std::fs::copy(program, &copy).map_err(Failure::io("copy", program))?;
        Ok(copy)
    }
}

impl Corner {
    fn make(base: &Path, user: Option<u32>) -> Result<Self, Failure> {
        let corner = Self { base: base.to_owned(), user };
        for directory in [base.to_owned(), corner.work(), corner.home(), corner.state(), corner.config(), corner.runtime()] {
            std::fs::create_dir_all(&directory).map_err(Failure::io("make", &directory))?;
            if user.is_some() {
                std::os::unix::fs::chown(&directory, user, user).map_err(Failure::io("give away", &directory))?;
            }
        }
        std::fs::set_permissions(corner.runtime(), Permissions::from_mode(0o700)).map_err(Failure::io("close", base))?;
        let file = corner.work().join("given");
        std::fs::write(&file, "a file of the workspace\n").map_err(Failure::io("write", &file))?;
        Ok(corner)
    }

    /// The workspace, and the current directory of contestants.
    pub(crate) fn work(&self) -> PathBuf {
        self.base.join("work")
    }

    /// Home.
    pub(crate) fn home(&self) -> PathBuf {
        self.base.join("home")
    }

    /// Stockade's state.
    pub(crate) fn state(&self) -> PathBuf {
        self.base.join("state")
    }

    /// Settings, rules and packs.
    pub(crate) fn config(&self) -> PathBuf {
        self.base.join("config")
    }

    /// Sockets.
    pub(crate) fn runtime(&self) -> PathBuf {
        self.base.join("run")
    }

    /// A command of this corner's user, in the workspace, with the small environment and no streams.
    pub(crate) fn command(&self, argv: &[OsString]) -> Command {
        let mut words = argv.iter();
        let mut command = Command::new(words.next().map_or(Path::new("/bin/false"), Path::new));
        command.args(words).current_dir(self.work()).env_clear().env("PATH", PATH).env("HOME", self.home()).env("LANG", "C.UTF-8");
        command.env("XDG_STATE_HOME", self.state()).env("XDG_CONFIG_HOME", self.config()).env("XDG_RUNTIME_DIR", self.runtime());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }
}
