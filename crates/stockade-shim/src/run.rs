//! A running program: its standard streams, its signals and its end.
//!
//! ```text
//!              ┌────────── data, credit, signals ──────────┐
//! start ─▶ running ─▶ ended (drain what the pipes hold, against credit) ─▶ Eof of each stream ─▶ Exited
//!              └─ cancelled: killed, streams closed ─▶ ended ────────────────────────────────────▲
//! ```
//!
//! Owns one request of kind `Run`. It does not reap (the server does, for orphans too) and does not wait for
//! descendants that hold the pipes open after the program itself has ended.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use stockade_wire::message::{Exec, Exit, Reply, Stdio, Stream};

use crate::context::{Context, Progress, Ready, Slot};
use crate::ends::{Flushed, Medium, Pumped, Sink, Source};
use crate::failure::Failure;
use crate::flow::Overrun;
use crate::pty;
use crate::signals;
use crate::spawn::{Program, Standard, Terminal};

/// A program that was started.
pub(crate) struct Run {
    pid: i32,
    exit: Option<Exit>,
    stdin: Option<Sink>,
    stdout: Option<Source>,
    stderr: Option<Source>,
    terminal: Option<Rc<OwnedFd>>,
}

/// The guest's ends of a program's streams.
#[derive(Default)]
struct Ours {
    stdin: Option<Rc<OwnedFd>>,
    stdout: Option<Rc<OwnedFd>>,
    stderr: Option<Rc<OwnedFd>>,
    terminal: Option<Rc<OwnedFd>>,
}

impl Run {
    /// Starts a program. `passed` are the descriptors that came with the frame.
    pub(crate) fn start(context: &mut Context, id: u32, exec: &Exec, passed: Vec<OwnedFd>) -> Result<Self, Failure> {
        let program = Program::new(exec)?;
        let (standard, ours, terminal) = match exec.stdio {
            Stdio::Passed {} => (passed_streams(passed)?, Ours::default(), Terminal::None),
            Stdio::Piped { stdin } => {
                let (standard, ours) = pipes(stdin).map_err(|errno| Failure::during("make pipes", errno))?;
                (standard, ours, Terminal::None)
            }
            Stdio::Pty { rows, cols } => {
                let (standard, ours) = terminal(rows, cols).map_err(|errno| Failure::during("make a terminal", errno))?;
                (standard, ours, Terminal::Controlling)
            }
        };
        // Watched before the start, so that nothing can fail once the program runs; the kernel says again what is ready.
        watch(context, id, &ours).map_err(|errno| Failure::during("watch pipes", errno))?;
        let (pid, executed) = context.spawner.start(&program, &standard, terminal)?;
        let pid = pid.as_raw_nonzero().get();
        drop(standard);
        context.children.insert(pid, id);
        // A short program's end follows at once; one message wakes the host once.
        context.reply_unhurried(id, &Reply::Started { pid: pid as u32, program: executed.into() });
        let medium = if ours.terminal.is_some() { Medium::Terminal } else { Medium::Pipe };
        Ok(Self {
            pid,
            exit: None,
            stdin: ours.stdin.map(Sink::new),
            stdout: ours.stdout.map(|fd| Source::new(fd, medium)),
            stderr: ours.stderr.map(|fd| Source::new(fd, medium)),
            terminal: ours.terminal,
        })
    }

    /// Remembers an event on one of its descriptors.
    pub(crate) fn event(&mut self, slot: Slot, ready: Ready) {
        if let (Some(stdin), Slot::Input | Slot::Both) = (&mut self.stdin, slot) {
            stdin.event(ready);
        }
        if let (Some(stdout), Slot::Output | Slot::Both) = (&mut self.stdout, slot) {
            stdout.event(ready);
        }
        if let (Some(stderr), Slot::Errors) = (&mut self.stderr, slot) {
            stderr.event(ready);
        }
    }

    /// Bytes for its stdin; a program without one ignores them.
    pub(crate) fn input(&mut self, bytes: &[u8], context: &mut Context, id: u32) -> Result<(), Overrun> {
        if let Some(stdin) = &mut self.stdin
            && let Flushed::Failed(_) = stdin.accept(bytes, context, id)?
        {
            stdin.discard(context, id);
        }
        Ok(())
    }

    /// No more bytes for its stdin.
    pub(crate) fn end_input(&mut self) {
        let last = if self.terminal.is_some() { pty::END_OF_FILE } else { b"" };
        if let Some(stdin) = &mut self.stdin {
            stdin.end(last);
        }
    }

    /// The host takes more of its output.
    pub(crate) fn grant(&mut self, stream: &Stream, bytes: u32) {
        let source = match stream {
            Stream::Input {} => None,
            Stream::Output {} => self.stdout.as_mut(),
            Stream::Errors {} => self.stderr.as_mut(),
        };
        if let Some(source) = source {
            source.grant(bytes);
        }
    }

