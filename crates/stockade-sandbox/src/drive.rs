//! Driving one program inside a sandbox until it ends: its streams, signals, time and limits.
//!
//! ```text
//!   Run ─▶ Started ─▶ (data both ways, signals, ticks) ─▶ Exited
//!              │                     │
//!              └─ Failed             └─ time or a limit: everything is killed
//! ```
//!
//! One thread, one poll loop, no runtime. Where descriptors can be passed and nothing has to be captured, the program
//! gets the caller's own descriptors and this loop only waits.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use rustix::io::Errno;
use stockade_core::demand::Demand;
use stockade_sys::signals::Signals;
use stockade_wire::frame::{DATA_CHUNK, WINDOW};
use stockade_wire::message::{ErrorKind, Exec, Exit, Reply, Request, Stdio, Stream};

use crate::connection::{Connection, ConnectionError, Passing};

/// How often limits without a notification are looked at.
const TICK: Duration = Duration::from_millis(50);
/// After SIGTERM or SIGHUP was passed on, how long the program may take to end.
const GRACE: Duration = Duration::from_secs(2);
/// What a pipe takes without waiting when it says that it is ready.
const PIPE_STEP: usize = 4096;
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
}

/// Whether the guest really needs a pipe or may use the caller's descriptors.
fn passable<'a>(streams: &Streams<'a>, passing: Passing) -> Option<[BorrowedFd<'a>; 3]> {
    match (streams, passing) {
        (Streams::Plain { stdin: Some(stdin), stdout: Sink::Descriptor(out), stderr: Sink::Descriptor(err) }, Passing::Possible) => {
            Some([*stdin, *out, *err])
        }
        _ => None,
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
    let fds = passable(&streams, connection.passing());
    exec.stdio = match (&streams, &fds) {
        (_, Some(_)) => Stdio::Passed {},
        (Streams::Plain { stdin, .. }, None) => Stdio::Piped { stdin: stdin.is_some() },
        (Streams::Terminal { terminal }, None) => {
            let (rows, cols) = size_of_terminal(*terminal);
            Stdio::Pty { rows, cols }
        }
    };
    let passed: &[BorrowedFd<'_>] = fds.as_ref().map_or(&[], |f| f.as_slice());
    connection.send(id, &Request::Run { exec }, passed)?;
    let started = loop {
        match connection.receive(START_SECONDS)? {
            (got, Reply::Started { .. }) if got == id => break Instant::now(),
            (got, Reply::Failed { kind, message }) if got == id => {
                let missing = kind == ErrorKind::NotExecutable {};
                return Ok(Outcome {
                    ending: Ending::NotStarted { missing, message },
                    stdout: Captured::default(),
                    stderr: Captured::default(),
                    duration: Duration::ZERO,
                });
            }
            // Left over from an earlier request on this stream.
            (got, _) if got != id => {}
            _ => return Err(ConnectionError::OutOfTurn("a reply before the program started")),
        }
    };
    let (stdin, out, err, terminal) = match streams {
        Streams::Plain { .. } if fds.is_some() => (None, None, None, None),
        Streams::Plain { stdin, stdout, stderr } => (stdin, Some(stdout), Some(stderr), None),
        Streams::Terminal { terminal } => (Some(terminal), Some(Sink::Descriptor(terminal)), None, Some(terminal)),
    };
    let mut relay = Relay {
        id,
        stdin: stdin.map(|fd| Input { fd, credit: WINDOW }),
        out: out.map(Output::new),
        err: err.map(Output::new),
        terminal,
        buffer: vec![0; DATA_CHUNK],
    };
    let ending = relay.run(connection, started, timeout, signals, watch)?;
    Ok(Outcome {
        ending,
        stdout: relay.out.map(|o| o.captured).unwrap_or_default(),
        stderr: relay.err.map(|o| o.captured).unwrap_or_default(),
        duration: started.elapsed(),
    })
}

struct Input<'a> {
    fd: BorrowedFd<'a>,
    credit: u32,
}

struct Output<'a> {
    sink: Sink<'a>,
    captured: Captured,
    /// Bytes that a descriptor has not taken yet. Credit is granted only for what it took, so this stays within the window.
    pending: Vec<u8>,
    owed: u32,
    /// How much can be written at once without waiting, when the descriptor says that it is ready.
    step: usize,
}

