//! The count: everything a sandbox is made of, by name, so that a difference says what is left.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cage::{Cage, TEMPORARY};
use crate::ground::Ground;
use crate::processes;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Processes other than the soak.
    Process,
    /// Mounts that the soak sees.
    Mount,
    /// Namespaces that a process is in or holds open.
    Namespace,
    /// Control groups below the soak's own.
    Group,
    /// Files and directories of the state directory.
    State,
    /// Unix sockets.
    Socket,
    /// File locks.
    Lock,
    /// Temporary files: in `/tmp`, in memory, in the home directory.
    Temporary,
}

impl Kind {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 8] =
        [Self::Process, Self::Mount, Self::Namespace, Self::Group, Self::State, Self::Socket, Self::Lock, Self::Temporary];

    /// A word for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Process => "processes",
            Self::Mount => "mounts",
            Self::Namespace => "namespaces",
            Self::Group => "groups",
            Self::State => "state",
            Self::Socket => "sockets",
            Self::Lock => "locks",
            Self::Temporary => "temporary",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What stays in a state directory for good, and is not of any sandbox.
const PERMANENT: [(&str, &str); 12] = [
    ("stockade", "the directory itself"),
    ("stockade/sandboxes", "holds all sandboxes"),
    ("stockade/run", "holds their sockets"),
    ("stockade/guest", "holds the guest program, which has one file per build of it"),
    ("stockade/names.lock", "one file for everybody who gives a name"),
    ("stockade/said-partial", "remembers what was said once"),
    ("stockade/egress", "holds the certificate authority of all ways out"),
    ("stockade/egress/authority.pem", "that authority"),
    ("stockade/run/daemon.lock", "one file for everybody who would be the daemon"),
    ("stockade/secrets", "holds secrets, and is there so that it can be covered"),
    ("stockade/packs-known.json", "remembers packs that were verified"),
    ("stockade/memories", "holds what agents with a name remember"),
];

/// Whole trees that stay: the ledger, which is looked at by itself, and digests of programs and verdicts about rules, which are bounded in number.
const KEPT_TREES: [&str; 3] = ["stockade/receipts", "stockade/digests", "stockade/policy-known"];

/// Things by kind and name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    found: BTreeMap<Kind, BTreeSet<String>>,
}

impl Census {
    /// Counts everything. Called while nothing of the soak's own runs.
    pub fn take(cage: &Cage, ground: &Ground) -> Self {
        processes::reap();
        let mut census = Self::default();
        for kind in Kind::ALL {
            let names = match kind {
                Kind::Process => processes::all().iter().map(|p| format!("{} (child of {}) {}", p.pid, p.parent, p.command)).collect(),
                Kind::Mount => mounts(),
                Kind::Namespace => namespaces(),
                Kind::Group => cage.groups.below(),
                Kind::State => state(&ground.state),
                Kind::Socket => table("/proc/net/unix", 1),
                Kind::Lock => locks(),
                Kind::Temporary => temporary(ground),
            };
            census.found.insert(kind, names.into_iter().collect());
        }
        census
    }

    /// What is here and was not there before.
    pub fn since(&self, before: &Self) -> Vec<Left> {
        let nothing = BTreeSet::new();
        let fresh = |kind: &Kind| {
            let known = before.found.get(kind).unwrap_or(&nothing);
            let kind = *kind;
            self.found
                .get(&kind)
                .unwrap_or(&nothing)
                .difference(known)
                .map(move |name| Left { kind, name: name.clone() })
                .collect::<Vec<_>>()
        };
        Kind::ALL.iter().flat_map(fresh).collect()
    }
}

/// Something that should not be there any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// What it is.
    pub kind: Kind,
    /// Which.
    pub name: String,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.name)
    }
}

/// Number, place and type of every mount.
fn mounts() -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let name = |line: &str| {
        let field = |at: usize| line.split(' ').nth(at).unwrap_or_default().to_owned();
        let kind = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').next()).unwrap_or_default().to_owned();
        format!("{} {} {kind}", field(0), field(4))
    };
    table.lines().map(name).collect()
}

/// Namespaces that a process is in, or holds open through a descriptor.
fn namespaces() -> Vec<String> {
    let mut found = Vec::new();
    let pids = processes::all().into_iter().map(|process| process.pid.to_string()).chain(["self".to_owned()]);
    for pid in pids {
        for directory in ["ns", "fd"] {
            let entries = fs::read_dir(format!("/proc/{pid}/{directory}")).into_iter().flatten().flatten();
            let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok()).map(|to| to.to_string_lossy().into_owned());
            found.extend(links.filter(|to| to.ends_with(']') && !["socket", "pipe", "anon_inode"].iter().any(|no| to.starts_with(no))));
        }
    }
    found
}

/// Lines of a kernel table, without its heading, and without what changes by itself (addresses, running numbers).
fn table(path: &str, heading: usize) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = |line: &str| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
    text.lines().skip(heading).map(line).collect()
}

/// Locks of processes that the cage shows. Those of open file descriptions are nobody's (-1) in this table, whoever holds them; Stockade
/// takes none of that kind.
fn locks() -> Vec<String> {
    let is_of_somebody = |line: &String| line.split(' ').any(|word| word.parse::<i64>().is_ok_and(|number| number > 0));
    table("/proc/locks", 0).into_iter().filter(is_of_somebody).collect()
}

/// Everything below the state directory that is not there for good.
fn state(directory: &Path) -> Vec<String> {
    let mut names = below(directory);
    let is_guest = |name: &str| name.strip_prefix("stockade/guest/").is_some_and(|file| !file.starts_with('.') && !file.contains('/'));
    let is_kept = |name: &str| KEPT_TREES.iter().any(|tree| Path::new(name).starts_with(tree));
    names.retain(|name| !is_guest(name) && !is_kept(name) && !PERMANENT.iter().any(|(permanent, _)| name == permanent));
    names
}

fn temporary(ground: &Ground) -> Vec<String> {
    let places = TEMPORARY.iter().map(PathBuf::from).chain([ground.home.clone()]);
    places.flat_map(|place| below(&place).into_iter().map(move |name| place.join(name).display().to_string())).collect()
}

fn below(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut queue = vec![directory.to_owned()];
    while let Some(next) = queue.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                queue.push(path.clone());
            }
            found.push(path.strip_prefix(directory).unwrap_or(&path).display().to_string());
        }
    }
    found
}
