//! The caller's terminal in raw mode: while a program inside has one of its own, and while a value is typed that nobody is to see.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::termios::{OptionalActions, Termios};
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::printer::Printer;

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

/// Asks for a value at the caller's terminal without showing it. Ctrl-C gives up, and so does Ctrl-D on an empty line.
///
/// Read key by key: the terminal's own line would end at 4095 bytes, and an interrupt would leave it silent.
pub(crate) fn ask_hidden(question: &str, most: usize, printer: &Printer) -> Result<Zeroizing<Vec<u8>>, Failure> {
    ask_hidden_at(rustix::stdio::stdin(), question, most, printer)
}

/// The same at another terminal.
pub(crate) fn ask_hidden_at(
    terminal: BorrowedFd<'_>,
    question: &str,
    most: usize,
    printer: &Printer,
) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let raw = RawTerminal::enter(terminal)?;
    printer.page_aside(question);
    let typed = read_keys(most, || {
        let mut key = [0];
        let count = rustix::io::read(terminal, &mut key)?;
        Ok(key.into_iter().take(count).next())
    });
    drop(raw);
    printer.page_aside("\n");
    match typed {
        Ok(Some(typed)) => Ok(typed),
        Ok(None) => Err(Failure::new("terminal", "nothing was kept: you gave up")),
        Err(errno) => Err(Failure::new("terminal", format!("cannot read from the terminal: {errno}"))),
    }
}

/// Keys until the end of the line; `None` when somebody gave up.
fn read_keys(
    most: usize,
    mut next: impl FnMut() -> Result<Option<u8>, rustix::io::Errno>,
) -> Result<Option<Zeroizing<Vec<u8>>>, rustix::io::Errno> {
    const INTERRUPT: u8 = 0x03;
    const END: u8 = 0x04;
    const ERASE_LINE: u8 = 0x15;
    let mut typed = Zeroizing::new(Vec::with_capacity(most));
    loop {
        match next() {
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno),
            Ok(None | Some(INTERRUPT)) => return Ok(None),
            Ok(Some(END)) if typed.is_empty() => return Ok(None),
            Ok(Some(b'\r' | b'\n' | END)) => return Ok(Some(typed)),
            Ok(Some(0x7f | 0x08)) => drop(typed.pop()),
            Ok(Some(ERASE_LINE)) => typed.clear(),
            // What is too long is refused as a whole later.
            Ok(Some(key)) if typed.len() < most => typed.push(key),
            Ok(Some(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_make_a_line() {
        let check = |keys: &[u8]| {
            let mut keys = keys.iter().copied();
            read_keys(8, || Ok(keys.next())).unwrap().map(|typed| String::from_utf8(typed.to_vec()).unwrap())
        };
        assert_eq!(check(b"abc\rdef").as_deref(), Some("abc"));
        assert_eq!(check(b"abx\x7fc\n").as_deref(), Some("abc"));
        assert_eq!(check(b"wrong\x15right\r").as_deref(), Some("right"));
        assert_eq!(check(b"\r").as_deref(), Some(""));
        assert_eq!(check(b"0123456789\r").as_deref(), Some("01234567"));
        assert_eq!((check(b"abc\x03"), check(b"\x04"), check(b"abc")), (None, None, None));
    }
}
