//! The processes of a jail, and what has to be looked at while programs run because nothing tells us.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions};
use stockade_core::demand::Demand;
use stockade_sys::guest::Guest;

use crate::drive::Watch;
use crate::limits::{self, Cgroup};

/// The processes of a jail and what has to be looked at while programs run, because nothing tells us.
pub(super) struct Wall {
    pub(super) guest: Guest,
    pub(super) cgroup: Cgroup,
    pub(super) memory: Option<u64>,
    pub(super) disk: Option<DiskWatch>,
    /// A directory of the scratch file system, to ask how full that is.
    pub(super) scratch: Option<OwnedFd>,
    /// A full scratch file system is the disk limit that somebody asked for.
    pub(super) full_is_limit: bool,
    pub(super) pids: bool,
    /// How many processes and threads are too many, where no cgroup notices.
    pub(super) tasks: Option<usize>,
    /// Whether a secret was misused: then there is something to read.
    pub(super) alarm: Option<OwnedFd>,
    /// What a look found; it stays found.
    hit: Option<Demand>,
}

pub(super) struct DiskWatch {
    upper: OwnedFd,
    limit: u64,
    next: Instant,
}

impl DiskWatch {
    pub(super) fn new(upper: OwnedFd, limit: u64) -> Self {
        Self { upper, limit, next: Instant::now() }
    }
}

impl Watch for Wall {
    fn tick(&mut self) -> Option<Demand> {
        if self.hit.is_none() {
            self.hit = self.look();
        }
        self.hit
    }

    fn is_needed(&self) -> bool {
        true
    }

    fn kill(&mut self) {
        end(&self.guest.pidfd);
    }
}

impl Wall {
    /// Kills everything inside.
    pub(super) fn silence(&mut self) {
        silence(&self.guest.pidfd, self.guest.pid);
    }

    /// Around a guest that was just started: nothing is watched yet, but it ends with this value.
    pub(super) fn around(guest: Guest) -> Self {
        Self {
            guest,
            cgroup: Cgroup::default(),
            memory: None,
            disk: None,
            scratch: None,
            full_is_limit: false,
            pids: false,
            tasks: None,
            alarm: None,
            hit: None,
        }
    }

    /// Whether a look finds nothing that the kernel does not count.
    pub(super) fn is_counted(&self) -> bool {
        let Self { guest: _, cgroup: _, memory, disk, scratch: _, full_is_limit, pids: _, tasks, alarm, hit } = self;
        memory.is_none() && disk.is_none() && !full_is_limit && tasks.is_none() && alarm.is_none() && hit.is_none()
    }

    fn look(&mut self) -> Option<Demand> {
        if self.alarm.as_ref().is_some_and(is_raised) {
            return Some(Demand::Secrets);
        }
        let sample = self.cgroup.sample();
        if let Some(lost) = sample.lost {
            // Somebody outside took a limit away that was promised.
            return Some(lost);
        }
        if let Some(hit) = sample.hit {
            // Running into the limit of processes only makes forks fail, unless somebody asked for it.
            if hit != Demand::Pids || self.pids {
                return Some(hit);
            }
        }
        if let Some(limit) = self.tasks
            && limits::sampler::tasks_below(self.guest.pid as u32).is_ok_and(|tasks| tasks > limit)
        {
            return Some(Demand::Pids);
        }
        let scratch = self.scratch.as_ref().and_then(|fd| rustix::fs::fstatfs(fd).ok());
        if let Some(limit) = self.memory {
            // Files of the scratch file system are memory too, though no process maps them.
            let files = scratch.as_ref().map_or(0, |s| (s.f_blocks - s.f_bfree).saturating_mul(s.f_bsize as u64));
            let processes = limits::sampler::memory_of_tree(self.guest.pid as u32, limit).map_or(0, |used| used.bytes);
            if files.saturating_add(processes) > limit {
                return Some(Demand::Memory);
            }
        }
        if self.full_is_limit && scratch.is_some_and(|s| s.f_bavail == 0) {
            return Some(Demand::Disk);
        }
        let now = Instant::now();
        if let Some(disk) = self.disk.as_mut().filter(|d| now >= d.next) {
            let used = limits::disk::usage(disk.upper.as_fd(), disk.limit, limits::disk::Bounds::default());
            // A large tree is looked at less often: looking may take a twentieth of the time at most.
            disk.next = Instant::now() + now.elapsed().saturating_mul(20).max(Duration::from_millis(200));
            if used.is_ok_and(|u| u.bytes > disk.limit) {
                return Some(Demand::Disk);
            }
        }
        None
    }
}

/// Whether there is something to read; an end that is merely closed says nothing.
fn is_raised(alarm: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut asked = [PollFd::new(alarm, PollFlags::IN)];
    rustix::event::poll(&mut asked, Some(&now)).is_ok() && asked.iter().any(|fd| fd.revents().contains(PollFlags::IN))
}

impl Drop for Wall {
    fn drop(&mut self) {
        end(&self.guest.pidfd);
    }
}

/// Kills a guest and so everything inside. The kernel takes its time to take namespaces down; that is waited for only where something besides
/// the guest is still alive and might write.
pub(crate) fn silence(process: &OwnedFd, pid: i32) {
    let _ = rustix::process::pidfd_send_signal(process, Signal::KILL);
    // Orphans become children of the guest, so where it has none there is nobody.
    if !std::fs::read(format!("/proc/{pid}/task/{pid}/children")).is_ok_and(|children| children.is_empty()) {
        end(process);
    }
}

/// Kills the guest, and with it the whole pid namespace, and waits until it is gone.
pub(crate) fn end(process: &OwnedFd) {
    // Fails only when it is gone already.
    let _ = rustix::process::pidfd_send_signal(process, Signal::KILL);
    // Whoever clears up after a run is not the parent and cannot wait for the process, but can see it end.
    while rustix::event::poll(&mut [PollFd::new(process, PollFlags::IN)], None) == Err(Errno::INTR) {}
    let _ = rustix::process::waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED);
}
