//! The first frames, and frames that make no sense.

use stockade_wire::VERSION;
use stockade_wire::codec::Bytes;
use stockade_wire::frame::{GUEST_ID_BIT, MAX_PAYLOAD};
use stockade_wire::message::{ErrorKind, Reply, Request, Stream};

use crate::client::{Guest, OUTPUT, TOKEN, data, shell};
use std::io::Write as _;

#[test]
fn hello_is_answered_with_version_and_pid() {
    let mut guest = Guest::silent();
    guest.send(0, &Request::Hello { version: VERSION, token: TOKEN });
    let pid = guest.child.id();
    assert_eq!(guest.reply(0), Reply::Welcome { version: VERSION, pid });
    assert_eq!(guest.ask(&Request::Ping {}), Reply::Pong {});
}

#[test]
fn a_wrong_beginning_ends_the_guest_without_an_answer() {
    let mut other = TOKEN;
    other[31] ^= 1;
    for first in [
        Request::Hello { version: VERSION, token: other },
        Request::Hello { version: VERSION + 1, token: TOKEN },
        Request::Ping {},
        shell("true", false),
    ] {
        let mut guest = Guest::silent();
        guest.send(0, &first);
        assert_eq!(guest.next_reply(), None, "{first:?}");
        assert_eq!(guest.wait().code(), Some(1), "{first:?}");
    }
}

#[test]
fn malformed_frames_end_the_guest() {
    let unknown: &[u8] = &[200];
    let trailing: &[u8] = &[21, 0];
    for payload in [unknown, trailing, &[]] {
        let mut guest = Guest::start();
        // The second frame is read by the handshake, the third by the loop.
        guest.ask(&Request::Ping {});
        guest.send_raw(1, payload);
        assert_eq!(guest.wait().code(), Some(1), "{payload:?}");
    }
    let mut guest = Guest::start();
    guest.ask(&Request::Ping {});
    guest.stream.write_all(&(MAX_PAYLOAD as u32 + 1).to_le_bytes()).unwrap();
    guest.stream.write_all(&[0; 4]).unwrap();
    assert_eq!(guest.wait().code(), Some(1));
}

#[test]
fn the_end_of_the_stream_ends_the_guest_and_what_it_started() {
    let mut guest = Guest::start();
    let id = guest.request(&shell("sleep 1000 & sleep 1000", false));
    let Reply::Started { pid, .. } = guest.reply(id) else { panic!("not started") };
    guest.stream.shutdown(std::net::Shutdown::Both).unwrap();
    assert_eq!(guest.wait().code(), Some(0));
    crate::client::eventually("the program is gone", || {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
    });
}

#[test]
fn shutdown_ends_the_guest() {
    let mut guest = Guest::start();
    let id = guest.request(&Request::Shutdown {});
    assert_eq!(guest.reply(id), Reply::Done {});
    assert_eq!(guest.wait().code(), Some(0));
}

#[test]
fn termination_ends_an_ordinary_guest() {
    let mut guest = Guest::start();
    guest.ask(&Request::Ping {});
    rustix::process::kill_process(rustix::process::Pid::from_child(&guest.child), rustix::process::Signal::TERM).unwrap();
    assert_eq!(guest.wait().code(), Some(0));
}

#[test]
fn senseless_requests_fail_and_the_guest_goes_on() {
    let mut guest = Guest::start();
    let bad = [
        Request::Hello { version: VERSION, token: TOKEN },
        Request::Stat { path: Bytes::from("relative") },
        Request::Stat { path: Bytes::from("") },
        Request::Stat { path: Bytes::from("/a\0b") },
        Request::ReadFile { path: Bytes::from("x"), offset: 0, limit: 0 },
        Request::WriteFile { path: Bytes::from("x"), mode: 0o644, parents: false },
        Request::ListDir { path: Bytes::from("./x") },
        Request::Remove { path: Bytes::from("/"), recursive: true },
        Request::Remove { path: Bytes::from("/tmp/.."), recursive: true },
        Request::Rename { from: Bytes::from("/a"), to: Bytes::from("b") },
        Request::MakeDir { path: Bytes::from("a"), mode: 0o755, parents: true },
        Request::Watch { path: Bytes::from("a"), recursive: true },
        data(b"never begun"),
        Request::Eof { stream: Stream::Input {} },
        Request::Credit { stream: OUTPUT, bytes: 1 },
        Request::Signal { signal: 9 },
        Request::Resize { rows: 1, cols: 1 },
        Request::Cancel {},
    ];
    for request in bad {
        let id = 1_000_000 + guest.fresh();
        guest.send(id, &request);
        // An id that failed counts as used, so each gets its own, higher one.
        assert!(matches!(guest.reply(id), Reply::Failed { kind: ErrorKind::Invalid {}, .. }), "{request:?}");
    }
    guest.send(GUEST_ID_BIT | 7, &shell("true", false));
    assert!(matches!(guest.reply(GUEST_ID_BIT | 7), Reply::Failed { kind: ErrorKind::Invalid {}, .. }));
    assert_eq!(guest.ask(&Request::Ping {}), Reply::Pong {});
}

