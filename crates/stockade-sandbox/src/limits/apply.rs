//! Sets each limit in a group's directory and reads it back. Knows the files of both versions; makes no directories.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::hierarchy::{Controller, Version};
use super::{LimitError, files};

/// The usual period of processor quotas, in microseconds.
const PERIOD: u64 = 100_000;
/// The longest period, for quotas that would be too small in the usual one.
const LONG_PERIOD: u64 = 1_000_000;
/// The least quota that the kernel takes, in microseconds.
const LEAST_QUOTA: u64 = 1_000;
/// Memory limits are rounded down to pages, which are at most this large.
const LARGEST_PAGE: u64 = 64 * 1024;

/// One directory of a sandbox's group.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) version: Version,
    pub(super) path: PathBuf,
    /// The hierarchy's mount; looking at parents ends there.
    pub(super) mount: PathBuf,
    /// Open, and locked as long as its owner lives.
    pub(super) open: OwnedFd,
    /// Controllers that act here.
    pub(super) controllers: BTreeSet<Controller>,
}

impl Directory {
    pub(super) fn read(&self, name: &str) -> Result<String, LimitError> {
        files::read(&self.open, name).map_err(|source| LimitError::Read { path: self.path.join(name), source })
    }

    pub(super) fn write(&self, name: &str, value: &str) -> Result<(), LimitError> {
        files::write(&self.open, name, value).map_err(|source| LimitError::Write {
            path: self.path.join(name),
            value: value.to_owned(),
            source,
        })
    }

    pub(super) fn exists(&self, name: &str) -> bool {
        rustix::fs::accessat(&self.open, name, rustix::fs::Access::EXISTS, rustix::fs::AtFlags::empty()).is_ok()
    }

    /// Writes a value and makes sure that the kernel took it.
    fn set(&self, name: &str, value: &str) -> Result<String, LimitError> {
        self.write(name, value)?;
        self.confirm(name, value, |found| found == value)
    }

    fn confirm(&self, name: &str, wanted: &str, is_right: impl Fn(&str) -> bool) -> Result<String, LimitError> {
        let found = self.read(name)?;
        let found = found.trim();
        if is_right(found) {
            return Ok(format!("cgroup {} {name} = {found}", label(self.version)));
        }
        Err(LimitError::ReadBack { path: self.path.join(name), wanted: wanted.to_owned(), found: found.to_owned() })
    }
}

/// Limits memory; swap counts as memory or is forbidden, so that a limit of 512M is not 512M and a disk full of swap.
pub(super) fn memory(directory: &Directory, bytes: u64) -> Result<String, LimitError> {
    let value = bytes.to_string();
    let near = |found: &str| found.parse().is_ok_and(|found: u64| found <= bytes && bytes - found < LARGEST_PAGE);
    match directory.version {
        Version::Two => {
            directory.write("memory.max", &value)?;
            let how = directory.confirm("memory.max", &value, near)?;
            if directory.exists("memory.swap.max") {
                directory.set("memory.swap.max", "0")?;
            }
            // All or nothing: half a program that lost a process to the limit is of no use to anybody.
            if directory.exists("memory.oom.group") {
                directory.set("memory.oom.group", "1")?;
            }
            Ok(how)
        }
        Version::One => {
            directory.write("memory.limit_in_bytes", &value)?;
            let how = directory.confirm("memory.limit_in_bytes", &value, near)?;
            if directory.exists("memory.memsw.limit_in_bytes") {
                directory.write("memory.memsw.limit_in_bytes", &value)?;
                directory.confirm("memory.memsw.limit_in_bytes", &value, near)?;
            } else if directory.exists("memory.swappiness") {
                directory.set("memory.swappiness", "0")?;
            }
            Ok(how)
        }
    }
}

/// Limits processes and threads.
pub(super) fn pids(directory: &Directory, most: u64) -> Result<String, LimitError> {
    directory.set("pids.max", &most.to_string())
}

/// Limits processor time.
pub(super) fn cpu(directory: &Directory, millis: u32) -> Result<String, LimitError> {
    let (quota, period) = quota(millis);
    match directory.version {
        Version::Two => directory.set("cpu.max", &format!("{quota} {period}")),
        Version::One => {
            directory.set("cpu.cfs_period_us", &period.to_string())?;
            match directory.set("cpu.cfs_quota_us", &quota.to_string()) {
                Err(LimitError::Write { source: Errno::INVAL, path, value }) => {
                    // Version 1 refuses a child more than its parent has. The parent's tighter limit then holds for us.
                    tighter_parent(directory, quota, period).ok_or(LimitError::Write { path, value, source: Errno::INVAL })
                }
                other => other.map(|how| format!("{how} of {period}")),
            }
        }
    }
}

