//! Pseudo-terminals: made through `/dev/ptmx`, with the program's side taken by descriptor.
//!
//! Owns opening and sizing. No path under `/dev/pts` is ever looked up, so nothing there can be put in the way.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

/// The end-of-file character of a new terminal (control-D), for when the host's input ends.
pub(crate) const END_OF_FILE: &[u8] = b"\x04";

/// Both sides of a new terminal.
pub(crate) struct Pair {
    /// Ours; it does not block.
    pub(crate) controller: OwnedFd,
    /// The program's.
    pub(crate) user: OwnedFd,
}

/// Makes a terminal of the given size.
pub(crate) fn open(rows: u16, cols: u16) -> Result<Pair, Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let controller = rustix::pty::openpt(flags)?;
    rustix::pty::unlockpt(&controller)?;
    let user = rustix::pty::ioctl_tiocgptpeer(&controller, flags)?;
    resize(&controller, rows, cols)?;
    rustix::io::ioctl_fionbio(&controller, true)?;
    Ok(Pair { controller, user })
}

/// Tells the terminal, and the programs on it, its size.
pub(crate) fn resize(controller: &OwnedFd, rows: u16, cols: u16) -> Result<(), Errno> {
    rustix::termios::tcsetwinsize(controller, Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 })
}
