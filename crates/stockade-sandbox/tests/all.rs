//! The sandbox interface, on every wall of this version, with descriptors passed and over the plain stream.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "all/both.rs"]
mod both;
#[path = "all/launch.rs"]
mod launch;
#[path = "all/shown.rs"]
mod shown;
#[path = "all/template.rs"]
mod template;
#[path = "all/wayout.rs"]
mod wayout;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stockade_core::limits::{Limit, Limits};
use stockade_core::path::SafePath;
use stockade_core::spec::{BackendKind, MountMode, SandboxSpec, Workspace};
use stockade_sandbox::backends::jail::Jail;
use stockade_sandbox::backends::local::Local;
use stockade_sandbox::backends::{Backend, Start};
use stockade_sandbox::connection::Passing;
use stockade_sandbox::drive::{Captured, Ending, Outcome, Sink, Streams};
use stockade_sandbox::files::FileError;
use stockade_sandbox::guard::Guard;
use stockade_sandbox::sandbox::Sandbox;
use stockade_sandbox::state::Sandboxes;
use stockade_sandbox::wire::FileKind;

/// A sandbox around a fresh workspace, and what must outlive it.
struct Ground {
    sandbox: Sandbox,
    workspace: PathBuf,
    _directory: tempfile::TempDir,
}

impl Ground {
    fn new(backend: &dyn Backend, limits: Limits) -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let base = std::fs::canonicalize(directory.path()).unwrap();
        let workspace = base.join("work");
        std::fs::create_dir(&workspace).unwrap();
        std::fs::write(workspace.join("given"), "from outside\n").unwrap();
        let owned = Sandboxes::open(&base.join("state")).unwrap().create().unwrap();
        let spec = SandboxSpec {
            workspace: Workspace { path: safe(&workspace), mode: MountMode::Overlay, git_common: None },
            mounts: Vec::new(),
            env: vec![("PATH".into(), OsString::from("/usr/bin:/bin")), ("HOME".into(), OsString::from("/home/sandbox"))],
            cwd: safe(&workspace),
            home: safe(Path::new("/home/sandbox")),
            exec_list: None,
            limits,
            allow_degraded: BTreeSet::new(),
            path_dirs: Vec::new(),
        };
        let start = Start {
            spec: &spec,
            id: &owned.id,
            directory: &owned.directory,
            home: &base,
            toolchain_roots: &[],
            hidden: &[],
            guard: &Guard::default(),
            programs: None,
            way_out: None,
            meanwhile: None,
        };
        let sandbox = Sandbox::start(backend, &start).unwrap();
        Self { sandbox, workspace, _directory: directory }
    }

    fn run(&mut self, script: &str) -> Outcome {
        let streams = Streams::Plain { stdin: None, stdout: Sink::Buffer(1 << 20), stderr: Sink::Buffer(1 << 20) };
        self.sandbox.exec(&["sh".into(), "-c".into(), script.into()], streams, None).unwrap()
    }

    fn path(&self, name: &str) -> SafePath {
        safe(&self.workspace.join(name))
    }
}

fn safe(path: &Path) -> SafePath {
    SafePath::new(path).unwrap()
}

/// Every wall, with and without passing descriptors.
fn on_every_wall(test: impl Fn(&dyn Backend, BackendKind)) {
    for passing in [Passing::Possible, Passing::Impossible] {
        let walls: [Box<dyn Backend>; 2] = [Box::new(Jail { passing }), Box::new(Local { passing })];
        for wall in walls {
            test(wall.as_ref(), wall.kind());
        }
    }
}

#[test]
fn programs_run_and_their_streams_are_apart() {
    on_every_wall(|wall, kind| {
        let mut ground = Ground::new(wall, Limits::default());
        let outcome = ground.run("cat given; echo wrong >&2; exit 7");
        assert_eq!(outcome.ending, Ending::Code(7), "{kind}");
        assert_eq!(outcome.stdout.bytes, b"from outside\n", "{kind}");
        assert_eq!(outcome.stderr.bytes, b"wrong\n", "{kind}");
        assert_eq!(ground.run("kill -TERM $$").ending, Ending::Signal(15), "{kind}");
        assert!(matches!(
            ground.sandbox.exec(
                &["no-such-program".into()],
                Streams::Plain { stdin: None, stdout: Sink::Buffer(1), stderr: Sink::Buffer(1) },
                None
            ),
            Ok(Outcome { ending: Ending::NotStarted { missing: true, .. }, .. })
        ));
        assert!(ground.sandbox.is_running(), "{kind}");
        ground.sandbox.destroy();
    });
}

