//! A small blocking host for tests: starts the guest as a plain process and speaks the protocol to it.

use std::collections::VecDeque;
use std::io::{IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio as ProcessStdio};
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use stockade_wire::VERSION;
use stockade_wire::codec::{Bytes, from_bytes, to_bytes};
use stockade_wire::frame::{FrameBuffer, push_frame};
use stockade_wire::message::{ErrorKind, Exec, Exit, Reply, Request, Stdio, Stream};

pub const TOKEN: [u8; 32] = [0x5a; 32];
pub const INPUT: Stream = Stream::Input {};
pub const OUTPUT: Stream = Stream::Output {};
pub const ERRORS: Stream = Stream::Errors {};
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Guest {
    pub child: Child,
    pub stream: UnixStream,
    frames: FrameBuffer,
    stash: VecDeque<(u32, Reply)>,
    next: u32,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Output {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit: Option<Exit>,
}

impl Output {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn exec(argv: &[&str], stdio: Stdio) -> Exec {
    Exec {
        argv: argv.iter().map(Bytes::from).collect(),
        env: vec![(Bytes::from("PATH"), Bytes::from("/usr/bin:/bin"))],
        cwd: Bytes::from("/"),
        stdio,
    }
}

pub fn shell(script: &str, stdin: bool) -> Request {
    Request::Run { exec: exec(&["sh", "-c", script], Stdio::Piped { stdin }) }
}

pub fn data(bytes: &[u8]) -> Request {
    Request::Data { stream: INPUT, bytes: Bytes::from(bytes) }
}

impl Guest {
    /// Starts the guest and says nothing.
    pub fn silent() -> Self {
        Self::started(Command::new(env!("CARGO_BIN_EXE_stockade-shim")))
    }

    pub fn started(command: Command) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        Self::on(command, ours, theirs.into())
    }

    /// Starts the guest with `theirs` as its control stream; what it says must arrive on `ours`.
    pub fn on(mut command: Command, ours: UnixStream, theirs: OwnedFd) -> Self {
        let fd = theirs.as_raw_fd();
        command.env("STOCKADE_TOKEN", "5a".repeat(32)).stdin(ProcessStdio::null());
        // SAFETY: between fork and exec only async-signal-safe calls are made.
        unsafe {
            command.pre_exec(move || {
                if fd == 3 {
                    let same = BorrowedFd::borrow_raw(fd);
                    rustix::io::fcntl_setfd(same, rustix::io::FdFlags::empty())?;
                } else if libc::dup2(fd, 3) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        drop(theirs);
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        ours.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { child, stream: ours, frames: FrameBuffer::default(), stash: VecDeque::new(), next: 0 }
    }

    /// Starts the guest and shakes hands.
    pub fn start() -> Self {
        let mut guest = Self::silent();
        guest.greet();
        guest
    }

    pub fn greet(&mut self) {
        self.send(0, &Request::Hello { version: VERSION, token: TOKEN });
        assert!(matches!(self.reply(0), Reply::Welcome { version: VERSION, .. }));
    }

    pub fn send(&mut self, id: u32, request: &Request) {
        self.send_raw(id, &to_bytes(request));
    }

    pub fn send_raw(&mut self, id: u32, payload: &[u8]) {
        let mut bytes = Vec::new();
        push_frame(&mut bytes, id, payload);
        self.stream.write_all(&bytes).unwrap();
    }

    pub fn send_with(&mut self, id: u32, request: &Request, descriptors: &[OwnedFd]) {
        let mut bytes = Vec::new();
        push_frame(&mut bytes, id, &to_bytes(request));
        let borrowed: Vec<_> = descriptors.iter().map(|fd| fd.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&borrowed)));
        let sent = sendmsg(&self.stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty()).unwrap();
        assert_eq!(sent, bytes.len());
    }

    /// Begins a request under a fresh id.
    pub fn request(&mut self, request: &Request) -> u32 {
        self.next += 1;
        self.send(self.next, request);
        self.next
    }

    /// An id that was not used yet.
    pub fn fresh(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// The next reply, whatever request it belongs to; `None` when the guest closed the stream.
    pub fn next_reply(&mut self) -> Option<(u32, Reply)> {
        if let Some(reply) = self.stash.pop_front() {
            return Some(reply);
        }
        self.read_reply()
    }

    fn read_reply(&mut self) -> Option<(u32, Reply)> {
        let mut space = vec![0; 256 << 10];
        loop {
            if let Some((id, payload)) = self.frames.next_frame().unwrap() {
                return Some((id, from_bytes(payload).unwrap()));
            }
            match self.stream.read(&mut space) {
                Ok(0) => return None,
                Ok(count) => self.frames.extend(&space[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    /// The next reply to one request; others are kept.
    pub fn reply(&mut self, id: u32) -> Reply {
        if let Some(at) = self.stash.iter().position(|(other, _)| *other == id) {
            return self.stash.remove(at).unwrap().1;
        }
        loop {
            let (other, reply) = self.read_reply().expect("the guest closed the stream");
            if other == id {
                return reply;
            }
            self.stash.push_back((other, reply));
        }
    }

    /// One question, one answer.
    pub fn ask(&mut self, request: &Request) -> Reply {
        let id = self.request(request);
        self.reply(id)
    }

    pub fn grant(&mut self, id: u32, stream: Stream, bytes: usize) {
        self.send(id, &Request::Credit { stream, bytes: bytes as u32 });
    }

    /// Collects a program's output until it ends, granting credit as it goes.
    pub fn collect(&mut self, id: u32) -> Output {
        let mut output = Output::default();
        loop {
            match self.reply(id) {
                Reply::Data { stream, bytes } => {
                    let place = if stream == OUTPUT { &mut output.stdout } else { &mut output.stderr };
                    place.extend_from_slice(&bytes.0);
                    self.grant(id, stream, bytes.0.len());
                }
                Reply::Exited { exit } => {
                    output.exit = Some(exit);
                    return output;
                }
                Reply::Started { .. } | Reply::Eof { .. } | Reply::Credit { .. } => {}
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    /// Runs a program to its end.
    pub fn run(&mut self, argv: &[&str]) -> Output {
        let id = self.request(&Request::Run { exec: exec(argv, Stdio::Piped { stdin: false }) });
        self.collect(id)
    }

    /// Runs a shell script to its end.
    pub fn shell(&mut self, script: &str) -> Output {
        self.run(&["sh", "-c", script])
    }

    pub fn failure(&mut self, request: &Request) -> (ErrorKind, String) {
        match self.ask(request) {
            Reply::Failed { kind, message } => (kind, message),
            other => panic!("unexpected {other:?}"),
        }
    }

    /// Waits until the guest has ended.
    pub fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "the guest still runs");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn open_descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// A value of `/proc/PID/status` in KiB.
    pub fn memory(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

/// Waits until something holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A directory that is removed in the end.
pub struct Scratch(pub std::path::PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("stockade-shim-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> Bytes {
        Bytes::from(self.0.join(name).to_str().unwrap())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