#[test]
fn an_id_in_use_is_refused_and_the_first_request_goes_on() {
    let mut guest = Guest::start();
    let id = guest.request(&shell("cat", true));
    assert!(matches!(guest.reply(id), Reply::Started { .. }));
    guest.send(id, &Request::Stat { path: Bytes::from("/") });
    assert!(matches!(guest.reply(id), Reply::Failed { kind: ErrorKind::Invalid {}, .. }));
    guest.send(id, &data(b"still here"));
    guest.send(id, &Request::Eof { stream: Stream::Input {} });
    assert_eq!(guest.collect(id).stdout, b"still here");
}

#[test]
fn late_messages_are_ignored() {
    let mut guest = Guest::start();
    let id = guest.request(&shell("exit 3", true));
    guest.collect(id);
    for late in [
        data(b"late"),
        Request::Eof { stream: Stream::Input {} },
        Request::Credit { stream: OUTPUT, bytes: u32::MAX },
        Request::Signal { signal: 9 },
        Request::Resize { rows: 1, cols: 1 },
        Request::Cancel {},
    ] {
        guest.send(id, &late);
    }
    let ping = guest.request(&Request::Ping {});
    assert_eq!(guest.next_reply(), Some((ping, Reply::Pong {})));
}

#[test]
fn too_many_requests_at_once_are_refused() {
    let mut guest = Guest::start();
    for _ in 0..1024 {
        guest.request(&Request::WriteFile { path: Bytes::from("/dev/shm/never"), mode: 0o600, parents: false });
    }
    let (kind, _) = guest.failure(&Request::Stat { path: Bytes::from("/") });
    assert_eq!(kind, ErrorKind::TooMany {});
    guest.send(5, &Request::Cancel {});
    assert_eq!(guest.reply(5), Reply::Done {});
    assert!(matches!(guest.ask(&Request::Stat { path: Bytes::from("/") }), Reply::Described { .. }));
    // The end of the stream removes what was begun and not finished.
    guest.stream.shutdown(std::net::Shutdown::Both).unwrap();
    guest.wait();
    let left =
        std::fs::read_dir("/dev/shm").unwrap().flatten().filter(|e| e.file_name().to_string_lossy().starts_with(".stockade-")).count();
    assert_eq!(left, 0);
}

/// Copies one way until an end or an error.
fn relay(mut from: std::fs::File, mut to: std::fs::File) {
    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
}

#[test]
fn a_stream_that_is_no_socket_will_do() {
    let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY | rustix::pty::OpenptFlags::CLOEXEC;
    let controller = rustix::pty::openpt(flags).unwrap();
    rustix::pty::unlockpt(&controller).unwrap();
    let user = rustix::pty::ioctl_tiocgptpeer(&controller, flags).unwrap();
    // Before the guest has set it up, what we send would be translated already.
    let mut settings = rustix::termios::tcgetattr(&user).unwrap();
    settings.make_raw();
    rustix::termios::tcsetattr(&user, rustix::termios::OptionalActions::Now, &settings).unwrap();
    let (ours, other) = std::os::unix::net::UnixStream::pair().unwrap();
    let other = std::fs::File::from(std::os::fd::OwnedFd::from(other));
    let controller = std::fs::File::from(controller);
    relay(other.try_clone().unwrap(), controller.try_clone().unwrap());
    relay(controller, other);
    let command = std::process::Command::new(env!("CARGO_BIN_EXE_stockade-shim"));
    let mut guest = Guest::on(command, ours, user);
    guest.greet();
    let output = guest.shell("head -c 3000000 /dev/urandom | tee /dev/stderr");
    assert_eq!(output.stdout.len(), 3_000_000);
    assert!(output.stdout == output.stderr);
    let echoed = guest.request(&shell("md5sum", true));
    for chunk in output.stdout[..1 << 20].chunks(stockade_wire::frame::DATA_CHUNK) {
        guest.send(echoed, &data(chunk));
    }
    guest.send(echoed, &Request::Eof { stream: Stream::Input {} });
    assert_eq!(guest.collect(echoed).stdout.len(), 36);
    assert_eq!(guest.ask(&Request::Ping {}), Reply::Pong {});
}

#[test]
fn a_host_that_asks_and_never_reads_is_given_up() {
    let mut guest = Guest::start();
    let mut frames = Vec::new();
    for id in 0..10_000 {
        stockade_wire::frame::push_frame(&mut frames, id, &stockade_wire::codec::to_bytes(&Request::Ping {}));
    }
    let mut gone = false;
    for _ in 0..200 {
        gone = gone || guest.stream.write_all(&frames).is_err();
    }
    assert!(gone, "18 MB of answers are kept for nobody");
    guest.wait();
}
