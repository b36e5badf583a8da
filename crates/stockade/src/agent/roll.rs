//! The roll of agents: one private directory each, that outlives the sandbox.
//!
//! ```text
//! <state>/agents/<sandbox id>/   0700
//!     agent.json                 who it is, written when it begins
//!     summary.json               what came of it, written when it ends
//!     output.log, …              what it printed, where it ran detached (`transcript`)
//! ```
//!
//! Whether it runs is said by the sandbox's lock, not by these files. What is older than a week goes.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stockade_core::id::{SandboxId, SandboxName};
use stockade_sandbox::state::KEEP;
use stockade_store::private_dir::ensure_private_dir;

use super::attendant::socket_path;
use crate::Context;
use crate::failure::Failure;

/// Version of the format.
const VERSION: u32 = 1;
const AGENT: &str = "agent.json";
const SUMMARY: &str = "summary.json";
/// A file of ours is not longer.
const MAX_BYTES: u64 = 64 << 20;

/// Who an agent is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Agent {
    /// See [`VERSION`].
    pub(crate) version: u32,
    /// Its sandbox.
    pub(crate) id: SandboxId,
    /// The name a person gave it.
    pub(crate) name: Option<SandboxName>,
    /// The profile.
    pub(crate) profile: String,
    /// Program and arguments, for people.
    pub(crate) command: Vec<String>,
    /// The workspace, for people.
    pub(crate) workspace: String,
    /// When it began, in seconds since 1970.
    pub(crate) started: i64,
    /// The process that owns it, and when that began by the kernel's count: a number alone may be another's by now.
    pub(crate) owner: (u32, u64),
    /// The branch it works on, where it has a worktree of its own.
    #[serde(default)]
    pub(crate) branch: Option<Branch>,
}

/// A branch of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Branch {
    /// Its name.
    pub(crate) name: String,
    /// The commit it began at.
    pub(crate) base: String,
    /// The repository that it belongs to.
    pub(crate) repository: PathBuf,
    /// Where it is checked out.
    pub(crate) worktree: PathBuf,
    /// The repository's objects, which both share.
    pub(crate) objects: PathBuf,
}

/// One entry.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its directory.
    pub(crate) directory: PathBuf,
    /// Who.
    pub(crate) agent: Agent,
    /// What came of it; `None`: it runs, or ended without a word.
    pub(crate) summary: Option<Value>,
}

/// The roll of one person.
#[derive(Debug)]
pub(crate) struct Roll {
    root: PathBuf,
    /// Where sockets are.
    runtime: PathBuf,
}

impl Roll {
    /// Uses (and makes) `<state>/agents`.
    pub(crate) fn open(context: &Context) -> Result<Self, Failure> {
        let places = context.places()?;
        let root = places.state.join("agents");
        ensure_private_dir(&root).map_err(|error| Failure::from_error("agents", &error))?;
        Ok(Self { root, runtime: places.runtime.clone() })
    }

    /// Enters an agent that begins.
    pub(crate) fn enter(&self, agent: &Agent) -> Result<PathBuf, Failure> {
        self.forget_old();
        let directory = self.root.join(agent.id.as_str());
        ensure_private_dir(&directory).map_err(|error| Failure::from_error("agents", &error))?;
        write(&directory.join(AGENT), agent)?;
        Ok(directory)
    }

    /// Everybody on it, oldest first.
    pub(crate) fn list(&self) -> Vec<Entry> {
        let entries = std::fs::read_dir(&self.root).into_iter().flatten().flatten();
        let mut all: Vec<Entry> = entries.filter_map(|entry| read(&entry.path())).collect();
        all.sort_by(|a, b| a.agent.id.cmp(&b.agent.id));
        all
    }

    /// One by name, id or the beginning of an id; of several with one name the latest.
    pub(crate) fn find(&self, text: &str) -> Result<Entry, Failure> {
        let mut all = self.list();
        let named = |entry: &Entry| entry.agent.id.as_str() == text || entry.agent.name.as_ref().is_some_and(|name| name.as_str() == text);
        let begins = |entry: &Entry| text.len() >= 4 && entry.agent.id.as_str().starts_with(text);
        let at = all.iter().rposition(named).or_else(|| all.iter().rposition(begins));
        at.map(|at| all.swap_remove(at)).ok_or_else(|| {
            Failure::new("agents", format!("there is no agent `{}`", stockade_core::escape::escape(text))).with_hint("stockade agent list")
        })
    }

