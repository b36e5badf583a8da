//! Descriptors that came along: none but the three standard ones may.

use crate::facts::Facts;
use crate::finding::{Finding, if_secret};

use super::Attempt;

pub(super) const TABLE: &[(&str, Attempt)] =
    &[("inherited", inherited), ("inherited_directory", inherited_directory), ("control_stream", control_stream)];

/// Numbers beyond the standard three. The probe's own pipe is among them, so the parent is looked at, which has none.
fn numbers() -> Vec<(String, String)> {
    let parent = std::os::unix::process::parent_id();
    let listed = std::fs::read_dir(format!("/proc/{parent}/fd")).into_iter().flatten().flatten();
    let all = listed.map(|e| (e.file_name().to_string_lossy().into_owned(), e.path()));
    let beyond = all.filter(|(n, _)| n.parse::<i32>().is_ok_and(|n| n > 2));
    // The parent's end of this attempt's pipe is the probe's own.
    let named = beyond.map(|(n, path)| (n, std::fs::read_link(path).map(|l| l.to_string_lossy().into_owned()).unwrap_or_default()));
    let ours: Vec<String> =
        (0..64).filter_map(|n| std::fs::read_link(format!("/proc/self/fd/{n}")).ok()).map(|l| l.to_string_lossy().into_owned()).collect();
    named.filter(|(_, target)| !(target.starts_with("pipe:") && ours.contains(target))).collect()
}

fn inherited(_: &Facts) -> Finding {
    let found = numbers();
    if std::fs::read_dir("/proc/self/fd").is_err() {
        return Finding::Broken("no /proc/self/fd".into());
    }
    if found.is_empty() {
        Finding::Held("three and no more".into())
    } else {
        Finding::Open(found.iter().map(|(n, target)| format!("{n} is {target}")).collect::<Vec<_>>().join(", "))
    }
}

/// CVE-2024-21626: a directory of the host left open leads anywhere.
fn inherited_directory(facts: &Facts) -> Finding {
    for number in 0..64 {
        let path = format!("/proc/self/fd/{number}/secret");
        if let open @ Finding::Open(_) = if_secret(std::fs::read(path), facts.text("secret")) {
            return open;
        }
    }
    // The working directory is a descriptor of a kind too.
    if_secret(std::fs::read("/proc/self/cwd/../secret"), facts.text("secret"))
}

/// clix 8.1: a program that finds the control stream can forge its own result. Looks for a socket among the descriptors of every process.
fn control_stream(_: &Facts) -> Finding {
    let me = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    for process in processes.filter(|n| n.bytes().all(|b| b.is_ascii_digit()) && *n != me) {
        for number in 0..32 {
            let path = format!("/proc/{process}/fd/{number}");
            if std::fs::read_link(&path).is_ok_and(|l| l.to_string_lossy().starts_with("socket:")) {
                return Finding::Open(format!("{path} is a socket"));
            }
        }
    }
    Finding::Held("no process shows one".into())
}
