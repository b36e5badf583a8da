//! From what the guest read back to an answer for every demand.

use stockade_core::demand::{Demand, Enforcement, Level};
use stockade_core::spec::SandboxSpec;
use stockade_wire::plan::JailReport;

use crate::backends::{BackendError, Start};
use crate::limits::{Cgroup, LimitError};
use crate::surroundings::facts::Facts;
use crate::surroundings::{Failed, Obstacle};

/// Refuses, before anything is cloned, limits that somebody asked for and that cannot be held.
pub(super) fn refuse_limits(early: &Enforcement, spec: &SandboxSpec) -> Result<(), BackendError> {
    for demand in [Demand::Cpu, Demand::Memory, Demand::Pids] {
        if spec.limits.is_asked(demand) && early.level(demand) != Level::Enforced && !spec.allow_degraded.contains(&demand) {
            let answer = early.0.get(&demand);
            return Err(BackendError::Demand {
                demand,
                why: answer.map(|a| a.how.clone()).unwrap_or_default(),
                fix: answer.map(|a| a.fix.clone()).filter(|f| !f.is_empty()).unwrap_or_else(|| format!("--allow-degraded {demand}")),
            });
        }
    }
    Ok(())
}

/// The answers of a jail that stands.
pub(super) fn from_report(report: &JailReport, cgroup: &Cgroup, start: &Start<'_>, disk: (Level, String)) -> Enforcement {
    let mut answers = Enforcement::default();
    let differs = |name: &str| {
        let own = own_namespace(name);
        own.is_some() && report.namespaces.iter().any(|(n, inode)| n == name && Some(*inode) != own)
    };
    let mut say = |demand: Demand, checks: &[(bool, &str)], how: String| {
        let missing: Vec<&str> = checks.iter().filter(|c| !c.0).map(|c| c.1).collect();
        if missing.is_empty() {
            answers.set(demand, Level::Enforced, how, "");
        } else {
            answers.set(demand, Level::Partial, format!("missing: {}", missing.join(", ")), "");
        }
    };
    let landlock = report.landlock_restricted && report.landlock_probe;
    let files = [(differs("mnt"), "own mount namespace"), (report.root_detached, "old root detached"), (landlock, "Landlock")];
    let landlock_how = format!("own root, Landlock version {}", report.landlock_abi);
    say(Demand::Files, &files, landlock_how.clone());
    let secrets_how = match start.way_out {
        None => "only declared files exist; clean environment",
        Some(_) => "only declared files exist; clean environment; egress puts values in outside",
    };
    say(Demand::Secrets, &files, secrets_how.into());
    say(
        Demand::Network,
        &[(differs("net"), "own network namespace"), (report.loopback_only, "loopback only")],
        match start.way_out {
            None => "no interface but loopback".into(),
            Some(_) => "no interface but loopback; through egress only".into(),
        },
    );
    let processes = [(differs("pid"), "own pid namespace"), (differs("ipc"), "own ipc namespace"), (differs("uts"), "own uts namespace")];
    say(Demand::Processes, &processes, "own pid and ipc namespaces".into());
    let privileges = [
        (differs("user"), "own user namespace"),
        (report.no_new_privs, "no_new_privs"),
        (report.capabilities == 0, "capabilities dropped"),
        (report.uid != 0, "not root inside"),
    ];
    say(Demand::Privileges, &privileges, format!("user {} inside, no capabilities, no_new_privs", report.uid));
    let filter = [(report.seccomp_mode == 2, "seccomp filter"), (report.seccomp_probe, "filter answers")];
    say(Demand::Syscalls, &filter, "seccomp allow-list".into());
    let exec_how = match &start.spec.exec_list {
        Some(list) => format!("{} programs, everything else not executable", list.len()),
        None => "no list was given: any program may run".into(),
    };
    let needs_landlock = start.spec.exec_list.is_none() || landlock;
    say(Demand::Exec, &[(needs_landlock, "Landlock")], exec_how);
    for (demand, answer) in &cgroup.holds().0 {
        answers.0.insert(*demand, answer.clone());
    }
    answers.set(Demand::Disk, disk.0, disk.1, if disk.0 == Level::Enforced { "" } else { "--disk SIZE holds writes in memory" });
    answers.set(Demand::Time, Level::Enforced, "the sandbox is killed when time is up", "");
    answers.set(Demand::Output, Level::Enforced, "captured output is cut at the limit", "");
    answers
}

/// Where neither a cgroup counts memory nor the tree of processes can be read, nothing holds the limit.
pub(super) fn nothing_samples_memory(answers: &mut Enforcement, error: &LimitError) {
    let fix = answers.0.get(&Demand::Memory).map(|a| a.fix.clone()).unwrap_or_default();
    answers.set(Demand::Memory, Level::Unavailable, format!("no control group counts it and it cannot be sampled: {error}"), fix);
}

/// The outer `/proc` is shown, read-only: processes outside can be seen.
pub(super) fn outer_proc(answers: &mut Enforcement) {
    let obstacle = Obstacle::ProcCovered(Facts::gather().engine);
    answers.set(Demand::Processes, Level::Partial, format!("the /proc around it is shown: {}", obstacle.why()), obstacle.fix());
}

fn own_namespace(name: &str) -> Option<u64> {
    let link = std::fs::read_link(format!("/proc/self/ns/{name}")).ok()?;
    let text = link.to_string_lossy();
    text.trim_start_matches(|c: char| !c.is_ascii_digit()).trim_end_matches(']').parse().ok()
}

/// A failed step as an error that names what is in the way where that is known.
pub(super) fn explain_step(step: &str, detail: &str, errno: i32) -> BackendError {
    let failed = match step {
        "landlock" if detail.starts_with("this kernel has no Landlock") => None,
        "basis" if detail.starts_with("making proc") => Some(Failed::Proc),
        _ => Some(Failed::Inside),
    };
    let obstacle = match failed {
        None => Some(Obstacle::NoLandlock),
        Some(failed) => Obstacle::behind(failed, errno, &Facts::gather()),
    };
    if let Some(obstacle) = obstacle {
        return BackendError::Obstacle { obstacle, met: format!("jail: {step}: {detail}") };
    }
    let fix = if step == "seccomp" { "use a kernel with seccomp filters, or --allow-degraded syscalls" } else { "" };
    BackendError::Step { step: format!("jail: {step}"), detail: detail.to_owned(), fix: fix.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_cannot_be_sampled_is_not_held_at_all() {
        let mut answers = Enforcement::default();
        answers.set(Demand::Memory, Level::Partial, "sampled", "delegate a group");
        nothing_samples_memory(&mut answers, &LimitError::NoChildList { path: "/proc/1/task/1/children".into() });
        let answer = answers.0.get(&Demand::Memory).unwrap();
        assert_eq!((answer.level, answer.fix.as_str()), (Level::Unavailable, "delegate a group"));
        assert!(answer.how.contains("/proc/1/task/1/children"), "{}", answer.how);
    }
}