impl<'a> Output<'a> {
    fn new(sink: Sink<'a>) -> Self {
        let step = match sink {
            Sink::Descriptor(fd) | Sink::Limited(fd, _) => {
                let regular = rustix::fs::fstat(fd).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::RegularFile);
                if regular { DATA_CHUNK } else { PIPE_STEP }
            }
            Sink::Buffer(_) => 0,
        };
        Self { sink, captured: Captured::default(), pending: Vec::new(), owed: 0, step }
    }

    /// Takes bytes for which the guest had credit; what one sends beyond it must not pile up here.
    fn take(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        if self.pending.len() + self.owed as usize + bytes.len() > WINDOW as usize {
            return Err(ConnectionError::OutOfTurn("more output than it had credit for"));
        }
        let before = self.captured.total;
        self.captured.total += bytes.len() as u64;
        let room = |limit: u64| usize::try_from(limit.saturating_sub(before)).unwrap_or(usize::MAX).min(bytes.len());
        let kept = match self.sink {
            Sink::Descriptor(_) => bytes.len(),
            Sink::Limited(_, limit) | Sink::Buffer(limit) => room(limit),
        };
        let taken = bytes.get(..kept).unwrap_or_default();
        match self.sink {
            Sink::Descriptor(_) | Sink::Limited(..) => self.pending.extend_from_slice(taken),
            Sink::Buffer(_) => self.captured.bytes.extend_from_slice(taken),
        }
        self.captured.truncated |= kept < bytes.len();
        let done_with = if matches!(self.sink, Sink::Buffer(_)) { bytes.len() } else { bytes.len() - kept };
        self.owed += done_with as u32;
        self.flush();
        Ok(())
    }

    /// Writes what can be written now. A reader that went away is not an error of ours: the program goes on.
    fn flush(&mut self) {
        let (Sink::Descriptor(fd) | Sink::Limited(fd, _)) = self.sink else { return };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut written = 0;
        while written < self.pending.len() {
            let mut ready = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
            if rustix::event::poll(&mut ready, Some(&now)) == Ok(0) {
                break;
            }
            let end = self.pending.len().min(written + self.step);
            match rustix::io::write(fd, self.pending.get(written..end).unwrap_or_default()) {
                Ok(n) => written += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => written = self.pending.len(),
            }
        }
        self.pending.drain(..written);
        self.owed += written as u32;
    }
}

struct Relay<'a> {
    id: u32,
    stdin: Option<Input<'a>>,
    out: Option<Output<'a>>,
    err: Option<Output<'a>>,
    terminal: Option<BorrowedFd<'a>>,
    buffer: Vec<u8>,
}

/// Why the loop stopped waiting for the program itself.
#[derive(Clone, Copy)]
enum Cut {
    Time,
    Limit(Demand),
    Signal(i32),
}

