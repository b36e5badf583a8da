//! Where each controller is mounted and which group of it is ours, from the text of `/proc/self/cgroup` and
//! `/proc/self/mountinfo`.
//!
//! Pure: text in, value out. A line that cannot be read is passed over: the worst that follows is a controller that
//! seems to be missing, and a limit that was asked for then refuses the start. Whether the directories can be used is
//! the business of [`Layout`](super::Layout).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// A kind of resource that a control group holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// Processor time.
    Cpu,
    /// Memory.
    Memory,
    /// Processes.
    Pids,
    /// Bytes to and from disks.
    Io,
    /// Stopping all processes at once; part of the core in version 2.
    Freezer,
}

impl Controller {
    /// Every controller we know.
    pub const ALL: [Self; 5] = [Self::Cpu, Self::Memory, Self::Pids, Self::Io, Self::Freezer];

    /// The name in a hierarchy of version 1.
    pub fn name_v1(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Io => "blkio",
            Self::Freezer => "freezer",
        }
    }

    /// The name in version 2; the freezer has none.
    pub fn name_v2(self) -> Option<&'static str> {
        match self {
            Self::Io => Some("io"),
            Self::Freezer => None,
            Self::Cpu | Self::Memory | Self::Pids => Some(self.name_v1()),
        }
    }
}

/// The version of the control group interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// One hierarchy per controller.
    One,
    /// One hierarchy for all.
    Two,
}

/// Our group in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Which interface.
    pub version: Version,
    /// Where the hierarchy is mounted; never look above.
    pub mount: PathBuf,
    /// The directory of this process's own group.
    pub directory: PathBuf,
    /// The hierarchy (version 1) also holds `cpuset`, which must be filled before a process can join.
    pub with_cpuset: bool,
}

/// Every hierarchy in which our own group can be found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hierarchies {
    /// Hierarchies of version 1, by controller.
    pub v1: BTreeMap<Controller, Place>,
    /// The hierarchy of version 2.
    pub v2: Option<Place>,
}

impl Hierarchies {
    /// Reads both texts.
    pub fn parse(cgroup: &[u8], mountinfo: &[u8]) -> Self {
        let memberships: Vec<Membership> = lines(cgroup).filter_map(Membership::parse).collect();
        let mounts: Vec<Mount> = lines(mountinfo).filter_map(Mount::parse).collect();
        let v1 = Controller::ALL
            .into_iter()
            .filter_map(|controller| {
                let name = controller.name_v1();
                let membership = memberships.iter().find(|m| m.controllers.iter().any(|c| c == name))?;
                let with_cpuset = membership.controllers.iter().any(|c| c == "cpuset");
                let candidates = mounts.iter().filter(|m| m.kind == "cgroup" && m.options.iter().any(|o| o == name));
                place(Version::One, candidates, &mounts, membership, with_cpuset).map(|place| (controller, place))
            })
            .collect();
        let v2 = memberships
            .iter()
            .find(|m| m.hierarchy == 0 && m.controllers.is_empty())
            .and_then(|membership| place(Version::Two, mounts.iter().filter(|m| m.kind == "cgroup2"), &mounts, membership, false));
        Self { v1, v2 }
    }
}

/// The best mount in which the group can be seen: writable before read-only, then the one that shows most of the tree.
fn place<'a>(
    version: Version,
    candidates: impl Iterator<Item = &'a Mount>,
    all: &[Mount],
    membership: &Membership,
    with_cpuset: bool,
) -> Option<Place> {
    candidates
        .filter(|mount| !is_covered(mount, all))
        .filter_map(|mount| Some((mount, beneath(&membership.path, &mount.root)?)))
        .min_by_key(|(mount, _)| (mount.read_only, mount.root.components().count()))
        .map(|(mount, rest)| Place { version, directory: join(&mount.point, &rest), mount: mount.point.clone(), with_cpuset })
}

/// `path` relative to `root`, where that stays below it. In a control group namespace both may begin with `/..`: a mount
/// made outside shows more than our root, and how to get from its root to ours is then not told.
fn beneath(path: &Path, root: &Path) -> Option<PathBuf> {
    let rest = path.strip_prefix(root).ok()?;
    rest.components().all(|c| matches!(c, Component::Normal(_))).then(|| rest.to_owned())
}

fn join(point: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { point.to_owned() } else { point.join(rest) }
}

