//! Passphrases: typed without being seen, or on a descriptor; never an argument, and never a variable's value.

use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd};

use zeroize::Zeroizing;

use crate::Context;
use crate::failure::Failure;
use crate::terminal;

/// Longer than any passphrase.
const MOST: usize = 1024;

/// From the terminal, else the first line of standard input.
pub(crate) fn ask(question: &str, step: &str, context: &Context) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return terminal::ask_hidden(question, MOST, &context.printer);
    }
    first_line(stdin.as_fd(), step)
}

/// A new one: where somebody types it, twice.
pub(crate) fn ask_new(question: &str, step: &str, context: &Context) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let first = ask(question, step, context)?;
    if std::io::stdin().is_terminal() && ask("Once more: ", step, context)? != first {
        return Err(Failure::new(step, "the two are not the same"));
    }
    Ok(first)
}

/// From a terminal that is not standard input, where there is one.
pub(crate) fn ask_at_terminal(question: &str, step: &str, context: &Context) -> Result<Zeroizing<Vec<u8>>, Failure> {
    if std::io::stdin().is_terminal() {
        return terminal::ask_hidden(question, MOST, &context.printer);
    }
    let nobody = |_| Failure::new(step, "the approver's passphrase is needed, and there is no terminal to type it at");
    let terminal = std::fs::File::options().read(true).write(true).open("/dev/tty").map_err(nobody)?;
    terminal::ask_hidden_at(terminal.as_fd(), question, MOST, &context.printer)
}

/// The first line of what comes over a descriptor. Read byte by byte, so that no buffer keeps it.
pub(crate) fn first_line(source: BorrowedFd<'_>, step: &str) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let mut line = Zeroizing::new(Vec::with_capacity(MOST));
    let mut byte = Zeroizing::new([0]);
    while line.len() < MOST {
        match rustix::io::read(source, byte.as_mut_slice()) {
            Ok(0) => break,
            Ok(_) if matches!(*byte, [b'\n' | b'\r']) => break,
            Ok(_) => line.extend_from_slice(byte.as_slice()),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Failure::new(step, format!("cannot read the passphrase: {errno}"))),
        }
    }
    if line.is_empty() {
        return Err(Failure::new(step, "the passphrase is empty").with_hint("type it at a terminal, or give it on standard input"));
    }
    Ok(line)
}