/// Quota and period in microseconds; the kernel takes no quota below a millisecond.
fn quota(millis: u32) -> (u64, u64) {
    let of = |period: u64| u64::from(millis) * period / 1000;
    if of(PERIOD) >= LEAST_QUOTA { (of(PERIOD), PERIOD) } else { (of(LONG_PERIOD).max(LEAST_QUOTA), LONG_PERIOD) }
}

/// The nearest limited ancestor, if it allows no more than we wanted.
fn tighter_parent(directory: &Directory, quota: u64, period: u64) -> Option<String> {
    let mut parents = directory.path.ancestors().skip(1).take_while(|path| path.starts_with(&directory.mount));
    let (path, theirs, their_period) = parents.find_map(limited)?;
    let is_tighter = u128::from(theirs) * u128::from(period) <= u128::from(quota) * u128::from(their_period);
    is_tighter.then(|| format!("cgroup v1 cpu.cfs_quota_us = {theirs} of {their_period} of `{}` above, which is tighter", path.display()))
}

fn limited(path: &Path) -> Option<(&Path, u64, u64)> {
    let open = files::open_directory(path).ok()?;
    let number = |name: &str| files::read(&open, name).ok()?.trim().parse::<u64>().ok();
    // No limit is `-1`, which is no unsigned number.
    Some((path, number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?))
}

fn label(version: Version) -> &'static str {
    match version {
        Version::One => "v1",
        Version::Two => "v2",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_within_what_the_kernel_takes() {
        assert_eq!(quota(1000), (100_000, 100_000));
        assert_eq!(quota(500), (50_000, 100_000));
        assert_eq!(quota(10), (1_000, 100_000));
        assert_eq!(quota(9), (9_000, 1_000_000));
        assert_eq!(quota(1), (1_000, 1_000_000));
        assert_eq!(quota(8_192_000), (819_200_000, 100_000));
    }

    fn fake(version: Version, names: &[&str]) -> (tempfile::TempDir, Directory) {
        let root = tempfile::tempdir().unwrap();
        for name in names {
            std::fs::write(root.path().join(name), "").unwrap();
        }
        let path = root.path().to_owned();
        let open = files::open_directory(&path).unwrap();
        (root, Directory { version, mount: path.clone(), path, open, controllers: BTreeSet::new() })
    }

    #[test]
    fn version_2_files() {
        let (root, directory) = fake(Version::Two, &["memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max"]);
        let text = |name: &str| std::fs::read_to_string(root.path().join(name)).unwrap();
        assert_eq!(memory(&directory, 1 << 29).unwrap(), "cgroup v2 memory.max = 536870912");
        assert_eq!((text("memory.swap.max").as_str(), text("memory.oom.group").as_str()), ("0", "1"));
        assert_eq!(pids(&directory, 65).unwrap(), "cgroup v2 pids.max = 65");
        assert_eq!(cpu(&directory, 1500).unwrap(), "cgroup v2 cpu.max = 150000 100000");
    }

    #[test]
    fn version_2_without_swap_accounting() {
        let (_root, directory) = fake(Version::Two, &["memory.max"]);
        assert_eq!(memory(&directory, 1 << 29).unwrap(), "cgroup v2 memory.max = 536870912");
        assert!(matches!(pids(&directory, 65), Err(LimitError::Write { .. })), "a file that is not there is an error");
    }

    #[test]
    fn version_1_without_swap_accounting_turns_swapping_off() {
        let (root, directory) = fake(Version::One, &["memory.limit_in_bytes", "memory.swappiness"]);
        assert_eq!(memory(&directory, 1 << 29).unwrap(), "cgroup v1 memory.limit_in_bytes = 536870912");
        assert_eq!(std::fs::read_to_string(root.path().join("memory.swappiness")).unwrap(), "0");
    }

    #[test]
    fn a_value_that_the_kernel_changed_is_an_error() {
        let (root, directory) = fake(Version::Two, &["pids.max"]);
        // What is longer than our value stays behind it in a plain file, as if the kernel showed something else.
        std::fs::write(root.path().join("pids.max"), "maxmax").unwrap();
        assert!(matches!(pids(&directory, 65), Err(LimitError::ReadBack { found, .. }) if found == "65xmax"));
    }
}
