//! The kernel's own files: switches of the machine, memory, symbols, and the programs of others. Files are opened for writing, never written.

use crate::call;
use crate::facts::Facts;
use crate::finding::{Finding, if_it_works};

use super::Attempt;

pub(super) const TABLE: &[(&str, Attempt)] = &[
    ("core_pattern", |_| writable("/proc/sys/kernel/core_pattern")),
    ("modprobe_path", |_| writable("/proc/sys/kernel/modprobe")),
    ("binfmt_register", |_| writable("/proc/sys/fs/binfmt_misc/register")),
    ("uevent_helper", |_| writable("/sys/kernel/uevent_helper")),
    ("sysrq_trigger", |_| writable("/proc/sysrq-trigger")),
    ("own_sysctls", own_sysctls),
    ("nested_sysctls", nested_sysctls),
    ("irq_affinity", |_| writable("/proc/irq/default_smp_affinity")),
    ("kernel_core", |_| readable("/proc/kcore")),
    ("kernel_log", |_| readable("/proc/kmsg")),
    ("kernel_symbols", kernel_symbols),
    ("timer_list", |_| readable("/proc/timer_list")),
    ("interrupts", |_| has_content("/proc/interrupts")),
    ("program_of_another", program_of_another),
    ("sysfs", sysfs),
    ("release_agent", |_| cgroup_file("release_agent")),
    ("cgroup_membership", |_| cgroup_file("cgroup.procs")),
    ("oom_score", oom_score),
    ("masks_are_masks", masks_are_masks),
];

fn writable(path: &str) -> Finding {
    if_it_works(call::open(path, libc::O_WRONLY))
}

/// Opened and one byte read: some files open for anybody and refuse later.
fn readable(path: &str) -> Finding {
    use std::io::Read;
    let read = call::open(path, libc::O_RDONLY | libc::O_NONBLOCK).map(crate::isolate::file_of).and_then(|mut f| f.read(&mut [0; 1]));
    match read {
        Ok(0) => Finding::Held("empty".into()),
        other => if_it_works(other),
    }
}

fn has_content(path: &str) -> Finding {
    match std::fs::read(path) {
        Ok(bytes) if bytes.is_empty() => Finding::Held("empty".into()),
        other => if_it_works(other),
    }
}

/// Every switch below /proc/sys that could be written.
fn own_sysctls(_: &Facts) -> Finding {
    let mut found = Vec::new();
    let mut left = vec![std::path::PathBuf::from("/proc/sys")];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                left.push(path);
            } else if call::open(&path.to_string_lossy(), libc::O_WRONLY).map(crate::isolate::file_of).is_ok() {
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    if found.is_empty() {
        Finding::Held("none".into())
    } else {
        Finding::Open(format!("{} of them, such as {}", found.len(), found.first().map_or("", String::as_str)))
    }
}

/// Switches of a namespace of one's own: code that only root reached before.
fn nested_sysctls(_: &Facts) -> Finding {
    match call::gain() {
        Ok(()) => writable("/proc/sys/net/ipv4/ip_forward"),
        Err(error) => Finding::Held(error.to_string()),
    }
}

/// Addresses other than zero: where the kernel lies in memory.
fn kernel_symbols(_: &Facts) -> Finding {
    let Ok(text) = std::fs::read_to_string("/proc/kallsyms") else { return Finding::Held("not readable".into()) };
    let line = text.lines().next().unwrap_or_default();
    if line.split(' ').next().unwrap_or_default().bytes().any(|b| b != b'0') {
        Finding::Open("addresses".into())
    } else {
        Finding::Held("all addresses are zero".into())
    }
}

/// CVE-2019-5736: the program file of a process outside, held through /proc until it can be overwritten.
fn program_of_another(facts: &Facts) -> Finding {
    let mut held = String::from("none");
    for process in ["1", facts.text("decoy_pid")] {
        match call::open(&format!("/proc/{process}/exe"), libc::O_PATH) {
            Ok(_) => return Finding::Open(format!("the program of process {process}")),
            Err(error) => held = error.to_string(),
        }
    }
    Finding::Held(held)
}

fn sysfs(_: &Facts) -> Finding {
    match std::fs::read_dir("/sys/kernel").map(Iterator::count) {
        Ok(0) => Finding::Held("empty".into()),
        Ok(count) => Finding::Open(format!("{count} entries of the host's kernel")),
        Err(error) => Finding::Held(error.to_string()),
    }
}

/// A file of this name anywhere among the control groups that could be written.
fn cgroup_file(name: &str) -> Finding {
    let mut left = vec![(std::path::PathBuf::from("/sys/fs/cgroup"), 0)];
    let mut seen = 0;
    while let Some((directory, depth)) = left.pop() {
        let file = directory.join(name);
        if file.exists() {
            seen += 1;
            if call::open(&file.to_string_lossy(), libc::O_WRONLY).map(crate::isolate::file_of).is_ok() {
                return Finding::Open(file.to_string_lossy().into_owned());
            }
        }
        if depth < 2 {
            let inner = std::fs::read_dir(&directory).into_iter().flatten().flatten();
            left.extend(inner.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| (e.path(), depth + 1)));
        }
    }
    Finding::Held(format!("{seen} seen, none can be written"))
}

/// Lower than what was given: somebody else dies first when memory is short.
fn oom_score(_: &Facts) -> Finding {
    if_it_works(std::fs::write("/proc/self/oom_score_adj", "-999"))
}

/// CVE-2025-31133: a mask that is not the kernel's own null but a link that somebody planted. A mask that can be written through is no mask.
fn masks_are_masks(_: &Facts) -> Finding {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    match std::fs::symlink_metadata("/dev/null") {
        Ok(data) if data.file_type().is_char_device() && data.rdev() == 0x103 => {}
        Ok(_) => return Finding::Open("/dev/null is not the kernel's".into()),
        Err(error) => return Finding::Broken(error.to_string()),
    }
    for path in ["/proc/kcore", "/proc/sysrq-trigger", "/proc/keys", "/proc/timer_list", "/proc/sys/kernel/core_pattern"] {
        if std::fs::symlink_metadata(path).is_ok_and(|d| d.file_type().is_symlink()) {
            return Finding::Open(format!("{path} is a link"));
        }
    }
    Finding::Held("null is null, and no mask is a link".into())
}
