//! The ground that a loop stands on: a user, a home, a state directory and a workspace of its own.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cage::Cage;
use crate::failure::Failure;

/// The ordinary user: nobody, who owns nothing and is in no group that matters.
const NOBODY: u32 = 65534;
/// Where programs are found, inside and outside.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Files of every workspace before anything runs: one that programs change, one that they delete, one that they must not see changed.
const FILES: [(&str, &str); 4] =
    [("changed", "before\n"), ("deleted", "before\n"), ("same", "same\n"), (".git/config", "[core]\n\tbare = false\n")];

/// Who runs the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Root.
    Root,
    /// Uid 65534.
    Ordinary,
    /// A user that nobody else on the machine is, for limits that the kernel counts per user.
    Alone,
}

impl Who {
    /// Root and the ordinary user.
    pub const BOTH: [Self; 2] = [Self::Root, Self::Ordinary];

    /// The user's number.
    pub fn uid(self) -> u32 {
        match self {
            Self::Root => 0,
            Self::Ordinary => NOBODY,
            Self::Alone => 0x6000_0000 + (std::process::id() & 0xffff),
        }
    }

    /// A word for tables and directories.
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Ordinary => "ordinary",
            Self::Alone => "alone",
        }
    }
}

/// Directories of one user in one loop.
#[derive(Debug, Clone)]
pub struct Ground {
    /// Whose.
    pub who: Who,
    /// What holds the others.
    pub base: PathBuf,
    /// The home directory.
    pub home: PathBuf,
    /// `XDG_STATE_HOME`.
    pub state: PathBuf,
    /// The workspace.
    pub work: PathBuf,
    /// A directory next to it that nothing may change.
    pub elsewhere: PathBuf,
    binary: PathBuf,
}

/// Everything below a directory: type, mode, owner and contents.
pub type Snapshot = BTreeMap<PathBuf, (u32, u32, Vec<u8>)>;

impl Ground {
    /// Fresh directories below the cage's own.
    pub fn new(cage: &Cage, name: &str, who: Who) -> Result<Self, Failure> {
        let base = cage.base.join(format!("{name}-{}", who.name()));
        let place = |name: &str| base.join(name);
        let ground = Self {
            who,
            home: place("home"),
            state: place("state"),
            work: place("work"),
            elsewhere: place("elsewhere"),
            binary: cage.binary(),
            base,
        };
        for path in [&ground.base, &ground.home, &ground.state, &ground.work, &ground.elsewhere] {
            ground.directory(path)?;
        }
        ground.fill(&ground.work)?;
        ground.fill(&ground.elsewhere)?;
        Ok(ground)
    }

    /// Makes a directory of the user's, and those above it.
    pub fn directory(&self, path: &Path) -> Result<(), Failure> {
        if path.is_dir() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.directory(parent)?;
        }
        fs::create_dir(path).map_err(Failure::at("making", path))?;
        self.own(path)
    }

    /// Puts a file of the user's there.
    pub fn plant(&self, path: &Path, contents: &str) -> Result<(), Failure> {
        if let Some(parent) = path.parent() {
            self.directory(parent)?;
        }
        fs::write(path, contents).map_err(Failure::at("writing", path))?;
        fs::set_permissions(path, PermissionsExt::from_mode(0o644)).map_err(Failure::at("changing", path))?;
        self.own(path)
    }

    /// Puts a workspace's files into a directory.
    pub fn fill(&self, directory: &Path) -> Result<(), Failure> {
        self.directory(directory)?;
        FILES.iter().try_for_each(|(name, contents)| self.plant(&directory.join(name), contents))
    }

    /// Makes the workspace what it was in the beginning.
    pub fn renew(&self) -> Result<(), Failure> {
        fs::remove_dir_all(&self.work).map_err(Failure::at("removing", &self.work))?;
        self.fill(&self.work)
    }

    fn own(&self, path: &Path) -> Result<(), Failure> {
        chown(path, Some(self.who.uid()), Some(self.who.uid())).map_err(Failure::at("giving away", path))
    }

    /// A command of the machine as this user, in the workspace, with a clean environment.
    #[expect(clippy::disallowed_methods, reason = "the program under test, and the programs that starve it")]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(&self.work);
        command.env("PATH", PATH).env("HOME", &self.home).env("XDG_STATE_HOME", &self.state).env("LANG", "C.UTF-8");
        if self.who != Who::Root {
            // The standard library drops supplementary groups with the user.
            command.uid(self.who.uid()).gid(self.who.uid());
        }
        command
    }

    /// `stockade` with these words.
    pub fn stockade(&self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = self.command(&self.binary);
        command.args(words);
        command
    }

    /// `stockade` behind another program that prepares the ground for it: `prlimit --nofile=9 stockade …`.
    pub fn behind(&self, before: &[&str], words: &[&str]) -> Command {
        let mut before = before.iter();
        let mut command = self.command(before.next().unwrap_or(&"env"));
        command.args(before).arg(&self.binary).args(words);
        command
    }

    /// Where sandboxes are kept.
    pub fn sandboxes(&self) -> PathBuf {
        self.state.join("stockade/sandboxes")
    }
}

/// Everything below a directory, to compare later.
pub fn snapshot(of: &Path) -> Snapshot {
    let mut found = Snapshot::new();
    let mut queue = vec![of.to_owned()];
    while let Some(directory) = queue.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(data) = path.symlink_metadata() else { continue };
            let contents = match (data.is_file(), data.is_symlink()) {
                (true, _) => fs::read(&path).unwrap_or_default(),
                (_, true) => fs::read_link(&path).map(|to| to.into_os_string().into_encoded_bytes()).unwrap_or_default(),
                _ => Vec::new(),
            };
            if data.is_dir() {
                queue.push(path.clone());
            }
            let name = path.strip_prefix(of).unwrap_or(&path).to_owned();
            found.insert(name, (data.mode(), data.uid(), contents));
        }
    }
    found
}

/// What differs between two looks, one line each.
pub fn differences(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let names: std::collections::BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
    let told = |name: &&PathBuf| match (before.get(*name), after.get(*name)) {
        (Some(old), Some(new)) if old == new => None,
        (Some(_), Some((mode, uid, contents))) => {
            Some(format!("{} is now {mode:o} {uid} {:?}", name.display(), String::from_utf8_lossy(contents)))
        }
        (Some(_), None) => Some(format!("{} is gone", name.display())),
        (None, _) => Some(format!("{} is new", name.display())),
    };
    names.iter().filter_map(told).collect()
}
