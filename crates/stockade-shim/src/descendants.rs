//! Processes below an ordinary process: for a guest that is not the first of a pid namespace, where a program can leave its group.
//!
//! The guest is made the reaper of orphans where there is no namespace, so that what detaches itself stays below it. Found by
//! `/proc/PID/task/TID/children`; a kernel without those files has only the groups.

use std::collections::BTreeSet;

/// More processes than this are not followed.
const MOST: usize = 16_384;
/// How often we look again for what was started while we looked.
const ROUNDS: usize = 16;

/// Sends a signal to everything below this process. A killing one is repeated until nobody new is found.
pub(crate) fn signal(signal: i32) {
    let mut known = BTreeSet::new();
    let rounds = if signal == libc::SIGKILL { ROUNDS } else { 1 };
    for _ in 0..rounds {
        let found = below(rustix::process::getpid().as_raw_nonzero().get());
        let fresh: Vec<i32> = found.into_iter().filter(|pid| known.insert(*pid)).collect();
        if fresh.is_empty() {
            return;
        }
        if signal == libc::SIGKILL {
            // A stopped process starts no others while the next is being looked for.
            for pid in &fresh {
                send(*pid, libc::SIGSTOP);
            }
        }
        for pid in &fresh {
            send(*pid, signal);
        }
    }
}

fn send(pid: i32, signal: i32) {
    if pid > 1 {
        // SAFETY: takes plain integers and touches no memory.
        unsafe { libc::kill(pid, signal) };
    }
}

fn below(root: i32) -> Vec<i32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten().take(MOST) {
            let Ok(list) = std::fs::read_to_string(thread.path().join("children")) else { continue };
            found.extend(list.split_whitespace().filter_map(|word| word.parse::<i32>().ok()));
        }
        if found.len() > MOST {
            break;
        }
    }
    found.remove(0);
    found
}
