//! One daemon for a person: the lock that it holds while it lives, and the socket that one leaves which was killed.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;
use stockade_core::escape::escape;

use super::socket;
use crate::failure::Failure;

/// Who clears up holds the lock for a moment.
const TRIES: u32 = 10;
const BETWEEN: Duration = Duration::from_millis(20);

/// Keeps a second daemon of the same places away, for as long as the value lives.
pub(super) fn take(runtime: &Path) -> Result<OwnedFd, Failure> {
    let path = path(runtime);
    let file = File::options().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(|error| Failure::new("daemon", format!("opening `{}`: {error}", escape(&path.to_string_lossy()))))?;
    let is_taken = (0..TRIES).any(|tried| {
        if tried > 0 {
            std::thread::sleep(BETWEEN);
        }
        is_free(&file)
    });
    let other = || Failure::new("daemon", "a daemon serves this person already").with_hint("end it first: it ends with SIGTERM");
    is_taken.then(|| file.into()).ok_or_else(other)
}

/// Removes the socket of a daemon that was killed.
pub(crate) fn sweep(runtime: &Path) {
    let socket = socket(runtime);
    // Without the lock's file there never was a daemon.
    let Ok(file) = File::open(path(runtime)) else { return };
    if socket.exists() && is_free(&file) {
        // One that starts now waits for the lock, which is held here until the end.
        let _ = std::fs::remove_file(&socket);
    }
}

fn is_free(file: &File) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

fn path(runtime: &Path) -> PathBuf {
    runtime.join("daemon.lock")
}