#[test]
fn callers_descriptors_are_used_where_they_can_be() {
    on_every_wall(|wall, kind| {
        let mut ground = Ground::new(wall, Limits::default());
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(b"through\n").unwrap();
        ours.shutdown(Shutdown::Write).unwrap();
        let streams = Streams::Plain {
            stdin: Some(theirs.as_fd()),
            stdout: Sink::Descriptor(theirs.as_fd()),
            stderr: Sink::Descriptor(theirs.as_fd()),
        };
        let outcome = ground.sandbox.exec(&["cat".into()], streams, None).unwrap();
        drop(theirs);
        let mut text = String::new();
        ours.read_to_string(&mut text).unwrap();
        assert_eq!((outcome.ending, text.as_str()), (Ending::Code(0), "through\n"), "{kind}");
    });
}

#[test]
fn output_beyond_the_limit_is_cut_and_the_program_goes_on() {
    on_every_wall(|wall, kind| {
        let mut ground = Ground::new(wall, Limits::default());
        let streams = Streams::Plain { stdin: None, stdout: Sink::Buffer(1000), stderr: Sink::Buffer(1000) };
        let script = "head -c 20000000 /dev/zero; echo done > finished";
        let outcome = ground.sandbox.exec(&["sh".into(), "-c".into(), script.into()], streams, None).unwrap();
        assert_eq!((outcome.stdout.bytes.len(), outcome.stdout.truncated, outcome.stdout.total), (1000, true, 20_000_000), "{kind}");
        assert_eq!(ground.run("cat finished").stdout.bytes, b"done\n", "{kind}");
    });
}

#[test]
fn captured_programs_read_and_their_descendants_are_not_waited_for() {
    on_every_wall(|wall, kind| {
        let mut ground = Ground::new(wall, Limits { time: Some(Limit::asked(Duration::from_mins(2))), ..Limits::default() });
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let sent: Vec<u8> = (0..2_000_000u32).map(|at| (at % 251) as u8).collect();
        let feeding = std::thread::spawn({
            let sent = sent.clone();
            move || {
                ours.write_all(&sent).unwrap();
                ours.shutdown(Shutdown::Write).unwrap();
            }
        });
        let streams = Streams::Plain { stdin: Some(theirs.as_fd()), stdout: Sink::Buffer(4 << 20), stderr: Sink::Buffer(1 << 20) };
        let script = "cat; echo all >&2; sleep 1000 &";
        let outcome = ground.sandbox.exec(&["sh".into(), "-c".into(), script.into()], streams, None).unwrap();
        feeding.join().unwrap();
        assert_eq!(outcome.ending, Ending::Code(0), "{kind}");
        assert!(outcome.stdout.bytes == sent, "{kind}: {} bytes came back", outcome.stdout.bytes.len());
        assert_eq!((outcome.stderr.bytes.as_slice(), outcome.stderr.truncated), (b"all\n".as_slice(), false), "{kind}");
    });
}

#[test]
fn limited_output_goes_to_a_slow_reader_up_to_the_limit() {
    on_every_wall(|wall, kind| {
        let mut ground = Ground::new(wall, Limits::default());
        let (mut reader, writer) = std::io::pipe().unwrap();
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            let mut chunk = [0; 3000];
            while let Ok(count @ 1..) = reader.read(&mut chunk) {
                all.extend_from_slice(&chunk[..count]);
                std::thread::yield_now();
            }
            all
        });
        let streams = Streams::Plain { stdin: None, stdout: Sink::Limited(writer.as_fd(), 1_000_000), stderr: Sink::Buffer(10) };
        let script = "seq 1 300000; echo 0123456789abcdef >&2; echo done > finished";
        let outcome = ground.sandbox.exec(&["sh".into(), "-c".into(), script.into()], streams, None).unwrap();
        drop(writer);
        let all = reading.join().unwrap();
        let expected = (1..=300_000).map(|n| n.to_string()).collect::<Vec<_>>().join("\n") + "\n";
        assert_eq!(outcome.stdout, Captured { bytes: Vec::new(), truncated: true, total: expected.len() as u64 }, "{kind}");
        assert!(all == expected.as_bytes()[..1_000_000], "{kind}: {} bytes came", all.len());
        assert_eq!(outcome.stderr, Captured { bytes: b"0123456789".to_vec(), truncated: true, total: 17 }, "{kind}");
        assert_eq!(ground.run("cat finished").stdout.bytes, b"done\n", "{kind}");
    });
}

#[test]
fn time_ends_everything() {
    let mut ground = Ground::new(&Jail::default(), Limits { time: Some(Limit::asked(Duration::from_millis(300))), ..Limits::default() });
    assert_eq!(ground.run("(setsid sleep 1000 &) ; sleep 1000").ending, Ending::TimedOut);
    assert!(!ground.sandbox.is_running());
}

