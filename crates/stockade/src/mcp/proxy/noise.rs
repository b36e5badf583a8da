//! What a server writes to its standard error: shown line by line, escaped, until it was too much; read to its end all the same.
//!
//! Who shows it is another thread than who reads it: a client that does not read our standard error must not hold the server up.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::sync::mpsc;

use crate::printer::Printer;

/// Bytes that are shown.
const MOST: usize = 1 << 20;
/// Bytes of one line.
const MOST_LINE: usize = 4 << 10;
/// Bytes that are read at once.
const PIECE: usize = 16 << 10;

/// Lines that may wait to be shown; others are left out.
const MOST_WAITING: usize = 256;

/// Shows it until its end; what comes back breaks when all of it was shown.
pub(super) fn show(from: OwnedFd, server: String, printer: Printer) -> mpsc::Receiver<()> {
    let (sender, lines) = mpsc::sync_channel::<String>(MOST_WAITING);
    let (shown, is_shown) = mpsc::channel();
    std::thread::spawn(move || read(from, &sender));
    std::thread::spawn(move || {
        let _shown: mpsc::Sender<()> = shown;
        for line in lines {
            printer.note(format!("{server}: {line}"));
        }
    });
    is_shown
}

fn read(from: OwnedFd, show: &mpsc::SyncSender<String>) {
    let mut lines = Lines::default();
    let mut piece = vec![0; PIECE];
    let mut from = File::from(from);
    while let Ok(count @ 1..) = from.read(&mut piece) {
        for line in lines.take(piece.get(..count).unwrap_or_default()) {
            // Where too many wait already, nobody reads them.
            let _ = show.try_send(line);
        }
    }
    let _ = lines.rest().map(|line| show.try_send(line));
}

/// Lines, as pieces of them come.
#[derive(Default)]
struct Lines {
    begun: Vec<u8>,
    shown: usize,
    silent: bool,
}

impl Lines {
    fn take(&mut self, piece: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for byte in piece {
            if self.silent {
                return lines;
            }
            if *byte != b'\n' {
                self.begun.push(*byte);
            }
            if *byte == b'\n' || self.begun.len() >= MOST_LINE {
                lines.extend(self.rest());
            }
        }
        lines
    }

    /// What was begun, as a line.
    fn rest(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.begun);
        if self.silent || line.is_empty() {
            return None;
        }
        self.shown += line.len();
        self.silent = self.shown > MOST;
        let more = if self.silent { " (the rest is not shown)" } else { "" };
        // Escaped by the printer.
        Some(format!("{}{more}", String::from_utf8_lossy(&line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_there_is_an_end_of_them() {
        let mut lines = Lines::default();
        assert_eq!(lines.take(b"one\ntw"), ["one"]);
        assert_eq!(lines.take(b"o\n\nthree"), ["two"]);
        assert_eq!(lines.rest().as_deref(), Some("three"));
        let flood = vec![b'x'; 4 << 20];
        let shown = lines.take(&flood);
        assert!(shown.len() == MOST / MOST_LINE && shown.last().is_some_and(|line| line.ends_with("not shown)")), "{}", shown.len());
        assert_eq!((lines.take(b"more\n"), lines.rest()), (vec![], None));
    }
}
