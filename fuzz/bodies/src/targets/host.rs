//! The host's end of a sandbox's stream, driven by a guest that may say anything: running a program, moving files, forwarding a port.
//!
//! Promises: no input makes the host panic, wait for ever or hold more than it was sent; what was captured stays within the limit and adds
//! up; the right descriptor counts. The guest's whole speech is written before the host begins to listen and then ends, so one thread
//! suffices and nothing ever has to time out.

use std::io::{Cursor, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::MemfdFlags;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, sendmsg, shutdown, socketpair,
};
use stockade_core::demand::Demand;
use stockade_core::path::SafePath;
use stockade_sandbox::connection::{Connection, ConnectionError, MAX_FDS, Passing};
use stockade_sandbox::drive::{self, Captured, Ending, Sink, Streams, Watch};
use stockade_sandbox::files::{FileError, Files};
use stockade_sandbox::forward;
use stockade_sandbox::wire::{Exec, Stdio};
use stockade_wire::codec;
use stockade_wire::frame;
use stockade_wire::message::Reply;

use super::wire;
use crate::input::Input;

/// What a socket takes without anybody reading.
const MOST: usize = 64 << 10;
/// The limit of captured output.
const LIMIT: u64 = 100;
/// Set in the second byte: what follows is the stream itself, else it is cut into frames here.
const RAW: u8 = 1;
/// Set in the second byte: descriptors can travel.
const PASSING: u8 = 2;

/// The first byte says what the host does, the second how; the rest is what the guest says.
pub fn body(data: &[u8]) {
    let mut input = Input(data.get(..MOST).unwrap_or(data));
    let (act, how) = (input.byte(), input.byte());
    let speech = if how & RAW != 0 { input.0.to_vec() } else { framed(input) };
    let descriptors = if how & PASSING != 0 { usize::from(how >> 4) * 6 } else { 0 };
    let guest = Guest::say(&speech, descriptors);
    let passing = if how & PASSING != 0 { Passing::Possible } else { Passing::Impossible };
    let mut connection = Connection::new(guest.host, passing);
    listen(act, &mut connection, speech.len());
    assert!(connection.take_descriptors().len() <= MAX_FDS);
}

/// `[id][length, two bytes][payload]`: so a changed payload does not lose the frames behind it. Id 1 is the host's first request.
fn framed(mut input: Input<'_>) -> Vec<u8> {
    let mut stream = Vec::new();
    while !input.is_empty() {
        let id = match input.byte() {
            id @ 0..0x80 => u32::from(id),
            id => u32::from(id) << 24,
        };
        frame::push_frame(&mut stream, id, input.counted());
    }
    stream
}

struct Guest {
    host: OwnedFd,
    /// Kept, so that the host can go on sending.
    _guest: OwnedFd,
}

impl Guest {
    fn say(speech: &[u8], descriptors: usize) -> Self {
        let (host, guest) = pair();
        let fds: Vec<BorrowedFd<'_>> = std::iter::repeat_n(guest.as_fd(), descriptors.min(MAX_FDS)).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        }
        if !speech.is_empty() {
            let sent = sendmsg(&guest, &[IoSlice::new(speech)], &mut control, SendFlags::DONTWAIT);
            assert_eq!(sent, Ok(speech.len()), "the socket takes the whole speech");
        }
        shutdown(&guest, Shutdown::Write).expect("a connected socket");
        Self { host, _guest: guest }
    }
}

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket pair")
}

fn listen(act: u8, connection: &mut Connection, said: usize) {
    let path = SafePath::new("/work/file").expect("a plain path");
    match act % 12 {
        0 => run_captured(connection, said),
        1 => run_through(connection),
        2 => run_passed(connection),
        3 => {
            let mut read = Vec::new();
            let total = Files(connection).read_file(&path, &mut read);
            check_error(total.as_ref().err());
            assert!(read.len() <= said);
            assert!(total.is_err() || total.is_ok_and(|total| total == read.len() as u64));
        }
        4 => {
            let contents = vec![5; 3000];
            let written = Files(connection).write_file(&path, 0o644, &mut Cursor::new(contents));
            check_error(written.as_ref().err());
            assert!(written.is_err() || written.is_ok_and(|written| written == 3000));
        }
        5 => {
            let listed = Files(connection).list_dir(&path);
            check_error(listed.as_ref().err());
            assert!(listed.is_err() || listed.is_ok_and(|entries| entries.len() <= said));
        }
        6 => check_error(Files(connection).stat(&path).err().as_ref()),
        7 => check_error(Files(connection).remove(&path).err().as_ref()),
        8 => check_error(Files(connection).rename(&path, &path).err().as_ref()),
        9 => run_forward(connection),
        10 => {
            // The answer to one request; what came for others is kept in order.
            drop(connection.answer_to(1, 5));
            while let Ok(Some(_)) = connection.buffered::<Reply>() {}
        }
        _ => while connection.receive(5).is_ok() {},
    }
}

