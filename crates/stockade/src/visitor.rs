//! Somebody whose standard streams this process was given: a daemon does for them what they asked for, and prints to them.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// More than that is not held back.
const MOST_HELD: usize = 1 << 20;

/// Their streams.
#[derive(Debug)]
pub(crate) struct Visitor {
    /// What programs read.
    pub(crate) stdin: OwnedFd,
    /// Data.
    pub(crate) stdout: File,
    /// Words for people.
    pub(crate) stderr: File,
    /// Words that wait until it is certain that this process does it, and not they themselves.
    held: Mutex<Option<Vec<u8>>>,
}

impl Visitor {
    /// Words to them are held back until [`Visitor::release`].
    pub(crate) fn new(stdin: OwnedFd, stdout: OwnedFd, stderr: OwnedFd) -> Self {
        Self { stdin, stdout: stdout.into(), stderr: stderr.into(), held: Mutex::new(Some(Vec::new())) }
    }

    /// Says what was held back, and everything from here on at once.
    pub(crate) fn release(&self) {
        let held = self.held().take().unwrap_or_default();
        // Nobody can be told that stderr is closed.
        let _ = (&self.stderr).write_all(&held);
    }

    /// Data.
    pub(crate) fn to_stdout(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.stdout).write_all(bytes)
    }

    /// Words.
    pub(crate) fn to_stderr(&self, bytes: &[u8]) -> io::Result<()> {
        match self.held().as_mut().filter(|held| held.len() < MOST_HELD) {
            Some(held) => held.write_all(bytes),
            None => (&self.stderr).write_all(bytes),
        }
    }

    fn held(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
