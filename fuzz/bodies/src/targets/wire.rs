//! The guest protocol's codec and frames, as both sides read them.
//!
//! Promises: whatever is accepted is written back as the very same bytes, so that no two texts mean one message; how a stream is cut into
//! reads changes nothing.

use stockade_wire::codec::{self, Bytes, Wire};
use stockade_wire::frame::{self, FrameBuffer};
use stockade_wire::message::{Change, Entry, ErrorKind, Exec, Exit, FileKind, FileStat, Reply, Request, Stdio, Stream};
use stockade_wire::plan::{
    Access, BarePlan, Basis, Execution, Groups, Item, JailPlan, JailReport, Landlock, Layer, Network, Place, Resource, Source,
    TemplatePlan, WayOut,
};

/// Reads the input as a message of the kind that its first byte names, or as a stream of frames.
pub fn body(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind % 5 {
        0 => round_trip::<Request>(rest),
        1 => round_trip::<Reply>(rest),
        2 => round_trip::<JailPlan>(rest),
        3 => round_trip::<JailReport>(rest),
        _ => cut(rest),
    }
}

fn round_trip<T: Wire + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    match codec::from_bytes::<T>(bytes) {
        Ok(value) => {
            let again = codec::to_bytes(&value);
            assert_eq!(again, bytes, "{value:?} has two encodings");
            assert_eq!(codec::from_bytes::<T>(&again).as_ref(), Ok(&value));
        }
        Err(error) => crate::shown::assert_honest(&error.to_string(), &[]),
    }
}

/// The first byte says how long the pieces of the second reading are.
fn cut(bytes: &[u8]) {
    let Some((cut, stream)) = bytes.split_first() else { return };
    let whole = frames(stream, stream.len().max(1));
    assert_eq!(whole, frames(stream, usize::from(*cut).max(1)), "the cut changed what was read");
    let mut written = Vec::new();
    for (id, payload) in &whole.0 {
        frame::push_frame(&mut written, *id, payload);
    }
    assert_eq!(stream.get(..written.len()), Some(written.as_slice()), "frames were not read as they stand");
}

/// Every whole frame, and whether the stream was given up.
fn frames(stream: &[u8], cut: usize) -> (Vec<(u32, Vec<u8>)>, bool) {
    let mut buffer = FrameBuffer::default();
    let mut found = Vec::new();
    for piece in stream.chunks(cut) {
        buffer.extend(piece);
        loop {
            match buffer.next_frame() {
                Ok(Some((id, payload))) => {
                    assert!(payload.len() <= frame::MAX_PAYLOAD);
                    found.push((id, payload.to_vec()));
                }
                Ok(None) => break,
                Err(_) => return (found, true),
            }
        }
    }
    (found, false)
}

/// One message of every kind, and streams of them.
pub fn seeds() -> Vec<Vec<u8>> {
    let with = |kind: u8, bytes: Vec<u8>| [vec![kind], bytes].concat();
    let mut seeds = Vec::new();
    let mut stream = vec![7];
    for (id, request) in requests().iter().enumerate() {
        seeds.push(with(0, codec::to_bytes(request)));
        frame::push_frame(&mut stream, id as u32, &codec::to_bytes(request));
    }
    seeds.push(with(4, stream));
    seeds.extend(replies().iter().map(|reply| with(1, codec::to_bytes(reply))));
    seeds.push(with(2, codec::to_bytes(&plan())));
    seeds.push(with(3, codec::to_bytes(&report())));
    seeds.push(with(4, [vec![1], (u32::MAX.to_le_bytes().to_vec()), vec![0; 4]].concat()));
    seeds
}

fn place(way_out: Option<WayOut>) -> Place {
    Place { network: Network::Passed {}, way_out, joins: 2, rlimits: vec![(Resource::Processes {}, 512)] }
}

/// A request of every kind.
pub fn requests() -> Vec<Request> {
    let path = || Bytes::from("/work/file");
    let exec = Exec {
        argv: vec!["sh".into(), "-c".into(), b"\xff".into()],
        env: vec![("PATH".into(), "/bin".into())],
        cwd: "/".into(),
        stdio: Stdio::Piped { stdin: true },
    };
    vec![
        Request::Hello { version: stockade_wire::VERSION, token: [7; 32] },
        Request::Begin { basis: basis() },
        Request::Jail { plan: plan() },
        Request::Enter { place: place(None) },
        Request::Enter { place: place(Some(WayOut { proxy_port: 3128, ports: vec![80, 443] })) },
        Request::Run { exec: exec.clone() },
        Request::Run { exec: Exec { stdio: Stdio::Pty { rows: 24, cols: 80 }, ..exec } },
        Request::Data { stream: Stream::Input {}, bytes: "input".into() },
        Request::Eof { stream: Stream::Input {} },
        Request::Credit { stream: Stream::Output {}, bytes: 65_536 },
        Request::Signal { signal: 15 },
        Request::Resize { rows: 50, cols: 132 },
        Request::ReadFile { path: path(), offset: 0, limit: 0 },
        Request::WriteFile { path: path(), mode: 0o644, parents: true },
        Request::ListDir { path: path() },
        Request::Stat { path: path() },
        Request::Remove { path: path(), recursive: true },
        Request::Rename { from: path(), to: "/work/other".into() },
        Request::MakeDir { path: path(), mode: 0o755, parents: false },
        Request::Watch { path: path(), recursive: true },
        Request::Connect { port: 8080 },
        Request::Listen { port: 0 },
        Request::Cancel {},
        Request::Freeze { frozen: true },
        Request::Shutdown {},
        Request::Ping {},
        Request::Confine { plan: bare_plan() },
        Request::Mould { plan: template_plan() },
        Request::Clone {},
    ]
}