/// Whether another mount hides this one: a mount on one of its ancestors (or on itself) at a place on the way to it.
fn is_covered(mount: &Mount, all: &[Mount]) -> bool {
    let lies_on = |on: &Mount| all.iter().any(|other| other.parent == on.id && other.id != on.id && other.point == on.point);
    if lies_on(mount) {
        return true;
    }
    let mut step = mount;
    // The way up is at most as long as the list; a circle, which the kernel never writes, ends there too.
    for _ in 0..=all.len() {
        let beside = |other: &Mount| other.parent == step.parent && other.id != step.id && other.id != other.parent;
        if all.iter().any(|other| beside(other) && step.point.starts_with(&other.point)) {
            return true;
        }
        match all.iter().find(|other| other.id == step.parent && other.id != step.id) {
            Some(parent) => step = parent,
            None => return false,
        }
    }
    true
}

/// One line of `/proc/self/cgroup`: `4:memory:/a/b`.
struct Membership {
    hierarchy: u32,
    controllers: Vec<String>,
    path: PathBuf,
}

impl Membership {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.splitn(3, |b| *b == b':');
        let hierarchy = text(fields.next()?)?.parse().ok()?;
        let controllers = text(fields.next()?)?.split(',').filter(|c| !c.is_empty()).map(str::to_owned).collect();
        let path = PathBuf::from(OsStr::from_bytes(fields.next()?));
        path.is_absolute().then_some(Self { hierarchy, controllers, path })
    }
}

/// One line of `/proc/self/mountinfo`.
struct Mount {
    id: u64,
    parent: u64,
    root: PathBuf,
    point: PathBuf,
    read_only: bool,
    kind: String,
    options: Vec<String>,
}

impl Mount {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|b| *b == b' ');
        let id = text(fields.next()?)?.parse().ok()?;
        let parent = text(fields.next()?)?.parse().ok()?;
        let _device = fields.next()?;
        let root = unescape(fields.next()?);
        let point = unescape(fields.next()?);
        let read_only = fields.next()?.split(|b| *b == b',').any(|o| o == b"ro");
        let mut fields = fields.skip_while(|f| *f != b"-").skip(1);
        let kind = text(fields.next()?)?.to_owned();
        let _source = fields.next()?;
        let options = text(fields.next().unwrap_or_default())?.split(',').map(str::to_owned).collect();
        (root.is_absolute() && point.is_absolute()).then_some(Self { id, parent, root, point, read_only, kind, options })
    }
}

