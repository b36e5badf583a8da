//! The words of [`Cgroup::holds`](super::Cgroup::holds): what holds each limit, or why nothing does and what would help.

use stockade_core::demand::{Demand, Enforcement, Level};
use stockade_core::limits::Origin;

use super::hierarchy::Controller;
use super::layout::{Layout, Privilege};

/// How often the caller samples memory where no group holds it.
const SAMPLING: &str = "sampled every 50 ms, and killed when it is over";

/// What came of one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nobody wanted one.
    NotWanted,
    /// Set and read back; the text says where.
    Held(String),
    /// Not set; the text says why.
    Missing(String),
}

/// The answer for processor time.
pub(super) fn cpu(report: &mut Enforcement, outcome: &Outcome, origin: Option<Origin>, layout: &Layout) {
    match outcome {
        Outcome::Missing(why) => {
            // Nothing stands in for a quota; a built-in limit counts as held in part because wall time still bounds the work.
            let level = if origin == Some(Origin::Default) { Level::Partial } else { Level::Unavailable };
            report.set(Demand::Cpu, level, format!("only wall time bounds it: {why}"), fix(Controller::Cpu, layout));
        }
        Outcome::NotWanted | Outcome::Held(_) => plain(report, Demand::Cpu, outcome),
    }
}

/// The answer for memory.
pub(super) fn memory(report: &mut Enforcement, outcome: &Outcome, layout: &Layout) {
    match outcome {
        Outcome::Missing(why) => {
            report.set(Demand::Memory, Level::Partial, format!("{SAMPLING}: {why}"), fix(Controller::Memory, layout));
        }
        Outcome::NotWanted | Outcome::Held(_) => plain(report, Demand::Memory, outcome),
    }
}

/// The answer for processes. Without a group the caller sets `RLIMIT_NPROC` before it makes the sandbox's user namespace;
/// the kernel then counts in that namespace alone, threads too, which is as good as `pids.max`.
pub(super) fn pids(report: &mut Enforcement, outcome: &Outcome) {
    match outcome {
        Outcome::Missing(_) => report.set(Demand::Pids, Level::Enforced, "RLIMIT_NPROC in its own user namespace", ""),
        Outcome::NotWanted | Outcome::Held(_) => plain(report, Demand::Pids, outcome),
    }
}

fn plain(report: &mut Enforcement, demand: Demand, outcome: &Outcome) {
    match outcome {
        Outcome::NotWanted => report.set(demand, Level::Enforced, "no limit was set", ""),
        Outcome::Held(how) => report.set(demand, Level::Enforced, how, ""),
        Outcome::Missing(why) => report.set(demand, Level::Unavailable, why, ""),
    }
}

/// What a person can do so that this controller is there next time.
fn fix(controller: Controller, layout: &Layout) -> String {
    let name = controller.name_v1();
    let mounted = !layout.ancestors.is_empty();
    match layout.privilege {
        Privilege::Ordinary if mounted => {
            "run it in a control group of its own: `systemd-run --user --scope -p Delegate=yes stockade …`".to_owned()
        }
        Privilege::Ordinary => "ask the administrator to mount cgroup2 on /sys/fs/cgroup and to delegate a group to you".to_owned(),
        Privilege::Root if mounted => format!(
            "give it a writable control group with `{name}`: on the host `systemd-run --scope -p Delegate=yes stockade …`; in a \
             container make /sys/fs/cgroup writable and start stockade as the only process of its group"
        ),
        Privilege::Root => {
            format!(
                "mount the controllers: `mount -t cgroup2 none /sys/fs/cgroup`, or `mount -t cgroup -o {name} none DIRECTORY` for version 1"
            )
        }
    }
}
