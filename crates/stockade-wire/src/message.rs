//! The messages: requests towards the guest and replies from it.
//!
//! Flow control: bytes of a stream (stdin, stdout, file contents, a forwarded connection) are sent only
//! against credit. Each side starts with [`crate::frame::WINDOW`] bytes of credit per stream and gets more by
//! `Credit`. So neither side ever has to stop reading frames, and a kill arrives however full stdin is.

#![allow(missing_docs, reason = "variants and fields whose names say all carry no comment")]

use crate::codec::Bytes;
use crate::{wire_enum, wire_struct};

wire_enum! {
    /// Which byte stream of a request a data or credit message belongs to.
    Stream {
        /// Towards the guest: a program's stdin, the contents of a file being written, a connection's outgoing bytes.
        0 = Input {},
        /// From the guest: stdout, a PTY's output, file contents, a connection's incoming bytes.
        1 = Output {},
        /// From the guest: stderr.
        2 = Errors {},
    }
}

wire_enum! {
    /// Where the standard streams of a program lead.
    Stdio {
        /// Three descriptors travel with this frame (SCM_RIGHTS): stdin, stdout, stderr. Nothing is copied.
        0 = Passed {},
        /// Pipes, carried as data messages. Without `stdin` the program reads end-of-file at once.
        1 = Piped { stdin: bool },
        /// A new pseudo-terminal made inside; stdout and stderr both arrive as `Output`.
        2 = Pty { rows: u16, cols: u16 },
    }
}

wire_struct! {
    /// A program to run.
    Exec {
        /// Program and arguments; a program without a slash is looked up in the `PATH` of `env`.
        argv: Vec<Bytes>,
        /// The whole environment.
        env: Vec<(Bytes, Bytes)>,
        /// Absolute working directory.
        cwd: Bytes,
        /// Where its streams lead.
        stdio: Stdio,
    }
}

wire_enum! {
    /// From the host to the guest. The frame's id names the request; later messages about it reuse the id.
    Request {
        /// First message on a stream.
        0 = Hello { version: u32, token: [u8; 32] },
        /// Build the jail (only on the jail wall, once, after `Begin`); `Enter` follows.
        1 = Jail { plan: crate::plan::JailPlan },
        /// Run a program.
        2 = Run { exec: Exec },
        /// Bytes of a stream.
        3 = Data { stream: Stream, bytes: Bytes },
        /// No more bytes on a stream.
        4 = Eof { stream: Stream },
        /// The receiver may get this many more bytes on a stream.
        5 = Credit { stream: Stream, bytes: u32 },
        /// Send a signal to the process group of a running program; 9 kills it.
        6 = Signal { signal: i32 },
        /// New size of a PTY.
        7 = Resize { rows: u16, cols: u16 },
        /// Stream a file's contents from `offset`, at most `limit` bytes (0: all).
        8 = ReadFile { path: Bytes, offset: u64, limit: u64 },
        /// Create or replace a file with the `Input` data that follows; it appears under its name only when complete.
        9 = WriteFile { path: Bytes, mode: u32, parents: bool },
        /// List a directory.
        10 = ListDir { path: Bytes },
        /// Describe a path (without following a final link).
        11 = Stat { path: Bytes },
        /// Remove a file, or a directory (with everything in it when `recursive`).
        12 = Remove { path: Bytes, recursive: bool },
        /// Rename.
        13 = Rename { from: Bytes, to: Bytes },
        /// Make a directory.
        14 = MakeDir { path: Bytes, mode: u32, parents: bool },
        /// Report changes beneath a path until cancelled.
        15 = Watch { path: Bytes, recursive: bool },
        /// Connect to a TCP port on the guest's loopback; then data flows both ways.
        16 = Connect { port: u16 },
        /// Listen on a TCP port of the guest's loopback (0: any); each connection is announced by `Accepted`.
        17 = Listen { port: u16 },
        /// End a request: close its streams, stop watching or listening; a running program is killed.
        18 = Cancel {},
        /// Stop (true) or continue (false) every program inside.
        19 = Freeze { frozen: bool },
        /// Every program inside is killed and the guest ends.
        20 = Shutdown {},
        /// Answered by `Pong`.
        21 = Ping {},
        /// Confine yourself where no jail can be built (in place of `Jail`, once, before anything else). Answered like `Jail`.
        22 = Confine { plan: crate::plan::BarePlan },
        /// Begin a jail (only on the jail wall, once, before anything else); `Jail` follows.
        26 = Begin { basis: crate::plan::Basis },
        /// Where the jail stands (once, after `Jail`); answered by `Jailed`.
        25 = Enter { place: crate::plan::Place },
        /// As `ReadFile`, but the contents go into the pipe that travels with this frame (SCM_RIGHTS).
        23 = ReadFileTo { path: Bytes, offset: u64, limit: u64 },
        /// As `WriteFile`, but the contents come out of the pipe that travels with this frame; `Eof` says that all are in it.
        24 = WriteFileFrom { path: Bytes, mode: u32, parents: bool },
        /// Become a template (in place of `Jail`, once, before anything else): build what all its clones share and run nothing. Answered
        /// by `Moulded`.
        27 = Mould { plan: crate::plan::TemplatePlan },
        /// Only to a template: clone a guest. With the frame travels its end of a new stream, on which it expects `Begin` without a greeting.
        /// Answered by `Cloned`.
        28 = Clone {},
    }
}