/// Undoes `\040` and the like.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|d| byte == b'\\' && d.iter().all(|b| (b'0'..=b'7').contains(b)));
        if let Some(value) = octal.and_then(|digits| u8::from_str_radix(text(digits)?, 8).ok()) {
            out.push(value);
            rest = after.get(3..).unwrap_or_default();
        } else {
            out.push(byte);
            rest = after;
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `controller version mount directory`, one line each; compares the whole value.
    fn check(cgroup: &str, mountinfo: &str, expected: &[&str]) {
        let found = Hierarchies::parse(cgroup.as_bytes(), mountinfo.as_bytes());
        let mut shown: Vec<String> = found
            .v1
            .iter()
            .map(|(c, p)| {
                format!("{} {} {}{}", c.name_v1(), p.mount.display(), p.directory.display(), if p.with_cpuset { " cpuset" } else { "" })
            })
            .collect();
        shown.extend(found.v2.iter().map(|p| format!("v2 {} {}", p.mount.display(), p.directory.display())));
        assert_eq!(shown, expected);
        assert!(found.v1.values().all(|p| p.version == Version::One));
    }

    #[test]
    fn systemd_desktop_with_version_2_only() {
        check(
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-terminal.scope\n",
            "23 29 0:22 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n\
             29 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n\
             30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n",
            &["v2 /sys/fs/cgroup /sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-terminal.scope"],
        );
    }

    #[test]
    fn container_with_its_own_namespace() {
        check(
            "0::/\n",
            "600 500 0:50 / / rw - overlay overlay rw\n\
             610 600 0:60 / /sys ro,nosuid - sysfs sysfs ro\n\
             611 610 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n",
            &["v2 /sys/fs/cgroup /sys/fs/cgroup"],
        );
    }

    #[test]
    fn container_of_version_1_that_sees_only_its_own_part() {
        check(
            "5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n",
            "600 500 0:50 / / rw - overlay overlay rw\n\
             610 600 0:60 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
             611 610 0:30 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n\
             612 610 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
             613 610 0:32 /docker/abc /sys/fs/cgroup/systemd ro - cgroup cgroup rw,xattr,name=systemd\n",
            &["cpu /sys/fs/cgroup/cpu,cpuacct /sys/fs/cgroup/cpu,cpuacct", "memory /sys/fs/cgroup/memory /sys/fs/cgroup/memory"],
        );
    }

    #[test]
    fn mixed_as_on_the_machine_this_was_written_on() {
        check(
            "9:name=systemd:/\n8:pids:/\n7:blkio:/\n6:freezer:/\n4:memory:/process_api/2aa1\n3:cpuset:/\n2:cpuacct:/\n1:cpu:/\n0::/\n",
            "23 1 0:21 / /sys rw - sysfs sysfs rw\n\
             31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
             32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
             33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct\n\
             35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
             37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer\n\
             38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio\n\
             39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
            &[
                "cpu /sys/fs/cgroup/cpu /sys/fs/cgroup/cpu",
                "memory /sys/fs/cgroup/memory /sys/fs/cgroup/memory/process_api/2aa1",
                "pids /sys/fs/cgroup/pids /sys/fs/cgroup/pids",
                "blkio /sys/fs/cgroup/blkio /sys/fs/cgroup/blkio",
                "freezer /sys/fs/cgroup/freezer /sys/fs/cgroup/freezer",
                "v2 /sys/fs/cgroup/unified /sys/fs/cgroup/unified",
            ],
        );
    }

    #[test]
    fn version_1_only_with_controllers_together() {
        check(
            "2:cpuset,cpu,cpuacct:/user.slice\n1:memory:/user.slice\n",
            "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
             30 20 0:29 / /sys/fs/cgroup/cpu,cpuacct,cpuset rw - cgroup cgroup rw,cpuset,cpu,cpuacct\n\
             31 20 0:32 / /a\\040b/memory rw - cgroup cgroup rw,memory\n",
            &[
                "cpu /sys/fs/cgroup/cpu,cpuacct,cpuset /sys/fs/cgroup/cpu,cpuacct,cpuset/user.slice cpuset",
                "memory /a b/memory /a b/memory/user.slice",
            ],
        );
    }

    #[test]
    fn namespace_whose_root_is_below_the_mount() {
        // The mount was made outside: its root is two above ours, and nothing says by which names one gets from there to here.
        check("0::/\n", "30 1 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", &[]);
        // We were moved next to the namespace's root, which the mount made outside does show.
        check("0::/../next\n", "30 1 0:26 /.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", &["v2 /sys/fs/cgroup /sys/fs/cgroup/next"]);
        // We are outside of what the mount shows.
        check("0::/../../next\n", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", &[]);
        check("0::/docker/abc2\n", "30 1 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", &[]);
    }

    #[test]
    fn hidden_and_absent_mounts() {
        let top = "1 1 8:1 / / rw - ext4 /dev/sda1 rw\n";
        let v2 = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let shown: &[&str] = &["v2 /sys/fs/cgroup /sys/fs/cgroup/a"];
        check("0::/a\n", &format!("{top}{v2}"), shown);
        // Covered at the same place (the newer mount sits on the older), and further up.
        check("0::/a\n", &format!("{top}{v2}31 30 0:40 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"), &[]);
        check("0::/a\n", &format!("{top}{v2}31 1 0:40 / /sys/fs rw - tmpfs tmpfs rw\n"), &[]);
        check("0::/a\n", &format!("{top}{v2}31 1 0:40 / / rw - tmpfs tmpfs rw\n"), &[]);
        // Beside it, below it, or beneath it hides nothing.
        check("0::/a\n", &format!("{top}{v2}31 1 0:40 / /sys/fs/cgroup2 rw - tmpfs tmpfs rw\n"), shown);
        check("0::/a\n", &format!("{top}{v2}31 30 0:40 / /sys/fs/cgroup/b rw - tmpfs tmpfs rw\n"), shown);
        // Mounted again above the cover.
        check(
            "0::/a\n",
            &format!("{top}{v2}31 30 0:40 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n32 31 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            shown,
        );
        check("0::/a\n", top, &[]);
    }

    #[test]
    fn a_writable_mount_is_taken_before_a_read_only_one() {
        check(
            "0::/a\n",
            "30 1 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n31 1 0:26 /a /mnt/own rw - cgroup2 cgroup2 rw\n",
            &["v2 /mnt/own /mnt/own"],
        );
    }

    #[test]
    fn nonsense_is_passed_over() {
        check("", "", &[]);
        check(
            "::::\nx:memory:/a\n1:memory:relative\n\u{fffd}\n0::/ok\n",
            "junk\n1 2 3\n- - - - - -\n30 x 0:26 / / rw - cgroup2 c rw\n",
            &[],
        );
        assert_eq!(unescape(b"a\\040b\\134c\\9x\\"), PathBuf::from("a b\\c\\9x\\"));
        let own = Hierarchies::parse(&std::fs::read("/proc/self/cgroup").unwrap(), &std::fs::read("/proc/self/mountinfo").unwrap());
        assert!(own.v2.is_some() || !own.v1.is_empty(), "this machine has control groups");
    }
}
