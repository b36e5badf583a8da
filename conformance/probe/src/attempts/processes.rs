//! The victim's process: seen, signalled, traced, read.

use std::os::fd::AsRawFd;

use crate::call::{address, raw};
use crate::facts::Facts;
use crate::finding::{Finding, if_it_works, if_secret};

use super::Attempt;

pub(super) const TABLE: &[(&str, Attempt)] = &[
    ("see_processes", see_processes),
    ("signal_victim", signal_victim),
    ("signal_everything", signal_everything),
    ("trace_victim", trace_victim),
    ("read_victim_memory", read_victim_memory),
    ("read_victim_mem_file", read_victim_mem_file),
    ("read_victim_environment", |facts| victim_file(facts, "environ")),
    ("victim_root", |facts| victim_path(facts, "root")),
    ("victim_directory", |facts| victim_path(facts, "cwd")),
    ("victim_descriptor_link", victim_descriptor_link),
    ("take_victim_descriptor", take_victim_descriptor),
    ("any_environment", any_environment),
    ("any_root", any_root),
    ("victim_limits", victim_limits),
];

fn pid(facts: &Facts) -> i64 {
    facts.number("decoy_pid")
}

/// Looks through every process for the victim's arguments.
fn see_processes(facts: &Facts) -> Finding {
    let mark = format!("base={}", facts.text("base"));
    match processes()
        .iter()
        .filter_map(|p| std::fs::read(format!("/proc/{p}/cmdline")).ok())
        .find(|c| c.starts_with(b"stockade-conformance-decoy") && c.split(|b| *b == 0).any(|word| word == mark.as_bytes()))
    {
        Some(_) => Finding::Open("the victim's arguments were read".into()),
        None => Finding::Held("not among the processes".into()),
    }
}

fn processes() -> Vec<String> {
    let names = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|n| n.bytes().all(|b| b.is_ascii_digit())).collect()
}

/// The victim says on the host that it was reached; a process that happens to have its number inside says nothing.
fn signal_victim(facts: &Facts) -> Finding {
    if_it_works(raw(libc::SYS_kill, &[pid(facts), i64::from(libc::SIGUSR1)]))
}

/// Every process that may be signalled, with the signal that only asks.
fn signal_everything(facts: &Facts) -> Finding {
    let reached = processes().into_iter().filter_map(|p| p.parse::<i64>().ok()).filter(|p| raw(libc::SYS_kill, &[*p, 0]).is_ok());
    let reached: Vec<i64> = reached.collect();
    if reached.contains(&pid(facts)) && matches!(see_processes(facts), Finding::Open(_)) {
        Finding::Open("the victim is among them".into())
    } else {
        Finding::Held(format!("{} processes, all its own", reached.len()))
    }
}

/// PTRACE_SEIZE, which stops nothing; the victim allows tracers.
fn trace_victim(facts: &Facts) -> Finding {
    if_it_works(raw(libc::SYS_ptrace, &[0x4206, pid(facts), 0, 0]))
}

fn read_victim_memory(facts: &Facts) -> Finding {
    let buffer = [0u8; 64];
    let (ours, theirs) = ([address(&buffer), 64], [facts.number("memory"), 64]);
    let read = raw(libc::SYS_process_vm_readv, &[pid(facts), address(&ours), 1, address(&theirs), 1, 0]);
    if_secret(read.map(|_| buffer.to_vec()), facts.text("secret"))
}

fn read_victim_mem_file(facts: &Facts) -> Finding {
    use std::os::unix::fs::FileExt;
    let read = || -> std::io::Result<Vec<u8>> {
        let mut buffer = vec![0; 64];
        std::fs::File::open(format!("/proc/{}/mem", pid(facts)))?.read_exact_at(&mut buffer, facts.number("memory") as u64)?;
        Ok(buffer)
    };
    if_secret(read(), facts.text("secret"))
}

fn victim_file(facts: &Facts, name: &str) -> Finding {
    if_secret(std::fs::read(format!("/proc/{}/{name}", pid(facts))), facts.text("secret"))
}

/// Through the magic link into the victim's own view of files.
fn victim_path(facts: &Facts, link: &str) -> Finding {
    let path = match link {
        "root" => format!("/proc/{}/root{}", pid(facts), facts.text("secret_file")),
        _ => format!("/proc/{}/cwd/secret", pid(facts)),
    };
    if_secret(std::fs::read(path), facts.text("secret"))
}

fn victim_descriptor_link(facts: &Facts) -> Finding {
    if_secret(std::fs::read(format!("/proc/{}/fd/{}", pid(facts), facts.text("decoy_fd"))), facts.text("secret"))
}

fn take_victim_descriptor(facts: &Facts) -> Finding {
    let taken = raw(libc::SYS_pidfd_open, &[pid(facts), 0])
        .and_then(|pidfd| raw(libc::SYS_pidfd_getfd, &[pidfd, facts.number("decoy_fd"), 0]))
        .map(crate::isolate::file_of);
    let read = taken.and_then(|file| std::fs::read(format!("/proc/self/fd/{}", file.as_raw_fd())));
    if_secret(read, facts.text("secret"))
}

/// Any process at all whose environment holds what only the caller has.
fn any_environment(facts: &Facts) -> Finding {
    let mut seen = 0;
    for process in processes() {
        if let Ok(bytes) = std::fs::read(format!("/proc/{process}/environ")) {
            seen += 1;
            if let open @ Finding::Open(_) = if_secret(Ok(bytes), facts.text("token")) {
                return open;
            }
        }
    }
    Finding::Held(format!("{seen} environments without it"))
}

/// Any process at all through whose root the host's files are seen: the first process of a container is a favourite.
fn any_root(facts: &Facts) -> Finding {
    for process in processes() {
        let path = format!("/proc/{process}/root{}", facts.text("secret_file"));
        if let open @ Finding::Open(_) = if_secret(std::fs::read(path), facts.text("secret")) {
            return open;
        }
    }
    Finding::Held("through none".into())
}

/// Reads another process's limits; setting them would be next.
fn victim_limits(facts: &Facts) -> Finding {
    let both = [0u64; 2];
    if_it_works(raw(libc::SYS_prlimit64, &[pid(facts), 7, 0, address(&both)]))
}
