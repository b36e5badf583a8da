//! The caller's terminal in raw mode while a program inside has one of its own.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::termios::{OptionalActions, Termios};

use crate::failure::Failure;

/// Raw mode until this value goes away, whatever way the command ends.
pub(crate) struct RawTerminal {
    terminal: OwnedFd,
    before: Termios,
}

impl RawTerminal {
    /// Puts a terminal into raw mode: every key goes to the program, Ctrl-C too.
    pub(crate) fn enter(terminal: BorrowedFd<'_>) -> Result<Self, Failure> {
        let failed = |e: rustix::io::Errno| Failure::new("terminal", e.to_string());
        let before = rustix::termios::tcgetattr(terminal).map_err(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        rustix::termios::tcsetattr(terminal, OptionalActions::Drain, &raw).map_err(failed)?;
        let terminal = terminal.try_clone_to_owned().map_err(|e| Failure::new("terminal", e.to_string()))?;
        Ok(Self { terminal, before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that went away.
        let _ = rustix::termios::tcsetattr(&self.terminal, OptionalActions::Drain, &self.before);
    }
}