    /// Signals its process group; nothing happens once it has ended, because the number may be somebody else's.
    pub(crate) fn signal(&self, signal: i32) {
        if self.exit.is_none() && (1..=64).contains(&signal) {
            signals::kill_group(self.pid, signal);
        }
    }

    /// Resizes its terminal, if it has one.
    pub(crate) fn resize(&self, rows: u16, cols: u16) {
        if let Some(terminal) = &self.terminal {
            let _ = pty::resize(terminal, rows, cols);
        }
    }

    /// Kills it and closes its streams; `Exited` follows when it is gone.
    pub(crate) fn cancel(&mut self) {
        self.signal(libc::SIGKILL);
        self.stdin = None;
        self.stdout = None;
        self.stderr = None;
        self.terminal = None;
    }

    /// It was reaped.
    pub(crate) fn ended(&mut self, exit: Exit) {
        self.exit = Some(exit);
        self.stdin = None;
        for source in [&mut self.stdout, &mut self.stderr].into_iter().flatten() {
            source.drain();
        }
    }

    /// Moves bytes, and says `Exited` when all is sent.
    pub(crate) fn step(&mut self, context: &mut Context, id: u32) -> Progress {
        if let Some(stdin) = &mut self.stdin {
            match stdin.flush(context, id) {
                Flushed::Clean | Flushed::Waiting => {}
                // A terminal stays open for output; closing our side would hang the program up.
                Flushed::Complete => self.stdin = None,
                Flushed::Failed(_) => stdin.discard(context, id),
            }
        }
        let mut progress = Progress::Idle;
        for (source, stream) in [(&mut self.stdout, Stream::Output {}), (&mut self.stderr, Stream::Errors {})] {
            let Some(open) = source else { continue };
            match open.pump(context, id, &stream) {
                Pumped::More => progress = Progress::Again,
                Pumped::Nothing => {}
                Pumped::Ended | Pumped::Failed(_) => {
                    *source = None;
                    context.reply(id, &Reply::Eof { stream });
                }
            }
        }
        if self.stdout.is_none()
            && self.stderr.is_none()
            && let Some(exit) = &self.exit
        {
            context.reply(id, &Reply::Exited { exit: exit.clone() });
            return Progress::Finished;
        }
        progress
    }
}

fn passed_streams(passed: Vec<OwnedFd>) -> Result<Standard, Failure> {
    match <[OwnedFd; 3]>::try_from(passed) {
        Ok([stdin, stdout, stderr]) => Ok(Standard { stdin, stdout, stderr }),
        Err(passed) => Err(Failure::invalid(format!("three descriptors must come with the request, {} came", passed.len()))),
    }
}

fn pipes(with_stdin: bool) -> Result<(Standard, Ours), Errno> {
    let (stdin, our_stdin) = if with_stdin {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&writer, true)?;
        (reader, Some(Rc::new(writer)))
    } else {
        (rustix::fs::open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?, None)
    };
    let (our_stdout, stdout) = output_pipe()?;
    let (our_stderr, stderr) = output_pipe()?;
    let ours = Ours { stdin: our_stdin, stdout: Some(our_stdout), stderr: Some(our_stderr), terminal: None };
    Ok((Standard { stdin, stdout, stderr }, ours))
}

/// The two ends are descriptions of their own, so only ours does not block.
fn output_pipe() -> Result<(Rc<OwnedFd>, OwnedFd), Errno> {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&reader, true)?;
    Ok((Rc::new(reader), writer))
}

fn terminal(rows: u16, cols: u16) -> Result<(Standard, Ours), Errno> {
    let pair = pty::open(rows, cols)?;
    let stdin = pair.user;
    let stdout = rustix::io::fcntl_dupfd_cloexec(&stdin, 3)?;
    let stderr = rustix::io::fcntl_dupfd_cloexec(&stdin, 3)?;
    let controller = Rc::new(pair.controller);
    let ours = Ours { stdin: Some(Rc::clone(&controller)), stdout: Some(Rc::clone(&controller)), stderr: None, terminal: Some(controller) };
    Ok((Standard { stdin, stdout, stderr }, ours))
}

fn watch(context: &Context, id: u32, ours: &Ours) -> Result<(), Errno> {
    if let Some(terminal) = &ours.terminal {
        return context.poller.watch(&**terminal, id, Slot::Both);
    }
    for (end, slot) in [(&ours.stdin, Slot::Input), (&ours.stdout, Slot::Output), (&ours.stderr, Slot::Errors)] {
        if let Some(fd) = end {
            context.poller.watch(&**fd, id, slot)?;
        }
    }
    Ok(())
}
