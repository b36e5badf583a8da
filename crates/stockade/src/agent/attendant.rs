//! The terminal of a detached agent, and those who look at it.
//!
//! ```text
//!  agent ── data frames ── relay ── slave ═ terminal ═ master ── attendant ──┬── transcript
//!                                                                            └── whoever is attached ── their terminal
//! ```
//!
//! One thread owns the master. What the agent prints goes to the transcript and to everybody who is attached; what they type goes to the agent. A
//! client that does not read is let go, so that nobody can hold the agent up.
//!
//! A client says `d`, two bytes of length and that many bytes; or `r`, rows and columns, two bytes each. It is told bytes as they are.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::net::SocketFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::{OptionalActions, Winsize};
use stockade_core::id::SandboxId;
use stockade_sandbox::hold;

use super::transcript::{Reader, Transcript};
use crate::failure::Failure;

/// How often the end is looked for.
const LOOK: Duration = Duration::from_millis(100);
/// Who may look at once.
const MAX_CLIENTS: usize = 8;
/// What somebody who comes late is shown first.
const SHOWN_FIRST: u64 = 32 << 10;
/// What somebody may leave unread.
const MAX_PENDING: usize = 4 << 20;
/// Bytes of one read.
const PIECE: usize = 16 << 10;
/// A terminal that nobody looks at.
const SIZE: Winsize = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };

/// What a client says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    /// Keys.
    Data(Vec<u8>),
    /// The size of its terminal: rows and columns.
    Size(u16, u16),
}

impl Word {
    /// As it travels.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Data(data) => {
                let data = data.get(..data.len().min(usize::from(u16::MAX))).unwrap_or_default();
                [&b"d"[..], &(data.len() as u16).to_be_bytes(), data].concat()
            }
            Self::Size(rows, columns) => [&b"r"[..], &rows.to_be_bytes(), &columns.to_be_bytes()].concat(),
        }
    }

    /// The first word of a buffer and how long it is; `None`: it is not whole yet; an error: it is none.
    fn parse(buffer: &[u8]) -> Result<Option<(Self, usize)>, ()> {
        let number = |at: usize| Some(u16::from_be_bytes([*buffer.get(at)?, *buffer.get(at + 1)?]));
        match buffer.first() {
            None => Ok(None),
            Some(b'd') => {
                let Some(length) = number(1).map(usize::from) else { return Ok(None) };
                Ok(buffer.get(3..3 + length).map(|data| (Self::Data(data.to_vec()), 3 + length)))
            }
            Some(b'r') => Ok(number(1).zip(number(3)).map(|(rows, columns)| (Self::Size(rows, columns), 5))),
            Some(_) => Err(()),
        }
    }
}

/// Where an agent's terminal is reached.
pub(crate) fn socket_path(runtime: &Path, id: &SandboxId) -> PathBuf {
    runtime.join(format!("{id}.agent.sock"))
}

/// A terminal nobody sits at.
#[derive(Debug)]
pub(crate) struct Attendant {
    master: OwnedFd,
    /// The side that takes the place of a caller's terminal.
    pub(crate) slave: OwnedFd,
    listener: OwnedFd,
    socket: PathBuf,
    directory: PathBuf,
    over: AtomicBool,
}

struct Client {
    stream: UnixStream,
    /// Said, and not a whole word yet.
    buffer: Vec<u8>,
    /// Printed, and not taken yet.
    pending: Vec<u8>,
}

impl Attendant {
    /// Makes a terminal, and a socket for those who want to look. `directory` is the agent's own.
    pub(crate) fn new(runtime: &Path, id: &SandboxId, directory: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new("terminal", error.to_string());
        let make = || -> Result<(OwnedFd, OwnedFd), rustix::io::Errno> {
            let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
            rustix::pty::grantpt(&master)?;
            rustix::pty::unlockpt(&master)?;
            let name = rustix::pty::ptsname(&master, Vec::new())?;
            let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
            let mut settings = rustix::termios::tcgetattr(&slave)?;
            // The agent's own terminal is inside; this one only carries bytes.
            settings.make_raw();
            rustix::termios::tcsetattr(&slave, OptionalActions::Now, &settings)?;
            rustix::termios::tcsetwinsize(&slave, SIZE)?;
            rustix::io::ioctl_fionbio(&master, true)?;
            Ok((master, slave))
        };
        let (master, slave) = make().map_err(|errno| failed(errno.into()))?;
        stockade_store::private_dir::ensure_private_dir(runtime).map_err(|error| Failure::from_error("runtime directory", &error))?;
        let socket = socket_path(runtime, id);
        let listener = hold::listen(&socket).map_err(failed)?;
        Ok(Self { master, slave, listener, socket, directory: directory.to_owned(), over: AtomicBool::new(false) })
    }

