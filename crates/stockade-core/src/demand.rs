//! Demands and what a wall reports about each.
//!
//! A demand is something a sandbox must hold (no network, read-only files, a memory limit). A backend answers every
//! demand with `enforced`, `partial` or `unavailable`; anything but `enforced` on an isolation demand refuses the start.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Something that a sandbox holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Demand {
    /// Only declared files exist, and are written only where that was granted.
    Files,
    /// No network but what was allowed.
    Network,
    /// No sight of, or signal to, processes outside; everything dies with the sandbox.
    Processes,
    /// No privilege to gain: capabilities, setuid, the root user.
    Privileges,
    /// Dangerous system calls are refused.
    Syscalls,
    /// No credential is visible inside.
    Secrets,
    /// Only listed programs run.
    Exec,
    /// Processor time.
    Cpu,
    /// Memory.
    Memory,
    /// Number of processes.
    Pids,
    /// Bytes written.
    Disk,
    /// Wall time.
    Time,
    /// Bytes of output.
    Output,
}

impl Demand {
    /// Every demand, in the order people see them.
    pub const ALL: [Self; 13] = [
        Self::Files,
        Self::Network,
        Self::Processes,
        Self::Privileges,
        Self::Syscalls,
        Self::Secrets,
        Self::Exec,
        Self::Cpu,
        Self::Memory,
        Self::Pids,
        Self::Disk,
        Self::Time,
        Self::Output,
    ];

    /// Isolation demands must hold whether or not anybody asked; the others are limits.
    pub fn is_isolation(self) -> bool {
        match self {
            Self::Files | Self::Network | Self::Processes | Self::Privileges | Self::Syscalls | Self::Secrets | Self::Exec => true,
            Self::Cpu | Self::Memory | Self::Pids | Self::Disk | Self::Time | Self::Output => false,
        }
    }

    /// The name used on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Network => "network",
            Self::Processes => "processes",
            Self::Privileges => "privileges",
            Self::Syscalls => "syscalls",
            Self::Secrets => "secrets",
            Self::Exec => "exec",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Disk => "disk",
            Self::Time => "time",
            Self::Output => "output",
        }
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no demand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown demand `{0}`; known: files network processes privileges syscalls secrets exec cpu memory pids disk time output")]
pub struct UnknownDemand(String);

impl FromStr for Demand {
    type Err = UnknownDemand;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|d| d.name() == text).ok_or_else(|| UnknownDemand(text.to_owned()))
    }
}

/// How well a demand is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Not at all.
    Unavailable,
    /// Held in part; the note says how.
    Partial,
    /// Held, and read back from the kernel where the kernel can say.
    Enforced,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unavailable => "unavailable",
            Self::Partial => "partial",
            Self::Enforced => "enforced",
        })
    }
}

/// One demand's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// How well it is held.
    pub level: Level,
    /// By what, or why not.
    pub how: String,
    /// What a person can do about it; empty when nothing need be done.
    pub fix: String,
}

/// What a wall holds, demand by demand.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Enforcement(pub BTreeMap<Demand, Answer>);

impl Enforcement {
    /// Records an answer; a worse one already there stays.
    pub fn set(&mut self, demand: Demand, level: Level, how: impl Into<String>, fix: impl Into<String>) {
        let answer = Answer { level, how: how.into(), fix: fix.into() };
        match self.0.get(&demand) {
            Some(old) if old.level < level => {}
            _ => {
                self.0.insert(demand, answer);
            }
        }
    }

    /// The level of a demand; one nobody answered is unavailable.
    pub fn level(&self, demand: Demand) -> Level {
        self.0.get(&demand).map_or(Level::Unavailable, |a| a.level)
    }

    /// `{demand: "enforced"|"partial"|"unavailable"}` as `run --json` prints it.
    pub fn levels(&self) -> BTreeMap<Demand, Level> {
        self.0.iter().map(|(d, a)| (*d, a.level)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for demand in Demand::ALL {
            assert_eq!(demand.name().parse(), Ok(demand));
        }
        assert!("everything".parse::<Demand>().is_err());
    }

    #[test]
    fn the_worse_answer_stays() {
        let mut report = Enforcement::default();
        report.set(Demand::Memory, Level::Partial, "sampled", "");
        report.set(Demand::Memory, Level::Enforced, "cgroup", "");
        assert_eq!(report.level(Demand::Memory), Level::Partial);
        assert_eq!(report.level(Demand::Cpu), Level::Unavailable);
    }
}
