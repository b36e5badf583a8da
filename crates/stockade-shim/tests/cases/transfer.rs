//! File contents through a pipe of the host.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;

use stockade_wire::codec::Bytes;
use stockade_wire::message::{ErrorKind, Reply, Request};

use crate::client::{Guest, INPUT, Scratch};

fn read(guest: &mut Guest, path: Bytes, offset: u64, limit: u64) -> (Vec<u8>, Reply) {
    let (mut ours, theirs) = std::io::pipe().unwrap();
    let id = guest.fresh();
    guest.send_with(id, &Request::ReadFileTo { path, offset, limit }, &[theirs.into()]);
    let mut contents = Vec::new();
    ours.read_to_end(&mut contents).unwrap();
    (contents, guest.reply(id))
}

/// Begins to write; returns the request and our end of its pipe.
fn begin(guest: &mut Guest, path: Bytes) -> (u32, std::io::PipeWriter) {
    let (theirs, ours) = std::io::pipe().unwrap();
    let id = guest.fresh();
    guest.send_with(id, &Request::WriteFileFrom { path, mode: 0o640, parents: true }, &[theirs.into()]);
    (id, ours)
}

#[test]
fn contents_pass_both_ways_and_in_parts() {
    let scratch = Scratch::new("pipes");
    let mut guest = Guest::start();
    let contents: Vec<u8> = (0..5_000_000u32).map(|at| (at % 251) as u8).collect();
    let (id, mut ours) = begin(&mut guest, scratch.path("deep/file"));
    ours.write_all(&contents).unwrap();
    drop(ours);
    guest.send(id, &Request::Eof { stream: INPUT });
    assert_eq!(guest.reply(id), Reply::Done {});
    assert!(std::fs::read(scratch.0.join("deep/file")).unwrap() == contents);
    let parts = [(0, 0, contents.as_slice()), (3, 4, &contents[3..7]), (4_999_990, 100, &contents[4_999_990..]), (9_000_000, 0, &[])];
    for (offset, limit, expected) in parts {
        let (got, reply) = read(&mut guest, scratch.path("deep/file"), offset, limit);
        assert!(got == expected && reply == (Reply::Done {}), "{offset} {limit}: {} bytes, {reply:?}", got.len());
    }
    // Files that the kernel makes up have no pages to move.
    let (got, _) = read(&mut guest, Bytes::from("/proc/version"), 0, 0);
    assert_eq!(got, std::fs::read("/proc/version").unwrap());
}

#[test]
fn a_pipe_that_just_ends_leaves_no_file() {
    let scratch = Scratch::new("unannounced");
    let mut guest = Guest::start();
    let (id, mut ours) = begin(&mut guest, scratch.path("file"));
    ours.write_all(b"half of it").unwrap();
    drop(ours);
    // The pipe is seen to be at its end before this is answered.
    for _ in 0..10 {
        guest.ask(&Request::Ping {});
    }
    assert!(!scratch.0.join("file").exists());
    guest.send(id, &Request::Cancel {});
    assert_eq!(guest.reply(id), Reply::Done {});
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 0);
}

#[test]
fn only_a_pipe_will_do() {
    let scratch = Scratch::new("no-pipe");
    let mut guest = Guest::start();
    let request = || Request::WriteFileFrom { path: scratch.path("file"), mode: 0o644, parents: false };
    assert_eq!(guest.failure(&request()).0, ErrorKind::Invalid {}, "nothing came with it");
    let id = guest.fresh();
    guest.send_with(id, &request(), &[OwnedFd::from(std::fs::File::open("/dev/null").unwrap())]);
    assert!(matches!(guest.reply(id), Reply::Failed { kind: ErrorKind::Invalid {}, .. }));
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 0);
}

#[test]
fn a_failed_transfer_closes_the_pipe_and_a_slow_reader_blocks_nobody() {
    let scratch = Scratch::new("slow");
    std::fs::write(scratch.0.join("big"), vec![7; 1 << 20]).unwrap();
    let mut guest = Guest::start();
    guest.ask(&Request::Ping {});
    let before = guest.open_descriptors();
    let (got, reply) = read(&mut guest, scratch.path("none"), 0, 0);
    assert!(got.is_empty() && matches!(reply, Reply::Failed { kind: ErrorKind::NotFound {}, .. }), "{reply:?}");
    let (ours, theirs) = std::io::pipe().unwrap();
    let id = guest.fresh();
    guest.send_with(id, &Request::ReadFileTo { path: scratch.path("big"), offset: 0, limit: 0 }, &[theirs.into()]);
    assert_eq!(guest.shell("echo on").text(), "on\n", "though nobody reads the pipe");
    drop(ours);
    assert_eq!(guest.reply(id), Reply::Done {}, "a host that reads no more is not an error");
    guest.ask(&Request::Ping {});
    assert_eq!(guest.open_descriptors(), before);
}
