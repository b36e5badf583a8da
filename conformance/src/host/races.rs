//! Races: a hostile program swaps a directory with a link while the caller's file operations run.

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags};
use stockade_core::spec::MountMode;
use stockade_sandbox::once::{self, OnSuccess};
use stockade_sandbox::state::{Kind, Record};
use stockade_sandbox::workspace::layer::Layer;
use stockade_sandbox::workspace::plan::Plan;

use crate::case::Ground;
use crate::error::SuiteError;
use crate::lab::SECRET;
use crate::stage::Seen;
use crate::wall::Standing;

use super::{Came, Function, Outside, open_if, safe, shell};

pub(super) const TABLE: &[(&str, Function)] = &[
    ("race_write", race_write),
    ("race_read", race_read),
    ("race_remove", race_remove),
    ("race_apply", race_apply),
    ("apply_through_link", apply_through_link),
    ("race_quarantine", race_quarantine),
];

/// Operations per race at least.
const ROUNDS: usize = 300;
/// How long a race goes on at most until it was seen to be one: on a busy machine the swapper gets its turn late.
const LONGEST: Duration = Duration::from_secs(30);

/// Goes on for some rounds, and then until `enough`.
fn race(enough: impl Fn() -> bool, mut once: impl FnMut()) {
    let end = Instant::now() + LONGEST;
    for round in 0.. {
        if round >= ROUNDS && (enough() || Instant::now() > end) {
            return;
        }
        once();
    }
}

/// Starts a program inside that swaps `d` (a directory) and `s` (a link) until the sandbox ends.
fn swapping(outside: &Outside<'_>, standing: &mut Standing, link: &str) -> Result<(), SuiteError> {
    let probe = outside.lab.probe();
    let script = format!("mkdir d; echo inside > d/secret; ln -s {link} s; '{}' swap d s > /dev/null 2>&1 &", probe.display());
    standing.run(&shell(&script)).map(drop)
}

/// Ends the sandbox. Without a wall the swapper outlives it; it ends when what it swaps is gone.
fn stop(standing: Standing, work: &Path) {
    drop(standing);
    for name in ["s", "d", "s", "d"] {
        let path = work.join(name);
        let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
    }
}

fn race_write(outside: &Outside<'_>) -> Came {
    let place = outside.place()?;
    let work = place.join("ws");
    let mut standing = outside.stand(&work, Ground::Rw)?;
    swapping(outside, &mut standing, "../out")?;
    let path = safe(&work.join("d/w"))?;
    let (good, bad) = (Cell::new(0), Cell::new(0));
    let escaped = || place.join("out/w").exists();
    race(
        || escaped() || good.get() > 0 && bad.get() > 0,
        || {
            let counter = if standing.sandbox.write_file(&path, 0o644, &mut b"x".as_slice()).is_ok() { &good } else { &bad };
            counter.set(counter.get() + 1);
        },
    );
    stop(standing, &work);
    Ok(judged(escaped(), good.get(), bad.get()))
}

fn race_read(outside: &Outside<'_>) -> Came {
    let place = outside.place()?;
    let work = place.join("ws");
    let mut standing = outside.stand(&work, Ground::Rw)?;
    swapping(outside, &mut standing, "..")?;
    let path = safe(&work.join("d/secret"))?;
    let (good, bad, escaped) = (Cell::new(0), Cell::new(0), Cell::new(false));
    race(
        || escaped.get() || good.get() > 0 && bad.get() > 0,
        || {
            let mut seen = Vec::new();
            let counter = if standing.sandbox.read_file(&path, &mut seen).is_ok() { &good } else { &bad };
            counter.set(counter.get() + 1);
            escaped.set(escaped.get() || String::from_utf8_lossy(&seen).contains(SECRET));
        },
    );
    stop(standing, &work);
    Ok(judged(escaped.get(), good.get(), bad.get()))
}

/// Removing `d/keep`, which outside is a file of the host's; inside it is put back each time.
fn race_remove(outside: &Outside<'_>) -> Came {
    let place = outside.place()?;
    let work = place.join("ws");
    let mut standing = outside.stand(&work, Ground::Rw)?;
    swapping(outside, &mut standing, "../out")?;
    let path = safe(&work.join("d/keep"))?;
    let (good, bad) = (Cell::new(0), Cell::new(0));
    let escaped = || !place.join("out/keep").exists();
    race(
        || escaped() || good.get() > 0 && bad.get() > 0,
        || {
            // Only where nothing escaped yet, or putting back would hide it.
            if !escaped() {
                let put = standing.sandbox.write_file(&path, 0o644, &mut b"k".as_slice());
                let counter = if standing.sandbox.remove(&path).is_ok() && put.is_ok() { &good } else { &bad };
                counter.set(counter.get() + 1);
            }
        },
    );
    stop(standing, &work);
    Ok(judged(escaped(), good.get(), bad.get()))
}