#[test]
fn files_go_in_and_out() {
    on_every_wall(|wall, kind| {
        let mut ground = Ground::new(wall, Limits::default());
        let (path, other) = (ground.path("deep/er/file"), ground.path("deep/other"));
        let contents: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(ground.sandbox.write_file(&path, 0o640, &mut contents.as_slice()).unwrap(), contents.len() as u64, "{kind}");
        let mut back = Vec::new();
        ground.sandbox.read_file(&path, &mut back).unwrap();
        assert!(back == contents, "{kind}: what came back differs");
        let stat = ground.sandbox.stat(&path).unwrap();
        assert_eq!((stat.kind, stat.size, stat.mode & 0o777), (FileKind::File {}, contents.len() as u64, 0o640), "{kind}");
        ground.sandbox.rename(&path, &other).unwrap();
        let names: Vec<Vec<u8>> = ground.sandbox.list_dir(&ground.path("deep")).unwrap().into_iter().map(|e| e.name.0).collect();
        assert!(names.contains(&b"other".to_vec()) && names.contains(&b"er".to_vec()), "{kind}: {names:?}");
        ground.sandbox.remove(&ground.path("deep")).unwrap();
        assert!(matches!(ground.sandbox.stat(&other), Err(FileError::Refused { .. })), "{kind}");
        ground.sandbox.make_dir(&ground.path("a/b"), 0o755).unwrap();
        assert!(matches!(ground.sandbox.read_file(&ground.path("none"), &mut Vec::new()), Err(FileError::Refused { .. })), "{kind}");
        assert_eq!(ground.run("cat given").ending, Ending::Code(0), "{kind}: the stream is still in step");
    });
}

#[test]
fn the_jail_keeps_writes_apart_and_local_does_not() {
    on_every_wall(|wall, kind| {
        let mut ground = Ground::new(wall, Limits::default());
        assert_eq!(ground.run("echo new > made").ending, Ending::Code(0), "{kind}");
        assert_eq!(ground.workspace.join("made").exists(), kind == BackendKind::Local, "{kind}");
    });
}

#[test]
fn watching_tells_of_changes() {
    on_every_wall(|wall, kind| {
        let mut ground = Ground::new(wall, Limits::default());
        // The program outlives its shell in the background, so that there is something to see.
        ground.run("(sleep 0.3; echo x > appeared) > /dev/null 2>&1 &");
        let mut seen = Vec::new();
        let workspace = safe(&ground.workspace.clone());
        ground
            .sandbox
            .watch(&workspace, Duration::from_secs(20), &mut |event| {
                seen.push(String::from_utf8_lossy(&event.path).into_owned());
                ControlFlow::Break(())
            })
            .unwrap();
        assert!(seen.iter().any(|p| p.ends_with("appeared")), "{kind}: {seen:?}");
        assert_eq!(ground.run("true").ending, Ending::Code(0), "{kind}");
    });
}

#[test]
fn a_port_inside_is_reached_from_outside() {
    let mut ground = Ground::new(&Jail::default(), Limits::default());
    let server = "import socket\ns = socket.socket(); s.bind(('127.0.0.1', 8123)); s.listen()\nopen('ready', 'w').close()\nc, _ = s.accept(); c.sendall(c.recv(100).upper()); c.close()";
    ground.sandbox.write_file(&ground.path("server.py"), 0o644, &mut server.as_bytes()).unwrap();
    let started = ground.run("/usr/bin/python3 server.py > /dev/null 2>&1 & while [ ! -e ready ]; do sleep 0.02; done");
    assert_eq!(started.ending, Ending::Code(0));
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(b"hello").unwrap();
    ours.shutdown(Shutdown::Write).unwrap();
    ground.sandbox.forward(8123, theirs.as_fd()).unwrap();
    drop(theirs);
    let mut text = String::new();
    ours.read_to_string(&mut text).unwrap();
    assert_eq!(text, "HELLO");
    assert!(matches!(ground.sandbox.forward(1, ours.as_fd()), Err(FileError::Refused { .. })), "nobody listens there");
}

#[test]
fn pausing_stops_everything() {
    let mut ground = Ground::new(&Jail::default(), Limits::default());
    ground.run("(while :; do date +%N > tick; sleep 0.01; done) > /dev/null 2>&1 &");
    // Between its making and its writing the file is empty.
    let tick = |ground: &mut Ground| {
        let path = ground.path("tick");
        loop {
            let mut bytes = Vec::new();
            ground.sandbox.read_file(&path, &mut bytes).unwrap();
            if !bytes.is_empty() {
                return bytes;
            }
        }
    };
    std::thread::sleep(Duration::from_millis(100));
    ground.sandbox.pause().unwrap();
    ground.sandbox.resume().unwrap();
    let before = tick(&mut ground);
    std::thread::sleep(Duration::from_millis(200));
    assert_ne!(before, tick(&mut ground), "it goes on after resume");
    assert!(ground.sandbox.is_running());
}