impl Relay<'_> {
    fn run(
        &mut self,
        connection: &mut Connection,
        started: Instant,
        timeout: Option<Duration>,
        signals: Option<&Signals>,
        watch: &mut dyn Watch,
    ) -> Result<Ending, ConnectionError> {
        let deadline = timeout.map(|t| started + t);
        let mut give_up: Option<(Instant, i32)> = None;
        let mut interrupts = 0u32;
        let mut ended: Option<Ending> = None;
        loop {
            while let Some((id, reply)) = connection.buffered::<Reply>()? {
                if id == self.id
                    && let Some(exit) = self.reply(reply)?
                {
                    // A limit that killed the program is the reason, whatever the program's status says.
                    ended = Some(watch.tick().map_or(exit, Ending::Limit));
                }
            }
            let now = Instant::now();
            if let Some(ending) = &ended {
                // It is over; only what it wrote may still be on its way to a slow reader, for as long as the time limit allows.
                if !self.is_writing() || deadline.is_some_and(|d| now >= d) || give_up.is_some_and(|(when, _)| now >= when) {
                    return Ok(ending.clone());
                }
            } else {
                self.grant(connection)?;
            }
            let mut cut = None;
            if ended.is_some() {
                // Nothing is left to cut.
            } else if deadline.is_some_and(|d| now >= d) {
                cut = Some(Cut::Time);
            } else if let Some((when, signal)) = give_up
                && now >= when
            {
                cut = Some(Cut::Signal(signal));
            } else if watch.is_needed() {
                cut = watch.tick().map(Cut::Limit);
            }
            if let Some(cut) = cut {
                watch.kill();
                return Ok(match cut {
                    Cut::Time => Ending::TimedOut,
                    Cut::Limit(demand) => Ending::Limit(demand),
                    Cut::Signal(signal) => Ending::Signal(signal),
                });
            }
            let next = [deadline, give_up.map(|g| g.0), watch.is_needed().then(|| now + TICK)].into_iter().flatten().min();
            let ready = self.wait(connection, signals, next.map(|n| n.saturating_duration_since(now)))?;
            if ready.signals
                && let Some(signals) = signals
            {
                while let Some(signal) = signals.next() {
                    match signal {
                        libc::SIGWINCH => {
                            if let Some(terminal) = self.terminal {
                                let (rows, cols) = size_of_terminal(terminal);
                                connection.send(self.id, &Request::Resize { rows, cols }, &[])?;
                            }
                        }
                        libc::SIGINT if interrupts >= 2 => give_up = Some((Instant::now(), libc::SIGINT)),
                        signal => {
                            interrupts += u32::from(signal == libc::SIGINT);
                            connection.send(self.id, &Request::Signal { signal }, &[])?;
                            if matches!(signal, libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) && give_up.is_none() {
                                give_up = Some((Instant::now() + GRACE, signal));
                            }
                        }
                    }
                }
            }
            for output in self.out.iter_mut().chain(&mut self.err) {
                output.flush();
            }
            if ready.input && ended.is_none() {
                self.feed(connection)?;
            }
            if ready.stream && ended.is_none() {
                match connection.fill() {
                    Ok(()) => {}
                    Err(ConnectionError::Closed) => {
                        // The guest itself died: killed by the memory limit with everything else, or from outside.
                        watch.kill();
                        return match watch.tick() {
                            Some(demand) => Ok(Ending::Limit(demand)),
                            None => Err(ConnectionError::Closed),
                        };
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }

    fn wait(&self, connection: &Connection, signals: Option<&Signals>, time: Option<Duration>) -> Result<Ready, ConnectionError> {
        let timeout = time.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: i64::from(t.subsec_nanos()) });
        let mut fds = vec![PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::IN)];
        if let Some(signals) = signals {
            fds.push(PollFd::from_borrowed_fd(signals.as_fd().as_fd(), PollFlags::IN));
        }
        let input = self.stdin.as_ref().filter(|i| i.credit > 0);
        if let Some(input) = input {
            fds.push(PollFd::from_borrowed_fd(input.fd, PollFlags::IN));
        }
        for output in self.out.iter().chain(&self.err).filter(|o| !o.pending.is_empty()) {
            if let Sink::Descriptor(fd) | Sink::Limited(fd, _) = output.sink {
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::OUT));
            }
        }
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut flags = fds.iter().map(|fd| !fd.revents().is_empty());
        let stream = flags.next().unwrap_or(false);
        let signals = signals.is_some() && flags.next().unwrap_or(false);
        Ok(Ready { stream, signals, input: input.is_some() && flags.next().unwrap_or(false) })
    }

    fn is_writing(&self) -> bool {
        self.out.iter().chain(&self.err).any(|o| !o.pending.is_empty())
    }

    /// Lets the guest send as much again as was taken.
    fn grant(&mut self, connection: &Connection) -> Result<(), ConnectionError> {
        for (output, stream) in [(&mut self.out, Stream::Output {}), (&mut self.err, Stream::Errors {})] {
            if let Some(output) = output.as_mut().filter(|o| o.owed >= WINDOW / 4) {
                let bytes = std::mem::take(&mut output.owed);
                connection.send(self.id, &Request::Credit { stream, bytes }, &[])?;
            }
        }
        Ok(())
    }

    fn reply(&mut self, reply: Reply) -> Result<Option<Ending>, ConnectionError> {
        match reply {
            Reply::Data { stream: Stream::Output {}, bytes } => self.out.as_mut().map(|o| o.take(&bytes.0)).transpose()?,
            Reply::Data { stream: Stream::Errors {}, bytes } => self.err.as_mut().map(|o| o.take(&bytes.0)).transpose()?,
            Reply::Credit { stream: Stream::Input {}, bytes } => {
                self.stdin.as_mut().map(|i| i.credit = i.credit.saturating_add(bytes).min(WINDOW))
            }
            Reply::Eof { .. } => None,
            Reply::Exited { exit: Exit::Code { code } } => return Ok(Some(Ending::Code(code))),
            Reply::Exited { exit: Exit::Signal { signal } } => return Ok(Some(Ending::Signal(signal))),
            // From the supervisor of a created sandbox; anything but a known demand is nonsense.
            Reply::Exited { exit: Exit::Limit { demand } } => {
                let demand = demand.parse().map_err(|_| ConnectionError::OutOfTurn("an unknown limit"))?;
                return Ok(Some(Ending::Limit(demand)));
            }
            Reply::Failed { message, .. } => return Ok(Some(Ending::NotStarted { missing: false, message })),
            _ => return Err(ConnectionError::OutOfTurn("an unexpected reply to a running program")),
        };
        Ok(None)
    }

    /// Sends what the caller's stdin has, as far as the credit goes.
    fn feed(&mut self, connection: &Connection) -> Result<(), ConnectionError> {
        let Some(input) = self.stdin.as_mut() else { return Ok(()) };
        let room = self.buffer.len().min(input.credit as usize);
        let chunk = self.buffer.get_mut(..room).unwrap_or_default();
        match rustix::io::read(input.fd, chunk) {
            Ok(0) | Err(Errno::IO) => {
                self.stdin = None;
                connection.send(self.id, &Request::Eof { stream: Stream::Input {} }, &[])
            }
            Ok(n) => {
                input.credit -= n as u32;
                let bytes = self.buffer.get(..n).unwrap_or_default().into();
                connection.send(self.id, &Request::Data { stream: Stream::Input {}, bytes }, &[])
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

struct Ready {
    stream: bool,
    signals: bool,
    input: bool,
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

    use super::*;

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
        let (host, guest) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let speaker = std::thread::spawn(move || {
            let guest = Connection::new(guest, Passing::Impossible);
            let say = |reply: &Reply| guest.send_payload(1, &stockade_wire::codec::to_bytes(reply), &[]);
            say(&Reply::Started { pid: 2 })?;
            for _ in 0..pieces {
                say(&Reply::Data { stream: Stream::Output {}, bytes: vec![7; DATA_CHUNK].into() })?;
            }
            say(&Reply::Exited { exit: Exit::Code { code: 0 } })
        });
        let (_reader, writer) = rustix::pipe::pipe().unwrap();
        let streams = Streams::Plain { stdin: None, stdout: Sink::Descriptor(writer.as_fd()), stderr: Sink::Buffer(0) };
        let exec = Exec { argv: vec!["true".into()], env: Vec::new(), cwd: "/".into(), stdio: Stdio::Passed {} };
        let mut connection = Connection::new(host, Passing::Impossible);
        let outcome = drive(&mut connection, exec, streams, Some(Duration::from_secs(1)), None, &mut Calm);
        drop(connection);
        let _ = speaker.join();
        outcome
    }

    #[test]
    fn a_guest_cannot_pile_up_output_beyond_its_credit() {
        let within = WINDOW as usize / DATA_CHUNK;
        assert_eq!(drive_to_a_full_pipe(within).unwrap().stdout.total, u64::from(WINDOW));
        let beyond = drive_to_a_full_pipe(within + 1);
        assert!(matches!(beyond, Err(ConnectionError::OutOfTurn(_))), "{beyond:?}");
    }
}
