//! File contents.

use std::os::unix::fs::PermissionsExt as _;

use stockade_wire::codec::Bytes;
use stockade_wire::frame::WINDOW;
use stockade_wire::message::{ErrorKind, Reply, Request};

use crate::client::{Guest, INPUT, OUTPUT, Scratch, data};

fn read(guest: &mut Guest, request: &Request) -> Vec<u8> {
    let id = guest.request(request);
    let mut contents = Vec::new();
    loop {
        match guest.reply(id) {
            Reply::Data { bytes, .. } => {
                contents.extend_from_slice(&bytes.0);
                guest.grant(id, OUTPUT, bytes.0.len());
            }
            Reply::Eof { .. } => {}
            Reply::Done {} => return contents,
            other => panic!("unexpected {other:?}"),
        }
    }
}

fn write(guest: &mut Guest, path: Bytes, contents: &[u8]) -> Reply {
    let id = guest.request(&Request::WriteFile { path, mode: 0o640, parents: true });
    guest.send(id, &data(contents));
    guest.send(id, &Request::Eof { stream: INPUT });
    guest.reply(id)
}

#[test]
fn files_are_written_with_parents_and_mode_and_read_in_parts() {
    let scratch = Scratch::new("parts");
    let mut guest = Guest::start();
    let path = scratch.path("deep/er/file");
    assert_eq!(write(&mut guest, path.clone(), b"0123456789"), Reply::Done {});
    let mode = std::fs::metadata(scratch.0.join("deep/er/file")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
    for (offset, limit, expected) in [(0, 0, "0123456789"), (3, 4, "3456"), (8, 100, "89"), (20, 0, "")] {
        let got = read(&mut guest, &Request::ReadFile { path: path.clone(), offset, limit });
        assert_eq!(String::from_utf8(got).unwrap(), expected);
    }
}

#[test]
fn a_file_appears_only_when_complete_and_a_cancelled_one_never() {
    let scratch = Scratch::new("appear");
    let target = scratch.0.join("file");
    std::fs::write(&target, "old").unwrap();
    let mut guest = Guest::start();
    let id = guest.request(&Request::WriteFile { path: scratch.path("file"), mode: 0o644, parents: false });
    guest.send(id, &data(b"new"));
    guest.ask(&Request::Ping {});
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "old");
    guest.send(id, &Request::Cancel {});
    assert_eq!(guest.reply(id), Reply::Done {});
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "old");
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 1);
    assert_eq!(write(&mut guest, scratch.path("file"), b"new"), Reply::Done {});
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "new");
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 1);
}

#[test]
fn a_link_in_the_place_of_a_file_is_kept() {
    let scratch = Scratch::new("links");
    std::os::unix::fs::symlink("real", scratch.0.join("link")).unwrap();
    std::os::unix::fs::symlink("loop", scratch.0.join("loop")).unwrap();
    let mut guest = Guest::start();
    assert_eq!(write(&mut guest, scratch.path("link"), b"through"), Reply::Done {});
    assert_eq!(std::fs::read_to_string(scratch.0.join("real")).unwrap(), "through");
    assert!(std::fs::symlink_metadata(scratch.0.join("link")).unwrap().is_symlink());
    let looping = Request::WriteFile { path: scratch.path("loop"), mode: 0o644, parents: false };
    assert_eq!(guest.failure(&looping).0, ErrorKind::Invalid {});
}

#[test]
fn what_cannot_be_read_or_written_says_why() {
    let scratch = Scratch::new("refused");
    std::fs::write(scratch.0.join("file"), "").unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, scratch.0.join("fifo"), rustix::fs::Mode::RWXU).unwrap();
    let mut guest = Guest::start();
    let read = |path: &str| Request::ReadFile { path: scratch.path(path), offset: 0, limit: 0 };
    let write = |path: &str| Request::WriteFile { path: scratch.path(path), mode: 0o644, parents: false };
    for (request, expected) in [
        (read("none"), ErrorKind::NotFound {}),
        (read(""), ErrorKind::IsDirectory {}),
        (read("file/below"), ErrorKind::NotDirectory {}),
        (read("fifo"), ErrorKind::Invalid {}),
        (write("none/file"), ErrorKind::NotFound {}),
        (write("file/below"), ErrorKind::NotDirectory {}),
        (Request::WriteFile { path: scratch.path("file/below/it"), mode: 0o644, parents: true }, ErrorKind::NotDirectory {}),
        (Request::WriteFile { path: Bytes::from("/proc/self"), mode: 0o644, parents: false }, ErrorKind::IsDirectory {}),
    ] {
        assert_eq!(guest.failure(&request).0, expected, "{request:?}");
    }
}

#[test]
fn a_hundred_megabytes_pass_both_ways_in_little_memory() {
    const TOTAL: usize = 100 << 20;
    let scratch = Scratch::new("big");
    let mut guest = Guest::start();
    let path = scratch.path("big");
    let id = guest.request(&Request::WriteFile { path: path.clone(), mode: 0o644, parents: false });
    let chunk: Vec<u8> = (0..256 << 10).map(|at| (at % 251) as u8).collect();
    let mut credit = WINDOW as usize;
    let mut sent = 0;
    while sent < TOTAL {
        while credit < chunk.len() {
            let Reply::Credit { bytes, .. } = guest.reply(id) else { panic!("no credit") };
            credit += bytes as usize;
        }
        guest.send(id, &data(&chunk));
        sent += chunk.len();
        credit -= chunk.len();
    }
    guest.send(id, &Request::Eof { stream: INPUT });
    while guest.reply(id) != (Reply::Done {}) {}
    assert_eq!(std::fs::metadata(scratch.0.join("big")).unwrap().len(), TOTAL as u64);
    let id = guest.request(&Request::ReadFile { path, offset: 0, limit: 0 });
    let mut received = 0;
    loop {
        match guest.reply(id) {
            Reply::Data { bytes, .. } => {
                for (at, byte) in bytes.0.iter().enumerate().step_by(997) {
                    assert_eq!(*byte, chunk[(received + at) % chunk.len()]);
                }
                received += bytes.0.len();
                guest.grant(id, OUTPUT, bytes.0.len());
            }
            Reply::Eof { .. } => {}
            Reply::Done {} => break,
            other => panic!("unexpected {other:?}"),
        }
    }
    assert_eq!(received, TOTAL);
    assert!(guest.memory("VmHWM") < 16 << 10, "{} KiB", guest.memory("VmHWM"));
}

#[test]
fn reading_waits_for_credit() {
    let scratch = Scratch::new("credit");
    std::fs::write(scratch.0.join("file"), vec![1; 3 * WINDOW as usize]).unwrap();
    let mut guest = Guest::start();
    let id = guest.request(&Request::ReadFile { path: scratch.path("file"), offset: 0, limit: 0 });
    let mut received = 0;
    while received < WINDOW as usize {
        let Reply::Data { bytes, .. } = guest.reply(id) else { panic!("no data") };
        received += bytes.0.len();
    }
    let ping = guest.request(&Request::Ping {});
    assert_eq!(guest.next_reply(), Some((ping, Reply::Pong {})));
    guest.send(id, &Request::Cancel {});
    assert_eq!(guest.next_reply(), Some((id, Reply::Done {})));
}