    fn forget_old(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        for entry in self.list() {
            if !entry.is_running() {
                // One that was killed could not do so itself.
                let _ = std::fs::remove_file(socket_path(&self.runtime, &entry.agent.id));
            }
            let age = now.saturating_sub(Duration::from_secs(u64::try_from(entry.agent.started).unwrap_or_default()));
            if age > KEEP && !entry.is_running() {
                // What cannot be removed now is tried again by the next.
                let _ = std::fs::remove_dir_all(&entry.directory);
            }
        }
    }
}

impl Entry {
    /// Whether its owner still lives.
    pub(crate) fn is_running(&self) -> bool {
        self.summary.is_none() && started_at(self.agent.owner.0) == Some(self.agent.owner.1)
    }
}

impl Agent {
    /// One that begins now, owned by this process.
    pub(crate) fn new(id: SandboxId, name: Option<SandboxName>, profile: &str, workspace: &Path) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let pid = std::process::id();
        Self {
            version: VERSION,
            id,
            name,
            profile: profile.to_owned(),
            command: Vec::new(),
            workspace: workspace.to_string_lossy().into_owned(),
            started: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
            owner: (pid, started_at(pid).unwrap_or_default()),
            branch: None,
        }
    }
}

/// Writes down what came of an agent.
pub(crate) fn finish(directory: &Path, summary: &Value) -> Result<(), Failure> {
    write(&directory.join(SUMMARY), summary)
}

/// When a process began, in the kernel's own count; `None` where it is gone.
pub(crate) fn started_at(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name may hold anything, so the count begins after it.
    text.rsplit(") ").next()?.split(' ').nth(19)?.parse().ok()
}

fn read(directory: &Path) -> Option<Entry> {
    let agent: Agent = serde_json::from_slice(&bytes(&directory.join(AGENT))?).ok()?;
    let summary = bytes(&directory.join(SUMMARY)).and_then(|bytes| serde_json::from_slice(&bytes).ok());
    (agent.version == VERSION).then(|| Entry { directory: directory.to_owned(), agent, summary })
}

fn bytes(path: &Path) -> Option<Vec<u8>> {
    let length = std::fs::metadata(path).ok()?.len();
    if length > MAX_BYTES { None } else { std::fs::read(path).ok() }
}

/// Whole or not at all.
fn write(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new("agents", format!("writing `{}`: {error}", path.display()));
    let text = serde_json::to_vec_pretty(value).map_err(|error| Failure::from_error("agents", &error))?;
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).map_err(failed)?;
    std::fs::rename(&beside, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_enters_is_found_by_name_and_id() {
        let directory = tempfile::tempdir().unwrap();
        let roll = Roll { root: directory.path().to_owned(), runtime: directory.path().to_owned() };
        let agent = |random: u32, name: &str| {
            Agent::new(SandboxId::from_parts(u64::from(random), random), name.parse().ok(), "claude", Path::new("/w"))
        };
        let first = agent(1, "fix");
        roll.enter(&first).unwrap();
        let second = roll.enter(&agent(2, "fix")).unwrap();
        assert_eq!(roll.list().len(), 2);
        assert_eq!(roll.find("fix").unwrap().directory, second);
        assert_eq!(roll.find(first.id.as_str()).unwrap().agent, first);
        assert!(roll.find("fix").unwrap().is_running());
        finish(&second, &serde_json::json!({"exit_code": 0})).unwrap();
        assert!(!roll.find("fix").unwrap().is_running());
        assert!(roll.find("other").is_err());
    }

    #[test]
    fn the_old_are_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let roll = Roll { root: directory.path().to_owned(), runtime: directory.path().to_owned() };
        let mut old = Agent::new(SandboxId::from_parts(0, 1), None, "claude", Path::new("/w"));
        (old.started, old.owner) = (0, (1, 0));
        std::fs::create_dir(directory.path().join(old.id.as_str())).unwrap();
        write(&directory.path().join(old.id.as_str()).join(AGENT), &old).unwrap();
        roll.enter(&Agent::new(SandboxId::from_parts(9, 9), None, "claude", Path::new("/w"))).unwrap();
        assert_eq!(roll.list().len(), 1);
    }
}
