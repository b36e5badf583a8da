//! Running what is not on the exec list, and gaining privileges by running.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::call::{self, address, pointer, raw, text};
use crate::facts::Facts;
use crate::finding::{Finding, if_it_works};

use super::Attempt;

pub(super) const TABLE: &[(&str, Attempt)] = &[
    ("run_unlisted", |facts| run(&[facts.text("evil")])),
    ("run_unlisted_program", |_| run(&[UNLISTED])),
    ("run_copy", run_copy),
    ("run_copy_in_tmp", |_| copy_and_run("/tmp")),
    ("run_copy_in_shm", |_| copy_and_run("/dev/shm")),
    ("run_copy_in_home", |facts| copy_and_run(facts.text("home"))),
    ("run_script", run_script),
    ("run_by_loader", |_| by_loader(UNLISTED)),
    ("run_copy_by_loader", run_copy_by_loader),
    ("run_memory_file", run_memory_file),
    ("run_descriptor", run_descriptor),
    ("run_renamed", run_renamed),
    ("map_executable", map_executable),
    ("make_map_executable", make_map_executable),
    ("no_new_privileges", no_new_privileges),
    ("system_call_filter", system_call_filter),
];

/// A program that is on every machine and on no list of this suite.
const UNLISTED: &str = "/usr/bin/id";
/// Where the loader may be.
const LOADERS: [&str; 3] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-x86_64.so.1"];

fn run(argv: &[&str]) -> Finding {
    let Some((program, arguments)) = argv.split_first() else { return Finding::Broken("nothing to run".into()) };
    match Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => Finding::Open("it ran".into()),
        Ok(status) => Finding::Held(status.to_string()),
        Err(error) => Finding::Held(error.to_string()),
    }
}

fn copy(from: &str, to: &str) -> Result<String, Finding> {
    let path = format!("{to}/copy-{}", std::process::id());
    std::fs::copy(from, &path)
        .and_then(|_| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)))
        .map(|()| path)
        .map_err(|error| Finding::Held(format!("copying: {error}")))
}

fn copy_and_run(directory: &str) -> Finding {
    match copy(UNLISTED, directory) {
        Ok(path) => {
            let finding = run(&[&path]);
            let _ = std::fs::remove_file(path);
            finding
        }
        Err(finding) => finding,
    }
}

fn run_copy(facts: &Facts) -> Finding {
    copy_and_run(facts.text("work"))
}

/// A script that its first line would give to a listed interpreter.
fn run_script(facts: &Facts) -> Finding {
    let path = format!("{}/script-{}", facts.text("work"), std::process::id());
    let _ = std::fs::write(&path, "#!/bin/bash\ntrue\n");
    let _ = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755));
    let finding = run(&[&path]);
    let _ = std::fs::remove_file(path);
    finding
}

/// The loader is listed, because listed programs need it; what it loads is not.
fn by_loader(program: &str) -> Finding {
    match LOADERS.iter().find(|l| std::path::Path::new(l).exists()) {
        Some(loader) => run(&[loader, program]),
        None => Finding::Broken("no loader known".into()),
    }
}

fn run_copy_by_loader(facts: &Facts) -> Finding {
    match copy(UNLISTED, facts.text("work")) {
        Ok(path) => {
            let finding = by_loader(&path);
            let _ = std::fs::remove_file(path);
            finding
        }
        Err(finding) => finding,
    }
}

/// Executes a descriptor and reports from the process that was replaced: it either says `ran` by ending well, or comes back.
fn run_fd(fd: i64) -> Finding {
    match call::fork() {
        Ok(0) => {
            let (empty, arguments) = (text(""), [0i64; 1]);
            let name = text("id");
            let argv = [pointer(&name), 0];
            let null = call::open("/dev/null", libc::O_WRONLY).unwrap_or(1);
            let _ = raw(libc::SYS_dup3, &[null, 1, 0]);
            let _ = raw(libc::SYS_execveat, &[fd, pointer(&empty), address(&argv), address(&arguments), i64::from(libc::AT_EMPTY_PATH)]);
            call::leave(99)
        }
        Ok(child) => match call::wait_for(child) {
            0 => Finding::Open("it ran".into()),
            status => Finding::Held(format!("status {status}")),
        },
        Err(error) => Finding::Broken(error.to_string()),
    }
}

fn run_memory_file(_: &Facts) -> Finding {
    let name = text("x");
    let made = raw(libc::SYS_memfd_create, &[pointer(&name), 0]);
    let (Ok(fd), Ok(program)) = (made, std::fs::read(UNLISTED)) else { return Finding::Held("no memory file".into()) };
    match raw(libc::SYS_write, &[fd, address(program.as_slice()), program.len() as i64]) {
        Ok(_) => run_fd(fd),
        Err(error) => Finding::Held(error.to_string()),
    }
}

fn run_descriptor(_: &Facts) -> Finding {
    match call::open(UNLISTED, libc::O_RDONLY) {
        Ok(fd) => run_fd(fd),
        Err(error) => Finding::Held(error.to_string()),
    }
}

/// Replaces a listed program under its own name.
fn run_renamed(facts: &Facts) -> Finding {
    match copy(UNLISTED, facts.text("work")) {
        Ok(path) => if_it_works(std::fs::rename(path, facts.text("listed"))),
        Err(finding) => finding,
    }
}

fn map(facts: &Facts, protection: i32) -> std::io::Result<i64> {
    let path = format!("{}/code-{}", facts.text("work"), std::process::id());
    std::fs::write(&path, vec![0xc3; 4096])?;
    let fd = call::open(&path, libc::O_RDONLY)?;
    raw(libc::SYS_mmap, &[0, 4096, i64::from(protection), i64::from(libc::MAP_PRIVATE), fd, 0])
}

/// What `LD_PRELOAD` of a library in the workspace comes to.
fn map_executable(facts: &Facts) -> Finding {
    if_it_works(map(facts, libc::PROT_READ | libc::PROT_EXEC))
}

/// The same in two steps.
fn make_map_executable(facts: &Facts) -> Finding {
    match map(facts, libc::PROT_READ) {
        Ok(at) => if_it_works(raw(libc::SYS_mprotect, &[at, 4096, i64::from(libc::PROT_READ | libc::PROT_EXEC)])),
        Err(error) => Finding::Broken(error.to_string()),
    }
}

fn no_new_privileges(_: &Facts) -> Finding {
    match raw(libc::SYS_prctl, &[39, 0, 0, 0, 0]) {
        Ok(1) => Finding::Held("set".into()),
        Ok(_) => Finding::Open("setuid programs and file capabilities count".into()),
        Err(error) => Finding::Broken(error.to_string()),
    }
}

/// fence ran without any filter and did not say so.
fn system_call_filter(_: &Facts) -> Finding {
    match raw(libc::SYS_prctl, &[21, 0, 0, 0, 0]) {
        Ok(2) => Finding::Held("a filter is installed".into()),
        Ok(mode) => Finding::Open(format!("mode {mode}: no filter")),
        Err(error) => Finding::Held(error.to_string()),
    }
}
