//! Programs that still run inside when the one that was asked for has ended. They are ended with the sandbox; whoever reads what came of it may
//! want to know that they were there.
//!
//! A look, not a promise: a program that is ending this very moment may be among them, and on a kernel that does not list children nobody is.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// More than these are not looked for.
const MOST: usize = 256;
/// What the kernel keeps of a program's name.
const LONGEST_NAME: usize = 16;

/// Names of the programs below a guest, without its own helpers.
pub(crate) fn below(guest: &OwnedFd) -> Vec<String> {
    let Some(guest) = pid_of(guest) else { return Vec::new() };
    let own = program(guest);
    let mut names = Vec::new();
    let mut queue = children(guest);
    let mut seen = 0;
    while let Some(pid) = queue.pop().filter(|_| seen < MOST) {
        seen += 1;
        queue.extend(children(pid));
        // One that has ended already has no program any more.
        if let Some(name) = program(pid).filter(|program| Some(program) != own.as_ref()).and_then(|_| name(pid)) {
            names.push(name);
        }
    }
    names.sort();
    names
}

fn pid_of(process: &OwnedFd) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().take(MOST);
    let listed = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    listed.flat_map(|text| text.split_whitespace().take(MOST).filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

fn program(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Its name, as the program itself may have set it.
fn name(pid: u32) -> Option<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    Some(stockade_core::escape::escape_bytes(bytes.get(..bytes.len().min(LONGEST_NAME)).unwrap_or_default()))
}