/// A race in which the caller only ever saw one of the two names was none.
fn judged(escaped: bool, good: usize, bad: usize) -> (Seen, String) {
    let detail = format!("{good} found the directory, {bad} the link");
    if !escaped && (good == 0 || bad == 0) {
        return (Seen::Broken, detail);
    }
    open_if(escaped, detail)
}

/// A link of the workspace in the place where the changes have a directory.
fn apply_through_link(outside: &Outside<'_>) -> Came {
    let place = outside.place()?;
    let work = place.join("ws");
    let first = outside.once(&work, Ground::Shared, "ln -s ../out d", OnSuccess::Apply)?;
    let second = outside.once(&work, Ground::Shared, "rm d; mkdir d; echo x > d/w", OnSuccess::Apply)?;
    let detail = format!("applied {} and {}, {:?}", first.applied, second.applied, second.violations);
    if !work.join("d/w").exists() {
        return Ok((Seen::Broken, detail));
    }
    Ok(open_if(place.join("out/w").exists(), detail))
}

/// Somebody who may write the workspace (another sandbox in `rw`) swaps a directory with a link while changes are brought back.
fn race_apply(outside: &Outside<'_>) -> Came {
    let place = outside.place()?;
    let work = place.join("ws");
    let upper = place.join("upper");
    for directory in [work.join("d"), upper.join("d")] {
        std::fs::create_dir_all(&directory).map_err(SuiteError::file("create", &directory))?;
    }
    std::os::unix::fs::symlink("../out", work.join("s")).map_err(SuiteError::file("link", &work))?;
    let layer = Layer::new(&upper, &work);
    let owned = stockade_sandbox::state::Sandboxes::open(&outside.lab.base.join("state")).and_then(|s| s.create());
    let owned = owned.map_err(|e| SuiteError::Sandbox(e.to_string()))?;
    let record = Record::new(owned.id.clone(), Kind::Run, "jail", &work, MountMode::Overlay);
    let over = AtomicBool::new(false);
    let mut applied = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let _ = rustix::fs::renameat_with(CWD, work.join("d"), CWD, work.join("s"), RenameFlags::EXCHANGE);
            }
        });
        for round in 0..ROUNDS {
            let name = format!("d/w{round}");
            let _ = std::fs::write(upper.join(&name), "x");
            if let Ok(changes) = layer.changes() {
                let report = once::bring_back(&Plan::from(&changes, &[]), &layer, &record);
                applied += report.map_or(0, |r| r.applied.len());
            }
            let _ = std::fs::remove_file(upper.join(&name));
        }
        over.store(true, Ordering::Relaxed);
    });
    let _ = owned.remove();
    let escaped = std::fs::read_dir(place.join("out")).into_iter().flatten().flatten().filter(|e| e.file_name() != "keep").count();
    if applied == 0 {
        return Ok((Seen::Broken, "nothing was applied at all".into()));
    }
    Ok(open_if(escaped > 0, format!("{applied} applied, {escaped} outside")))
}

/// While new protected files are taken away after a run, their directory becomes a link to a place that has such files of its own.
fn race_quarantine(outside: &Outside<'_>) -> Came {
    let place = outside.place()?;
    let work = place.join("ws");
    for directory in ["ws/d", "out"] {
        std::fs::create_dir_all(place.join(directory)).map_err(SuiteError::file("create", &place))?;
    }
    std::fs::write(place.join("out/.envrc"), "the host's own").map_err(SuiteError::file("write", &place))?;
    std::os::unix::fs::symlink("../out", work.join("s")).map_err(SuiteError::file("link", &work))?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let _ = rustix::fs::renameat_with(CWD, work.join("d"), CWD, work.join("s"), RenameFlags::EXCHANGE);
            }
        });
        for _ in 0..20 {
            let _ = outside.once(&work, Ground::Rw, "echo evil > d/.envrc", OnSuccess::Keep);
        }
        over.store(true, Ordering::Relaxed);
    });
    let kept = std::fs::read_to_string(place.join("out/.envrc")).unwrap_or_default();
    Ok(open_if(kept != "the host's own", format!("outside: {kept:?}")))
}
