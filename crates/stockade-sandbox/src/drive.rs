//! Driving one program inside a sandbox until it ends: its streams, signals, time and limits.
//!
//! ```text
//!   Run ─▶ Started ─▶ (data both ways, signals, ticks) ─▶ Exited
//!              │                     │
//!              └─ Failed             └─ time or a limit: everything is killed
//! ```
//!
//! One thread, one poll loop, no runtime. Where descriptors can be passed, the guest never touches a byte: the program gets the
//! caller's own descriptors, or pipes of ours for what has to be captured or limited. Otherwise its streams are data frames.
//!
//! `standard` decides that and makes the pipes, `output` and `input` are the two directions, `relay` is the loop.

mod input;
mod output;
mod relay;
mod standard;

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use stockade_core::demand::Demand;
use stockade_sys::signals::Signals;
use stockade_wire::frame::START_DELAY;
use stockade_wire::message::{ErrorKind, Exec, Reply, Request};

use crate::connection::{Connection, ConnectionError};

/// How long a guest may take to start a program before it counts as stuck.
const START_SECONDS: u64 = 60;

/// Where a stream of the program goes.
pub enum Sink<'a> {
    /// To a descriptor, as it comes.
    Descriptor(BorrowedFd<'a>),
    /// To a descriptor, until so many bytes; the rest is dropped.
    Limited(BorrowedFd<'a>, u64),
    /// Into memory, until so many bytes; the rest is dropped.
    Buffer(u64),
    /// The same, and whoever listens is told as it comes. They must not wait: the program does meanwhile.
    Told(u64, &'a dyn Fn(&[u8])),
}

/// The program's streams.
pub enum Streams<'a> {
    /// Separate streams.
    Plain {
        /// What the program reads; `None`: nothing.
        stdin: Option<BorrowedFd<'a>>,
        /// Where stdout goes.
        stdout: Sink<'a>,
        /// Where stderr goes.
        stderr: Sink<'a>,
    },
    /// A terminal inside, joined to the caller's terminal (which the caller has put into raw mode).
    Terminal {
        /// The caller's terminal.
        terminal: BorrowedFd<'a>,
    },
}

/// What may end a program besides itself.
pub trait Watch {
    /// Called every few milliseconds while it runs; returns the limit that was hit.
    fn tick(&mut self) -> Option<Demand>;
    /// Whether [`Watch::tick`] has anything to look at.
    fn is_needed(&self) -> bool;
    /// Kills everything in the sandbox, now.
    fn kill(&mut self);
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It returned a code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// The wall-time limit was reached.
    TimedOut,
    /// A resource limit was hit; everything was killed.
    Limit(Demand),
    /// It could not be started.
    NotStarted {
        /// Missing, a directory, not executable and the like (127), or something else (125).
        missing: bool,
        /// What the guest says.
        message: String,
    },
}

/// What a stream came to.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The bytes, when they were captured.
    pub bytes: Vec<u8>,
    /// Something was dropped at the limit.
    pub truncated: bool,
    /// How many bytes there were in all.
    pub total: u64,
}

/// The outcome of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// Captured stdout.
    pub stdout: Captured,
    /// Captured stderr.
    pub stderr: Captured,
    /// From the start of the program to its end.
    pub duration: Duration,
    /// The file inside that was executed; `None` where none was.
    pub program: Option<PathBuf>,
}

impl Outcome {
    /// Something was done that is no program.
    pub fn of_no_program() -> Self {
        let nothing = Captured::default;
        Self { ending: Ending::Code(0), stdout: nothing(), stderr: nothing(), duration: Duration::ZERO, program: None }
    }
}

/// Runs a program to its end.
pub fn drive(
    connection: &mut Connection,
    mut exec: Exec,
    streams: Streams<'_>,
    timeout: Option<Duration>,
    signals: Option<&Signals>,
    watch: &mut dyn Watch,
) -> Result<Outcome, ConnectionError> {
    let id = connection.fresh_id();
    let standard = standard::prepare(streams, connection.passing())?;
    exec.stdio = standard.stdio;
    let passed: Vec<BorrowedFd<'_>> = standard.theirs.iter().map(AsFd::as_fd).collect();
    let sent = Instant::now();
    connection.send(id, &Request::Run { exec }, &passed)?;
    drop(passed);
    // Only the program may hold its ends, or ours never see theirs closed.
    drop(standard.theirs);
    let (started, program) = loop {
        match connection.receive(START_SECONDS)? {
            (got, Reply::Started { program, .. }) if got == id => {
                // The guest may have kept the news for a moment.
                let started = Instant::now().checked_sub(START_DELAY).map_or(sent, |started| started.max(sent));
                break (started, PathBuf::from(OsString::from_vec(program.0)));
            }
            (got, Reply::Failed { kind, message }) if got == id => {
                let missing = kind == ErrorKind::NotExecutable {};
                return Ok(Outcome {
                    ending: Ending::NotStarted { missing, message },
                    stdout: Captured::default(),
                    stderr: Captured::default(),
                    duration: Duration::ZERO,
                    program: None,
                });
            }
            // Left over from an earlier request on this stream.
            (got, _) if got != id => {}
            _ => return Err(ConnectionError::OutOfTurn("a reply before the program started")),
        }
    };
    let mut relay = relay::Relay { id, ours: standard.ours };
    let ending = relay.run(connection, started, timeout, signals, watch)?;
    let [stdout, stderr] = relay.ours.outputs.map(|output| output.map(output::Output::into_captured).unwrap_or_default());
    Ok(Outcome { ending, stdout, stderr, duration: started.elapsed(), program: Some(program) })
}

