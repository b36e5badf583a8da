//! Kills everything in a group, however it daemonised, and removes the group.
//!
//! Version 2 has `cgroup.kill`, which no fork outruns. Otherwise the group is frozen if it can be, every process gets
//! SIGKILL through a descriptor that cannot be mistaken for another process, and this is repeated until nobody is left.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::apply::Directory;
use super::freeze::{self, Frozen};
use super::hierarchy::Version;
use super::patience::{Patience, Patient};
use super::{LimitError, files};

/// How many process descriptors are open at once.
const BATCH: usize = 32;
/// How long freezing may take before we kill without it.
const FREEZE_FIRST: Duration = Duration::from_millis(100);
/// Rounds in which we only look on after `cgroup.kill`.
const LOOK_ON: usize = 8;

/// Kills until every directory is empty.
pub(super) fn kill(directories: &[Directory], bound: Duration) -> Result<(), LimitError> {
    if directories.iter().all(is_empty) {
        return Ok(());
    }
    let mut patience = Patience::new(bound);
    let killed_at_once = directories.iter().any(|d| d.version == Version::Two && d.write("cgroup.kill", "1").is_ok());
    let freezer = if killed_at_once { None } else { freeze::freezer(directories) };
    if let Some(freezer) = freezer {
        let _ = freeze::freeze(freezer, Frozen::Yes, FREEZE_FIRST.min(bound)); // It only makes killing surer.
    }
    for round in 0_usize.. {
        // What joined only some of the hierarchies is not reached by `cgroup.kill`.
        if !killed_at_once || round >= LOOK_ON {
            directories.iter().for_each(signal_all);
        }
        // In version 1 a frozen process dies only when it is thawed.
        if let Some(freezer) = freezer {
            let _ = freeze::write(freezer, Frozen::No);
        }
        let Some(left) = directories.iter().find(|d| !is_empty(d)) else { break };
        if patience.pause() == Patient::No {
            return Err(LimitError::KillTimedOut { path: left.path.clone(), milliseconds: bound.as_millis() });
        }
    }
    Ok(())
}

/// Removes directories, waiting while dying processes leave them. What is gone is taken from the list.
pub(super) fn remove(directories: &mut Vec<Directory>, bound: Duration) -> Result<(), LimitError> {
    let mut patience = Patience::new(bound);
    while let Some(directory) = directories.last() {
        match rustix::fs::rmdir(&directory.path) {
            Ok(()) | Err(Errno::NOENT) => {
                directories.pop();
            }
            Err(Errno::BUSY) if patience.pause() == Patient::Yes => {}
            Err(source) => return Err(LimitError::Remove { path: directory.path.clone(), source }),
        }
    }
    Ok(())
}

fn is_empty(directory: &Directory) -> bool {
    match directory.version {
        // A directory that is gone is empty too.
        Version::Two => files::read(&directory.open, "cgroup.events").map_or(true, |text| files::keyed(&text, "populated") == Some(0)),
        Version::One => files::read(&directory.open, "cgroup.procs").map_or(true, |text| text.is_empty()),
    }
}

/// Signals everybody listed. Between reading a number and opening its descriptor the process may end and the number go to
/// a stranger, so the list is read again: who is still on it after the descriptor was opened is meant by the descriptor.
fn signal_all(directory: &Directory) {
    let listed = processes(directory);
    for batch in listed.chunks(BATCH) {
        let open: Vec<_> =
            batch.iter().filter_map(|pid| Some((*pid, pidfd_open(Pid::from_raw(*pid)?, PidfdFlags::empty()).ok()?))).collect();
        let still = processes(directory);
        for (pid, descriptor) in open {
            if still.contains(&pid) {
                let _ = pidfd_send_signal(&descriptor, Signal::KILL); // It may have ended by itself.
            }
        }
    }
}

/// Who is in the group, without ourselves and without those that this pid namespace does not show (they are listed as 0).
fn processes(directory: &Directory) -> Vec<i32> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let list = files::read(&directory.open, "cgroup.procs").unwrap_or_default();
    // The list may be cut in the middle of its last number; the next round sees the rest.
    let whole = if list.len() >= files::MOST_BYTES { list.rsplit_once('\n').map_or("", |(whole, _)| whole) } else { &list };
    whole.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0 && *pid != own).collect()
}