    /// Runs `act` and attends meanwhile.
    pub(crate) fn around<T>(&self, transcript: Transcript, act: impl FnOnce() -> T) -> T {
        let result = std::thread::scope(|scope| {
            let attending = scope.spawn(|| self.attend(transcript));
            let result = act();
            self.over.store(true, Ordering::Release);
            let _ = attending.join();
            result
        });
        let _ = std::fs::remove_file(&self.socket);
        result
    }

    fn attend(&self, mut transcript: Transcript) {
        let mut clients: Vec<Client> = Vec::new();
        loop {
            let over = self.over.load(Ordering::Acquire);
            let ready = self.wait(&clients);
            let printed = self.read();
            if !printed.is_empty() {
                transcript.add(&printed);
                clients.retain_mut(|client| client.tell(&printed));
            }
            if over && printed.is_empty() {
                return;
            }
            if ready.listener {
                self.admit(&mut clients);
            }
            clients.retain_mut(|client| client.hear(self));
        }
    }

    fn wait(&self, clients: &[Client]) -> Ready {
        let time = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK.subsec_nanos()) };
        let mut all = vec![PollFd::new(&self.master, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        let wanted = |client: &Client| if client.pending.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        all.extend(clients.iter().map(|client| PollFd::new(&client.stream, wanted(client))));
        let _ = rustix::event::poll(&mut all, Some(&time));
        Ready { listener: all.get(1).is_some_and(|fd| !fd.revents().is_empty()) }
    }

    /// What the agent printed since.
    fn read(&self) -> Vec<u8> {
        let mut buffer = vec![0; PIECE];
        let count = rustix::io::read(&self.master, &mut buffer).unwrap_or(0);
        buffer.truncate(count);
        buffer
    }

    fn admit(&self, clients: &mut Vec<Client>) {
        let Ok(stream) = rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) else { return };
        let own = rustix::net::sockopt::socket_peercred(&stream).is_ok_and(|peer| peer.uid == rustix::process::geteuid());
        if !own || clients.len() >= MAX_CLIENTS {
            return;
        }
        let mut client = Client { stream: stream.into(), buffer: Vec::new(), pending: Vec::new() };
        if client.tell(&Reader::tail(&self.directory, SHOWN_FIRST)) {
            clients.push(client);
        }
    }

    fn take(&self, word: &Word) {
        match word {
            Word::Data(data) => {
                // An agent that does not read loses keys, not the attendant.
                let _ = rustix::io::write(&self.master, data);
            }
            Word::Size(rows, columns) => {
                let size = Winsize { ws_row: *rows, ws_col: *columns, ..SIZE };
                let _ = rustix::termios::tcsetwinsize(&self.slave, size);
                let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::WINCH);
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Ready {
    listener: bool,
}

impl Client {
    /// Passes on what was printed; false where it does not take it.
    fn tell(&mut self, bytes: &[u8]) -> bool {
        self.pending.extend_from_slice(bytes);
        self.flush()
    }

    fn flush(&mut self) -> bool {
        while !self.pending.is_empty() {
            match rustix::net::send(&self.stream, &self.pending, rustix::net::SendFlags::NOSIGNAL) {
                Ok(count) => drop(self.pending.drain(..count.min(self.pending.len()))),
                Err(rustix::io::Errno::AGAIN) => return self.pending.len() <= MAX_PENDING,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Takes what was typed; false where it is gone, or talks nonsense.
    fn hear(&mut self, attendant: &Attendant) -> bool {
        if !self.flush() {
            return false;
        }
        let mut piece = vec![0; PIECE];
        match rustix::io::read(self.stream.as_fd(), &mut piece) {
            Ok(0) => return false,
            Ok(count) => self.buffer.extend_from_slice(piece.get(..count).unwrap_or_default()),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return true,
            Err(_) => return false,
        }
        loop {
            match Word::parse(&self.buffer) {
                Err(()) => return false,
                Ok(None) => return true,
                Ok(Some((word, length))) => {
                    attendant.take(&word);
                    self.buffer.drain(..length);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_said() {
        for word in [Word::Data(b"keys".to_vec()), Word::Data(Vec::new()), Word::Size(33, 77)] {
            let bytes = word.bytes();
            assert_eq!(Word::parse(&bytes), Ok(Some((word, bytes.len()))));
            let part = bytes.get(..bytes.len() - 1).unwrap();
            assert_eq!(Word::parse(part), Ok(None), "{part:?}");
        }
        assert_eq!(Word::parse(b"x"), Err(()));
    }
}
