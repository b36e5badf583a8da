//! Processes as `/proc` shows them. Inside the cage that is the soak and what it started, nothing else.

use std::collections::BTreeMap;
use std::fs;

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// Its number in the innermost pid namespace, where that is not ours.
    pub inner: Option<u32>,
    /// It has ended and nobody has asked how.
    pub is_zombie: bool,
    /// Its name and arguments.
    pub command: String,
}

/// Every process but this one.
pub fn all() -> Vec<Process> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    pids.filter(|pid| *pid != own).filter_map(read).collect()
}

/// One process, if it is still there.
pub fn read(pid: u32) -> Option<Process> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let fields: BTreeMap<&str, &str> = status.lines().filter_map(|line| line.split_once(':')).map(|(k, v)| (k, v.trim())).collect();
    let numbers: Vec<u32> = fields.get("NSpid")?.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments = String::from_utf8_lossy(&line).replace('\0', " ");
    Some(Process {
        pid,
        parent: fields.get("PPid")?.parse().ok()?,
        inner: numbers.last().copied().filter(|_| numbers.len() > 1),
        is_zombie: fields.get("State").is_some_and(|state| state.starts_with('Z')),
        command: format!("{} [{}]", fields.get("Name").unwrap_or(&"?"), arguments.trim_end()),
    })
}

/// Everything that descends from a process.
pub fn descendants(all: &[Process], of: u32) -> Vec<&Process> {
    let mut found: Vec<&Process> = Vec::new();
    let mut wanted = vec![of];
    while let Some(parent) = wanted.pop() {
        for child in all.iter().filter(|process| process.parent == parent) {
            found.push(child);
            wanted.push(child.pid);
        }
    }
    found
}

/// The guest of a sandbox: the first process of its pid namespace.
pub fn guest_below(all: &[Process], of: u32) -> Option<&Process> {
    descendants(all, of).into_iter().find(|process| process.inner == Some(1) && !process.is_zombie)
}

/// Programs behind the wall: what descends from the guest.
pub fn programs_below(all: &[Process], of: u32) -> Vec<&Process> {
    let Some(guest) = guest_below(all, of) else { return Vec::new() };
    descendants(all, guest.pid).into_iter().filter(|process| !process.is_zombie).collect()
}

/// The owner of a created sandbox.
pub fn is_supervisor(process: &Process) -> bool {
    !process.is_zombie && process.command.contains("stockade hold ")
}

/// Takes note of the end of orphans, which became our children: the soak is the first process of its pid namespace. Only called while
/// no child of the soak's own is waited for.
pub fn reap() {
    while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {}
}

/// Where every thread of a process stands, for the story of a hang.
pub fn story(pid: u32) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    format!("syscall {} at {}", read("syscall").trim_end(), read("stack").replace('\n', " ").trim_end())
}
