//! The soak's own control groups: one per hierarchy, so that every group below it is the soak's or a sandbox's of the soak.
//!
//! ```text
//! <our group>/soak-<pid>/main      the soak and what it starts
//!                       /tight     made for one run that is to be starved, and removed after it
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// How the name of a soak's group begins; its process's number follows.
const PREFIX: &str = "soak-";
/// Where the soak itself is.
const MAIN: &str = "main";
/// How long dying processes may keep a group.
const PATIENCE: Duration = Duration::from_secs(10);

/// Groups by hierarchy.
#[derive(Debug, Clone, Default)]
pub struct Groups {
    /// The soak's group in each hierarchy, with the hierarchy's controllers (version 2: none named).
    tops: Vec<(String, PathBuf)>,
}

impl Groups {
    /// Makes the groups, below those that this process is in. Hierarchies without controllers of resources are left out.
    pub fn make() -> Result<Self, Failure> {
        let name = format!("{PREFIX}{}", std::process::id());
        let read = |path: &str| fs::read_to_string(path).map_err(Failure::at("reading", path.as_ref()));
        let mut groups = Self::default();
        for (controllers, directory) in places(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?) {
            remove_stale(&directory);
            let top = directory.join(&name);
            for path in [top.clone(), top.join(MAIN)] {
                fs::create_dir(&path).map_err(Failure::at("making the control group", &path))?;
            }
            if controllers.is_empty() {
                // Where the group above has them; where not, sandboxes do without as well.
                for controller in ["+memory", "+pids"] {
                    let _ = fs::write(top.join("cgroup.subtree_control"), controller);
                }
            }
            groups.tops.push((controllers, top));
        }
        Ok(groups)
    }

    /// The same groups as another process named them.
    pub fn named(words: &[String]) -> Self {
        let parsed = words.iter().filter_map(|word| word.split_once('=')).map(|(c, path)| (c.to_owned(), PathBuf::from(path)));
        Self { tops: parsed.collect() }
    }

    /// Names for another process.
    pub fn names(&self) -> Vec<String> {
        self.tops.iter().map(|(controllers, top)| format!("{controllers}={}", top.display())).collect()
    }

    /// Moves this process in.
    pub fn join(&self) -> Result<(), Failure> {
        for (_, top) in &self.tops {
            let path = top.join(MAIN).join("cgroup.procs");
            fs::write(&path, "0").map_err(Failure::at("joining", &path))?;
        }
        Ok(())
    }

    /// Every group below the soak's own.
    pub fn below(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut queue: Vec<PathBuf> = self.tops.iter().map(|(_, top)| top.clone()).collect();
        while let Some(directory) = queue.pop() {
            for path in subdirectories(&directory) {
                if path.file_name().is_some_and(|name| name != MAIN) {
                    found.push(path.display().to_string());
                }
                queue.push(path);
            }
        }
        found
    }

    /// A group of its own for a command that is to be starved of one thing: `memory` or `pids`.
    pub fn tight(&self, controller: &str, limit: u64) -> Result<Tight, Failure> {
        let is_it = |(names, _): &&(String, PathBuf)| names.split(',').any(|name| name == controller) || names.is_empty();
        // A hierarchy of its own comes first; version 2 is the rest.
        let mut fitting: Vec<&(String, PathBuf)> = self.tops.iter().filter(is_it).collect();
        fitting.sort_by_key(|(names, _)| names.is_empty());
        let missing = || Failure::Unsound { what: format!("no control group can limit `{controller}`"), told: "none is mounted".into() };
        let (names, top) = fitting.first().ok_or_else(missing)?;
        let path = top.join("tight");
        fs::create_dir(&path).map_err(Failure::at("making the control group", &path))?;
        let tight = Tight { path };
        let file = match (controller, names.is_empty()) {
            ("memory", true) => "memory.max",
            ("memory", false) => "memory.limit_in_bytes",
            _ => "pids.max",
        };
        let file = tight.path.join(file);
        fs::write(&file, limit.to_string()).map_err(Failure::at("writing", &file))?;
        Ok(tight)
    }

    /// Removes everything, when nobody is in it any more.
    pub fn remove(&self) -> Result<(), Failure> {
        self.tops.iter().try_for_each(|(_, top)| remove(top))
    }
}

/// A small group, gone with the value.
#[derive(Debug)]
pub struct Tight {
    path: PathBuf,
}

impl Tight {
    /// The file that a process writes `0` to, to be in it.
    pub fn door(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }
}

impl Drop for Tight {
    fn drop(&mut self) {
        // What stays is seen by the census.
        let _ = remove(&self.path);
    }
}

fn remove(top: &Path) -> Result<(), Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut queue = vec![top.to_owned()];
        let mut order = Vec::new();
        while let Some(directory) = queue.pop() {
            queue.extend(subdirectories(&directory));
            order.push(directory);
        }
        // Inner ones were found later.
        if order.iter().rev().all(|directory| fs::remove_dir(directory).is_ok()) || !top.exists() {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(Failure::GroupLeft(top.to_owned()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Removes groups of a soak that was killed: its number is nobody's any more.
fn remove_stale(directory: &Path) {
    for group in subdirectories(directory) {
        let owner = group.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            // What cannot be removed harms nobody.
            let _ = remove(&group);
        }
    }
}

fn subdirectories(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// Our directory in each mounted hierarchy: its controllers, and where it is. `cpuset` and `devices` are left out, which need
/// settings before they can be joined, and hierarchies of other programs (`name=`).
fn places(own: &str, mounts: &str) -> Vec<(String, PathBuf)> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        if controllers.starts_with("name=") || controllers == "cpuset" || controllers == "devices" {
            continue;
        }
        let mounted = mounts.lines().find_map(|mount| mount_of(mount, controllers, group));
        if let Some(directory) = mounted.filter(|directory| !found.iter().any(|(_, known)| known == directory)) {
            found.push((controllers.to_owned(), directory));
        }
    }
    found
}

/// Where a line of the mount table shows a group of this hierarchy.
fn mount_of(line: &str, controllers: &str, group: &str) -> Option<PathBuf> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let mut after = after.split(' ');
    let (kind, options) = (after.next()?, after.nth(1)?);
    let fits = if controllers.is_empty() {
        kind == "cgroup2"
    } else {
        kind == "cgroup" && controllers.split(',').all(|wanted| options.split(',').any(|option| option == wanted))
    };
    let below = Path::new(group).strip_prefix(root).ok()?;
    let point = Path::new(point);
    fits.then(|| if below.as_os_str().is_empty() { point.to_owned() } else { point.join(below) })
}

#[cfg(test)]
mod tests {
    use super::places;

    #[test]
    fn own_groups_are_found_in_every_hierarchy() {
        let own = "5:name=systemd:/\n4:cpuset:/\n3:memory:/a/b\n2:cpu,cpuacct:/\n0::/x\n";
        let mounts = "30 1 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n31 1 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n32 1 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found: Vec<String> = places(own, mounts).into_iter().map(|(c, path)| format!("{c} {}", path.display())).collect();
        assert_eq!(found, ["memory /sys/fs/cgroup/memory/a/b", "cpu,cpuacct /sys/fs/cgroup/cpu", " /sys/fs/cgroup/unified/x"]);
    }
}
