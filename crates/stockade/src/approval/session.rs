//! Which session a command was typed in, so that it can be recognised again: the leader of its process group's session, by number and start.

use std::io::Read as _;

/// Longer than any line that is looked at.
const MOST: u64 = 4096;

/// Where a process's session and its start are among the fields after its name, which may hold anything, blanks and brackets included.
const SESSION: usize = 3;
const STARTED: usize = 19;

/// The session's name; `None` where its leader is gone, because its number may become another's, or is outside the PID namespace, as in a container.
pub(super) fn name() -> Option<String> {
    let leader = field("self", SESSION)?;
    let started = field(&leader, STARTED)?;
    let boot = read("/proc/sys/kernel/random/boot_id")?;
    Some(format!("{leader}-{started}-{}", boot.trim()))
}

fn field(process: &str, index: usize) -> Option<String> {
    let stat = read(&format!("/proc/{process}/stat"))?;
    stat.rsplit_once(") ")?.1.split(' ').nth(index).map(str::to_owned)
}

fn read(path: &str) -> Option<String> {
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(MOST).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_session_has_one_name() {
        assert_eq!(super::name(), super::name());
    }
}
