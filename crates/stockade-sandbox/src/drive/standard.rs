//! Where a program's three streams lead, decided before it starts.
//!
//! | stream | descriptors can be passed | they cannot |
//! |---|---|---|
//! | to a descriptor, no limit | the caller's own | data frames |
//! | captured or limited | a pipe that we read | data frames |
//! | stdin, when nothing is captured | the caller's own | data frames |
//! | stdin otherwise | a pipe that we fill | data frames |
//! | stdin that is the null device | the null device | the null device |
//! | a terminal | one made inside, data frames | data frames |
//!
//! The caller's stdin is not handed to a program whose output is captured: it may be a terminal, open for both ways, and then the
//! program could write past the capture.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, major, minor};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use stockade_wire::message::Stdio;

use super::input::Input;
use super::output::Output;
use super::{Sink, Streams, size_of_terminal};
use crate::connection::{ConnectionError, Passing};

/// A descriptor that goes to the program.
pub(super) enum Handed<'a> {
    Callers(BorrowedFd<'a>),
    Ours(OwnedFd),
}

impl AsFd for Handed<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Callers(fd) => *fd,
            Self::Ours(fd) => fd.as_fd(),
        }
    }
}

/// What is moved while the program runs.
pub(super) struct Ours<'a> {
    pub(super) input: Option<Input<'a>>,
    /// Of stdout and of stderr.
    pub(super) outputs: [Option<Output<'a>>; 2],
    /// The caller's terminal.
    pub(super) terminal: Option<BorrowedFd<'a>>,
}

/// Both sides of a program's streams.
pub(super) struct Standard<'a> {
    pub(super) stdio: Stdio,
    /// Three descriptors where they are passed, else none.
    pub(super) theirs: Vec<Handed<'a>>,
    pub(super) ours: Ours<'a>,
}

/// Makes the streams.
pub(super) fn prepare(streams: Streams<'_>, passing: Passing) -> Result<Standard<'_>, ConnectionError> {
    match (streams, passing) {
        (Streams::Terminal { terminal }, _) => {
            let (rows, cols) = size_of_terminal(terminal);
            let output = Output::framed(Sink::Descriptor(terminal));
            let ours = Ours { input: Some(Input::framed(terminal)), outputs: [Some(output), None], terminal: Some(terminal) };
            Ok(Standard { stdio: Stdio::Pty { rows, cols }, theirs: Vec::new(), ours })
        }
        (Streams::Plain { stdin, stdout, stderr }, Passing::Impossible) => {
            let stdin = unless_nothing(stdin);
            let stdio = Stdio::Piped { stdin: stdin.is_some() };
            let outputs = [Some(Output::framed(stdout)), Some(Output::framed(stderr))];
            Ok(Standard { stdio, theirs: Vec::new(), ours: Ours { input: stdin.map(Input::framed), outputs, terminal: None } })
        }
        (Streams::Plain { stdin, stdout, stderr }, Passing::Possible) => {
            passed(unless_nothing(stdin), stdout, stderr).map_err(ConnectionError::Pipes)
        }
    }
}

/// A caller's null device is no input and stays one: programs look at what they read from (`rg` searches a pipe, and files where there is none).
fn unless_nothing(stdin: Option<BorrowedFd<'_>>) -> Option<BorrowedFd<'_>> {
    const NULL: (u32, u32) = (1, 3);
    stdin.filter(|fd| {
        let is_null = |found: rustix::fs::Stat| {
            FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice && (major(found.st_rdev), minor(found.st_rdev)) == NULL
        };
        !rustix::fs::fstat(fd).is_ok_and(is_null)
    })
}

fn passed<'a>(stdin: Option<BorrowedFd<'a>>, stdout: Sink<'a>, stderr: Sink<'a>) -> Result<Standard<'a>, Errno> {
    let (their_stdout, stdout) = output(stdout)?;
    let (their_stderr, stderr) = output(stderr)?;
    let captured = stdout.is_some() || stderr.is_some();
    let (their_stdin, input) = match stdin {
        None => (Handed::Ours(rustix::fs::open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?), None),
        Some(stdin) if captured => {
            let (theirs, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
            // The two ends are descriptions of their own, so only ours does not block.
            rustix::io::ioctl_fionbio(&writer, true)?;
            (Handed::Ours(theirs), Some(Input::piped(stdin, writer)))
        }
        Some(stdin) => (Handed::Callers(stdin), None),
    };
    let ours = Ours { input, outputs: [stdout, stderr], terminal: None };
    Ok(Standard { stdio: Stdio::Passed {}, theirs: vec![their_stdin, their_stdout, their_stderr], ours })
}

fn output(sink: Sink<'_>) -> Result<(Handed<'_>, Option<Output<'_>>), Errno> {
    match sink {
        Sink::Descriptor(fd) => Ok((Handed::Callers(fd), None)),
        Sink::Limited(..) | Sink::Buffer(_) | Sink::Told(..) => {
            let (reader, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(&reader, true)?;
            Ok((Handed::Ours(theirs), Some(Output::piped(sink, reader))))
        }
    }
}