/// The program's output is captured within a limit.
fn run_captured(connection: &mut Connection, said: usize) {
    let streams = Streams::Plain { stdin: None, stdout: Sink::Buffer(LIMIT), stderr: Sink::Buffer(0) };
    let Ok(outcome) = drive::drive(connection, exec(), streams, Some(Duration::from_secs(20)), None, &mut Calm) else { return };
    assert_ne!(outcome.ending, Ending::TimedOut);
    for (captured, limit) in [(&outcome.stdout, LIMIT), (&outcome.stderr, 0)] {
        assert!(captured.bytes.len() as u64 == captured.total.min(limit), "{captured:?}");
        assert_eq!(captured.truncated, captured.total > limit, "{captured:?}");
        assert!(captured.total <= said as u64);
    }
}

/// The program reads a file of ours and its output goes to one, the errors only up to a limit.
fn run_through(connection: &mut Connection) {
    let (stdin, out, err) = (memory(b"what the program reads\n"), memory(b""), memory(b""));
    let streams =
        Streams::Plain { stdin: Some(stdin.as_fd()), stdout: Sink::Descriptor(out.as_fd()), stderr: Sink::Limited(err.as_fd(), LIMIT) };
    let outcome = drive::drive(connection, exec(), streams, Some(Duration::from_secs(20)), None, &mut Calm);
    let size = |fd: &OwnedFd| rustix::fs::fstat(fd).expect("an open file").st_size as u64;
    assert!(size(&err) <= LIMIT);
    if let Ok(outcome) = outcome
        && connection.passing() == Passing::Impossible
    {
        assert_eq!(size(&out), outcome.stdout.total);
        assert_eq!(size(&err), outcome.stderr.total.min(LIMIT));
    }
}

/// The program has our descriptors; nothing that the guest says can write to them.
fn run_passed(connection: &mut Connection) {
    let (stdin, out) = (memory(b""), memory(b""));
    let streams =
        Streams::Plain { stdin: Some(stdin.as_fd()), stdout: Sink::Descriptor(out.as_fd()), stderr: Sink::Descriptor(out.as_fd()) };
    let passed = connection.passing() == Passing::Possible;
    let outcome = drive::drive(connection, exec(), streams, None, None, &mut Calm);
    if let (Ok(outcome), true) = (outcome, passed) {
        assert_eq!((outcome.stdout, outcome.stderr), (Captured::default(), Captured::default()));
    }
}

fn run_forward(connection: &mut Connection) {
    let (ours, theirs) = pair();
    rustix::io::write(&theirs, b"GET / HTTP/1.0\r\n\r\n").expect("room in the socket");
    check_error(forward::forward(connection, 80, ours.as_fd()).err().as_ref());
}

/// Nothing arrives late here: what the guest has to say is there from the beginning.
fn check_error(error: Option<&FileError>) {
    let late = error.is_some_and(|error| matches!(error, FileError::Connection(ConnectionError::Silent(_))));
    assert!(!late, "the host waited");
}

fn memory(contents: &[u8]) -> OwnedFd {
    let fd = rustix::fs::memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a memory file");
    rustix::io::pwrite(&fd, contents, 0).expect("room in memory");
    fd
}

fn exec() -> Exec {
    Exec { argv: vec!["true".into()], env: Vec::new(), cwd: "/".into(), stdio: Stdio::Passed {} }
}

/// A watch that sees nothing.
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

/// For each act a speech in which everything comes, and some in another order.
pub fn seeds() -> Vec<Vec<u8>> {
    let replies = wire::replies();
    let say = |act: u8, how: u8, order: &[usize]| {
        let mut bytes = vec![act, how];
        for at in order {
            let payload = codec::to_bytes(&replies[*at]);
            bytes.push(1);
            bytes.extend_from_slice(&(payload.len() as u16).to_le_bytes());
            bytes.extend(payload);
        }
        bytes
    };
    let mut seeds = vec![
        say(0, 0, &[0, 4, 5, 4, 4, 5, 7, 8]),
        say(0, PASSING, &[0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 9]),
        say(0, 0, &[12]),
        say(1, 0, &[0, 6, 4, 5, 6, 4, 7, 10]),
        say(2, PASSING | 0x30, &[0, 8]),
        say(3, 0, &[4, 4, 7, 11]),
        say(4, 0, &[6, 11]),
        say(5, 0, &[13, 13, 11]),
        say(6, 0, &[14]),
        say(7, 0, &[11]),
        say(8, 0, &[12]),
        say(9, 0, &[0, 4, 6, 7, 11]),
        say(10, PASSING | 0xf0, &[1, 2, 3]),
        say(11, 0, &(0..replies.len()).collect::<Vec<_>>()),
    ];
    let mut raw = vec![11, RAW];
    for reply in &replies {
        frame::push_frame(&mut raw, 1, &codec::to_bytes(reply));
    }
    seeds.push(raw);
    seeds
}