/// A reply of every kind.
pub fn replies() -> Vec<Reply> {
    let stat = |kind| FileStat { kind, size: 3, mode: 0o644, uid: 0, gid: 0, modified: (1_700_000_000, 5) };
    let entries = vec![
        Entry { name: "a".into(), stat: stat(FileKind::File {}) },
        Entry { name: b"\xff\n".into(), stat: stat(FileKind::Symlink { target: "../x".into() }) },
        Entry { name: "d".into(), stat: stat(FileKind::Directory {}) },
    ];
    vec![
        Reply::Started { pid: 2, program: "/bin/ls".into() },
        Reply::Welcome { version: stockade_wire::VERSION, pid: 1 },
        Reply::Jailed { report: report() },
        Reply::JailFailed { step: "mount".into(), detail: "no".into(), errno: 1 },
        Reply::Data { stream: Stream::Output {}, bytes: "output".into() },
        Reply::Data { stream: Stream::Errors {}, bytes: b"\x1b[2J".into() },
        Reply::Credit { stream: Stream::Input {}, bytes: 1 << 20 },
        Reply::Eof { stream: Stream::Output {} },
        Reply::Exited { exit: Exit::Code { code: 3 } },
        Reply::Exited { exit: Exit::Signal { signal: 9 } },
        Reply::Exited { exit: Exit::Limit { demand: "memory".into() } },
        Reply::Done {},
        Reply::Failed { kind: ErrorKind::NotExecutable {}, message: "no such program".into() },
        Reply::Entries { entries },
        Reply::Described { stat: stat(FileKind::Other {}) },
        Reply::Changed { path: "/work".into(), change: Change::Modified {} },
        Reply::Accepted { listener: 3, peer_port: 40_000 },
        Reply::Listening { port: 8080 },
        Reply::Pong {},
        Reply::Moulded { steps: vec![("root".into(), 12)], namespaces: vec![("net".into(), 4_026_531_840)] },
        Reply::Cloned {},
    ]
}

fn basis() -> Basis {
    let items = vec![Item::Proc { path: "/proc".into() }, Item::Devices { path: "/dev".into() }];
    Basis { hostname: "sandbox".into(), uid: 1000, gid: 1000, groups: Groups::Dropped {}, scratch_bytes: 1 << 30, items }
}

fn template_plan() -> TemplatePlan {
    let Basis { uid, gid, groups, .. } = basis();
    TemplatePlan { uid, gid, groups, items: plan().items, kept: vec![Source::Passed { index: 1 }] }
}

fn plan() -> JailPlan {
    let (access, execution) = (Access::ReadOnly {}, Execution::Denied {});
    let host = Source::Host { path: "/usr".into(), dev: 1, ino: 2 };
    let scratch = || Source::Scratch { name: "layer".into(), mode: 0o700 };
    JailPlan {
        items: vec![
            Item::Directory { path: "/a".into(), mode: 0o755 },
            Item::Symlink { path: "/bin".into(), target: "usr/bin".into() },
            Item::File { path: "/etc/hosts".into(), contents: "x".into(), mode: 0o444 },
            Item::Bind { source: host.clone(), target: "/usr".into(), access: access.clone(), execution: Execution::Allowed {} },
            Item::Overlay { lower: host, layer: scratch(), target: "/w".into(), access, execution },
            Item::Mask { path: "/etc/shadow".into(), mode: 0 },
            Item::Redirect { path: "/w/.git/config".into(), link: "/x".into() },
            Item::Proc { path: "/proc".into() },
            Item::Devices { path: "/dev".into() },
            Item::Seed { directory: "home".into(), name: ".x".into(), contents: "y".into(), mode: 0o600 },
            Item::Agent { path: "/run/a".into() },
            Item::Bind {
                source: Source::Passed { index: 0 },
                target: "/p".into(),
                access: Access::ReadWrite {},
                execution: Execution::Denied {},
            },
        ],
        export: vec!["layer".into()],
        landlock: Landlock {
            writable: vec!["/w".into()],
            executable: Some(vec!["/usr/bin/true".into()]),
            connectable: vec!["/run/a".into()],
        },
        landlock_layer: Layer::Required {},
        seccomp_layer: Layer::Wanted {},
        no_memory_files: true,
    }
}

fn bare_plan() -> BarePlan {
    BarePlan {
        rlimits: vec![(Resource::Processes {}, 64)],
        readable: vec!["/usr".into()],
        writable: vec!["/work".into()],
        executable: None,
        landlock_layer: Layer::Required {},
        probe: "/probe".into(),
    }
}

fn report() -> JailReport {
    JailReport {
        steps: vec![("mounts".into(), 300)],
        namespaces: vec![("user".into(), 4_026_531_837)],
        no_new_privs: true,
        seccomp_mode: 2,
        seccomp_probe: true,
        capabilities: 0,
        landlock_abi: 7,
        landlock_restricted: true,
        landlock_probe: true,
        loopback_only: true,
        root_detached: true,
        uid: 65_534,
    }
}
