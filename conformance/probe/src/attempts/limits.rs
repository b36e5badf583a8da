//! Taking more than one was given. Bounded by itself, so that it does no harm where nothing bounds it.

use crate::call::{self, raw};
use crate::facts::Facts;
use crate::finding::Finding;

use super::Attempt;

pub(super) const TABLE: &[(&str, Attempt)] = &[
    ("many_processes", many_processes),
    ("many_threads", many_threads),
    ("much_memory", much_memory),
    ("much_shared_memory", much_shared_memory),
    ("much_disk", much_disk),
    ("much_temporary_disk", much_temporary_disk),
    ("many_files_open", many_files_open),
];

/// How many processes or threads are tried.
const TASKS: usize = 400;
/// How much memory or disk is tried.
const BYTES: usize = 192 << 20;
/// Written at once.
const STEP: usize = 1 << 20;

fn many_processes(_: &Facts) -> Finding {
    let mut children = Vec::new();
    let mut refusal = None;
    for _ in 0..TASKS {
        match call::fork() {
            Ok(0) => loop {
                let _ = raw(libc::SYS_ppoll, &[0, 0, 0, 0, 0]);
            },
            Ok(child) => children.push(child),
            Err(error) => {
                refusal = Some(error);
                break;
            }
        }
    }
    for child in &children {
        let _ = raw(libc::SYS_kill, &[i64::from(*child), i64::from(libc::SIGKILL)]);
    }
    for child in &children {
        call::wait_for(*child);
    }
    verdict(children.len(), refusal)
}

fn verdict(count: usize, refusal: Option<std::io::Error>) -> Finding {
    match refusal {
        Some(error) => Finding::Held(format!("{count}, then {error}")),
        None => Finding::Open(format!("{count}")),
    }
}

fn many_threads(_: &Facts) -> Finding {
    let mut count = 0;
    for _ in 0..TASKS {
        let made = std::thread::Builder::new().stack_size(1 << 16).spawn(|| {
            loop {
                std::thread::park();
            }
        });
        match made {
            Ok(_) => count += 1,
            Err(error) => return verdict(count, Some(error)),
        }
    }
    verdict(count, None)
}

fn much_memory(_: &Facts) -> Finding {
    let mut blocks = Vec::new();
    for _ in 0..BYTES / STEP {
        let mut block = Vec::new();
        if block.try_reserve_exact(STEP).is_err() {
            return Finding::Held(format!("{} MiB, then no more", blocks.len()));
        }
        // Touched, or the kernel gives nothing.
        block.resize(STEP, 1u8);
        blocks.push(std::hint::black_box(block));
    }
    Finding::Open(format!("{} MiB", blocks.len()))
}

/// Files in memory count as memory, whoever mounted them.
fn much_shared_memory(_: &Facts) -> Finding {
    fill("/dev/shm")
}

fn much_disk(facts: &Facts) -> Finding {
    fill(facts.text("work"))
}

fn much_temporary_disk(_: &Facts) -> Finding {
    fill("/tmp")
}

fn fill(directory: &str) -> Finding {
    use std::io::Write;
    let path = format!("{directory}/fill-{}", std::process::id());
    let write = || -> Result<(), (usize, std::io::Error)> {
        let mut file = std::fs::File::create(&path).map_err(|e| (0, e))?;
        let block = vec![7u8; STEP];
        for step in 0..BYTES / STEP {
            file.write_all(&block).map_err(|e| (step, e))?;
        }
        Ok(())
    };
    let finding = match write() {
        Ok(()) => Finding::Open(format!("{} MiB", BYTES / STEP)),
        Err((step, error)) => Finding::Held(format!("{step} MiB, then {error}")),
    };
    let _ = std::fs::remove_file(&path);
    finding
}

fn many_files_open(_: &Facts) -> Finding {
    let mut files = Vec::new();
    for _ in 0..4000 {
        match std::fs::File::open("/dev/null") {
            Ok(file) => files.push(file),
            Err(error) => return verdict(files.len(), Some(error)),
        }
    }
    verdict(files.len(), None)
}