impl Request {
    /// How many descriptors travel with the frame.
    pub fn descriptors(&self) -> usize {
        match self {
            Self::Run { exec } if exec.stdio == (Stdio::Passed {}) => 3,
            Self::ReadFileTo { .. } | Self::WriteFileFrom { .. } => 1,
            _ => 0,
        }
    }
}

wire_enum! {
    /// How a program ended.
    Exit {
        /// It returned this code.
        0 = Code { code: i32 },
        /// A signal ended it.
        1 = Signal { signal: i32 },
        /// A limit was reached and everything was killed; only a supervisor says so, never a guest.
        2 = Limit { demand: String },
    }
}

wire_enum! {
    /// What kind of thing a path names.
    FileKind {
        0 = File {},
        1 = Directory {},
        2 = Symlink { target: Bytes },
        3 = Other {},
    }
}

wire_struct! {
    /// A path's description.
    FileStat {
        kind: FileKind,
        size: u64,
        mode: u32,
        uid: u32,
        gid: u32,
        /// Seconds and nanoseconds since 1970.
        modified: (i64, u32),
    }
}

wire_struct! {
    /// One name in a directory.
    Entry { name: Bytes, stat: FileStat }
}

wire_enum! {
    /// What happened to a watched path.
    Change {
        0 = Created {},
        1 = Modified {},
        2 = Removed {},
        3 = Renamed {},
        4 = Attributes {},
        /// Events were lost; look again.
        5 = Overflow {},
    }
}

wire_enum! {
    /// Why a request failed; the number decides what the host does, the text is for people.
    ErrorKind {
        0 = NotFound {},
        1 = Permission {},
        2 = NotDirectory {},
        3 = IsDirectory {},
        4 = Exists {},
        /// The program cannot be started: missing, a directory, not executable, interpreter missing, not on the exec list.
        5 = NotExecutable {},
        /// The request makes no sense (bad path, unknown id, wrong state).
        6 = Invalid {},
        7 = NoSpace {},
        8 = TooMany {},
        9 = Io {},
    }
}

wire_enum! {
    /// From the guest to the host, with the id of the request it answers.
    Reply {
        /// Answer to `Hello`.
        0 = Welcome { version: u32, pid: u32 },
        /// The jail stands.
        1 = Jailed { report: crate::plan::JailReport },
        /// A step of the jail failed; the guest ends.
        2 = JailFailed { step: String, detail: String, errno: i32 },
        /// The program runs; `pid` is its number inside, `program` the file that was executed. May be held back for [`crate::frame::START_DELAY`] to travel with what follows.
        3 = Started { pid: u32, program: Bytes },
        /// Bytes of a stream.
        4 = Data { stream: Stream, bytes: Bytes },
        /// No more bytes on a stream.
        5 = Eof { stream: Stream },
        /// The host may send this many more bytes on a stream.
        6 = Credit { stream: Stream, bytes: u32 },
        /// The program ended and all its output was sent.
        7 = Exited { exit: Exit },
        /// The request is done.
        8 = Done {},
        /// The request failed.
        9 = Failed { kind: ErrorKind, message: String },
        /// Some names of a directory; `Done` follows the last.
        10 = Entries { entries: Vec<Entry> },
        /// Answer to `Stat`.
        11 = Described { stat: FileStat },
        /// A watched path changed.
        12 = Changed { path: Bytes, change: Change },
        /// A connection was accepted by the listener `listener`; the frame's id is new, from the guest.
        13 = Accepted { listener: u32, peer_port: u16 },
        /// The listener's port.
        14 = Listening { port: u16 },
        15 = Pong {},
        /// The template stands: its steps, as in a report, and its namespaces, none of which a clone may share.
        16 = Moulded { steps: Vec<(String, u32)>, namespaces: Vec<(String, u64)> },
        /// A clone was made; a descriptor of its process travels with the frame.
        17 = Cloned {},
    }
}