/// Rows and columns of a terminal; the usual size where it will not say.
pub fn size_of_terminal(terminal: BorrowedFd<'_>) -> (u16, u16) {
    match rustix::termios::tcgetwinsize(terminal) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row, size.ws_col),
        Ok(_) | Err(_) => (24, 80),
    }
}

/// Writes everything; a reader that went away is not an error of ours, the program goes on.
pub(crate) fn write_fully(fd: BorrowedFd<'_>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                if rustix::event::poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None).is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use stockade_wire::frame::{DATA_CHUNK, WINDOW};
    use stockade_wire::message::{Exit, Stdio, Stream};

    use super::*;
    use crate::connection::Passing;

    struct Calm;

    impl Watch for Calm {
        fn tick(&mut self) -> Option<Demand> {
            None
        }
        fn is_needed(&self) -> bool {
            false
        }
        fn kill(&mut self) {}
    }

    /// A guest that sends this many pieces of output, whatever its credit, to a reader that reads nothing.
    fn drive_to_a_full_pipe(pieces: usize) -> Result<Outcome, ConnectionError> {
        let (_reader, writer) = rustix::pipe::pipe().unwrap();
        drive_to(Sink::Descriptor(writer.as_fd()), pieces)
    }

    /// The same to anybody.
    fn drive_to(stdout: Sink<'_>, pieces: usize) -> Result<Outcome, ConnectionError> {
        let (host, guest) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        // It stays at the stream until the host has heard everything: one that is gone cannot be given credit.
        let speaker = std::thread::spawn(move || -> Result<Connection, ConnectionError> {
            let guest = Connection::new(guest, Passing::Impossible);
            let say = |reply: &Reply| guest.send_payload(1, &stockade_wire::codec::to_bytes(reply), &[]);
            say(&Reply::Started { pid: 2, program: "".into() })?;
            for _ in 0..pieces {
                say(&Reply::Data { stream: Stream::Output {}, bytes: vec![7; DATA_CHUNK].into() })?;
            }
            say(&Reply::Exited { exit: Exit::Code { code: 0 } })?;
            Ok(guest)
        });
        let streams = Streams::Plain { stdin: None, stdout, stderr: Sink::Buffer(0) };
        let exec = Exec { argv: vec!["true".into()], env: Vec::new(), cwd: "/".into(), stdio: Stdio::Passed {} };
        let mut connection = Connection::new(host, Passing::Impossible);
        let outcome = drive(&mut connection, exec, streams, Some(Duration::from_secs(1)), None, &mut Calm);
        drop(connection);
        let _ = speaker.join();
        outcome
    }

    #[test]
    fn who_listens_hears_what_is_captured_and_no_more() {
        let heard = std::cell::RefCell::new(Vec::new());
        let listener = |bytes: &[u8]| heard.borrow_mut().extend_from_slice(bytes);
        let limit = DATA_CHUNK + 10;
        let outcome = drive_to(Sink::Told(limit as u64, &listener), 3).unwrap();
        assert_eq!((heard.borrow().as_slice(), outcome.stdout.truncated), (&*outcome.stdout.bytes, true));
        assert_eq!((heard.borrow().len(), outcome.stdout.total), (limit, 3 * DATA_CHUNK as u64));
    }

    #[test]
    fn a_guest_cannot_pile_up_output_beyond_its_credit() {
        let within = WINDOW as usize / DATA_CHUNK;
        assert_eq!(drive_to_a_full_pipe(within).unwrap().stdout.total, u64::from(WINDOW));
        let beyond = drive_to_a_full_pipe(within + 1);
        assert!(matches!(beyond, Err(ConnectionError::OutOfTurn(_))), "{beyond:?}");
    }
}
