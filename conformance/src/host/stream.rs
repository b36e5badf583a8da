//! The stream between host and guest, with either side hostile: garbage, lies, too much.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use stockade_sandbox::connection::{Connection, ConnectionError};
use stockade_wire::codec;
use stockade_wire::frame::{self, MAX_PAYLOAD};
use stockade_wire::message::{ErrorKind, Exec, Reply, Request, Stdio};

use crate::case::Ground;
use crate::error::SuiteError;
use crate::stage::Seen;

use super::{Came, Function, Outside, open_if, shell};

pub(super) const TABLE: &[(&str, Function)] = &[
    ("garbage_from_guest", garbage_from_guest),
    ("descriptors_from_guest", descriptors_from_guest),
    ("flood_from_guest", flood_from_guest),
    ("garbage_to_guest", garbage_to_guest),
    ("paths_to_guest", paths_to_guest),
    ("requests_out_of_turn", requests_out_of_turn),
    ("many_requests", many_requests),
];

/// A guest that is none: the caller's end, and the end of whoever plays the guest.
fn pretended(outside: &Outside<'_>) -> Result<(Connection, UnixStream), SuiteError> {
    let (ours, theirs) = UnixStream::pair().map_err(|e| SuiteError::Program { step: "making a stream", why: e.to_string() })?;
    Ok((Connection::new(OwnedFd::from(ours), outside.target.passing()), theirs))
}

/// Bytes that are no frame, and frames that are no message, are errors: never a panic, a guess or a wait.
fn garbage_from_guest(outside: &Outside<'_>) -> Came {
    let mut frames: Vec<Vec<u8>> = vec![vec![0xff; 64], (MAX_PAYLOAD as u32 + 1).to_le_bytes().repeat(2)];
    for payload in [vec![], vec![0xff], vec![7], vec![9, 0, 0xff, 0xff, 0xff, 0xff], vec![10, 0xff, 0xff, 0xff, 0x7f], vec![4; 3000]] {
        let mut bytes = Vec::new();
        frame::push_frame(&mut bytes, 1, &payload);
        frames.push(bytes);
    }
    let mut wrong = Vec::new();
    for (number, bytes) in frames.iter().enumerate() {
        let (mut connection, mut guest) = pretended(outside)?;
        let _ = guest.write_all(bytes);
        drop(guest);
        match connection.receive(5) {
            Err(ConnectionError::Silent(_)) | Ok(_) => wrong.push(number),
            Err(_) => {}
        }
    }
    Ok(open_if(!wrong.is_empty(), format!("taken: {wrong:?} of {}", frames.len())))
}

/// Descriptors that nobody asked for are not kept without end.
fn descriptors_from_guest(outside: &Outside<'_>) -> Came {
    use std::os::fd::AsFd;
    let (mut connection, guest) = pretended(outside)?;
    let sender = Connection::new(OwnedFd::from(guest), stockade_sandbox::connection::Passing::Possible);
    let count = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let null = std::fs::File::open("/dev/null").map_err(SuiteError::file("open", "/dev/null"))?;
    let before = count();
    for _ in 0..200 {
        sender.send_payload(1, &codec::to_bytes(&Reply::Pong {}), &[null.as_fd(); 8]).map_err(|e| SuiteError::Sandbox(e.to_string()))?;
        connection.receive(5).map_err(|e| SuiteError::Sandbox(e.to_string()))?;
    }
    let kept = count().saturating_sub(before);
    Ok(open_if(kept > 300, format!("{kept} of 1600 kept")))
}

/// Answers to requests that nobody made, without end: bounded memory, and an error in the end.
fn flood_from_guest(outside: &Outside<'_>) -> Came {
    let (mut connection, mut guest) = pretended(outside)?;
    let flood = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        frame::push_frame(&mut bytes, 999, &codec::to_bytes(&Reply::Failed { kind: ErrorKind::Io {}, message: "x".repeat(1 << 18) }));
        let mut sent = 0usize;
        while sent < 1 << 30 && guest.write_all(&bytes).is_ok() {
            sent += bytes.len();
        }
        sent
    });
    let answer = connection.answer_to(1, 20);
    drop(connection);
    let sent = flood.join().unwrap_or(usize::MAX);
    Ok(open_if(answer.is_ok() || sent >= 1 << 30, format!("{answer:?} after {} MiB", sent >> 20)))
}

/// A host that went mad: the guest ends, and everything inside with it.
fn garbage_to_guest(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let mut wrong = Vec::new();
    for (name, bytes) in
        [("garbage", vec![0xff; 4096]), ("too long", vec![0, 0, 0x20, 0, 1, 0, 0, 0]), ("no message", vec![1, 0, 0, 0, 1, 0, 0, 0, 0xee])]
    {
        let mut standing = outside.stand(&work, Ground::Shared)?;
        standing.run(&shell("true"))?;
        let mut running = standing.sandbox.into_running();
        let stream = running.parts().0.as_fd().try_clone_to_owned().map_err(SuiteError::file("copy", "the stream"))?;
        let _ = UnixStream::from(stream).write_all(&bytes);
        let mut answered = None;
        for _ in 0..4 {
            match running.parts().0.receive(10) {
                Ok((_, reply)) => answered = Some(format!("{reply:?}").chars().take(80).collect::<String>()),
                Err(ConnectionError::Silent(_)) => {
                    wrong.push(format!("{name}: silence, after {answered:?}"));
                    break;
                }
                Err(_) => break,
            }
        }
        running.destroy();
    }
    Ok(open_if(!wrong.is_empty(), format!("{wrong:?}")))
}

/// Paths that a `SafePath` would not be, sent past it: an error, and the guest goes on.
fn paths_to_guest(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let standing = outside.stand(&work, Ground::Shared)?;
    let mut running = standing.sandbox.into_running();
    let (connection, _) = running.parts();
    let mut wrong = Vec::new();
    for path in [&b""[..], b"relative", b"../up", b"/a\0b", &b"/a".repeat(5000)] {
        for (number, request) in [
            Request::ReadFile { path: path.into(), offset: 0, limit: 0 },
            Request::ListDir { path: path.into() },
            Request::Remove { path: path.into(), recursive: true },
            Request::MakeDir { path: path.into(), mode: 0o755, parents: true },
        ]
        .into_iter()
        .enumerate()
        {
            let id = connection.fresh_id();
            connection.send(id, &request, &[]).map_err(|e| SuiteError::Sandbox(e.to_string()))?;
            match connection.answer_to(id, 20) {
                Ok(Reply::Failed { .. }) => {}
                other => wrong.push(format!("{number} {}: {other:?}", String::from_utf8_lossy(path).chars().take(10).collect::<String>())),
            }
        }
    }
    let id = connection.fresh_id();
    let alive = connection.send(id, &Request::Ping {}, &[]).is_ok() && connection.answer_to(id, 20).is_ok_and(|r| r == Reply::Pong {});
    Ok(open_if(!wrong.is_empty() || !alive, format!("{wrong:?}, alive: {alive}")))
}

/// A second plan, a second greeting, descriptors announced and not sent: errors or the end, never another jail.
fn requests_out_of_turn(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let mut wrong = Vec::new();
    let exec = Exec { argv: vec![b"true".as_slice().into()], env: vec![], cwd: b"/".as_slice().into(), stdio: Stdio::Passed {} };
    for request in [Request::Hello { version: u32::MAX, token: [0; 32] }, Request::Run { exec }] {
        let standing = outside.stand(&work, Ground::Shared)?;
        let mut running = standing.sandbox.into_running();
        let (connection, _) = running.parts();
        let id = connection.fresh_id();
        connection.send(id, &request, &[]).map_err(|e| SuiteError::Sandbox(e.to_string()))?;
        match connection.answer_to(id, 10) {
            Ok(Reply::Failed { .. } | Reply::JailFailed { .. }) => {}
            Ok(other) => wrong.push(format!("{other:?}")),
            Err(ConnectionError::Silent(_)) => wrong.push("silence".into()),
            Err(_) => {}
        }
        running.destroy();
    }
    Ok(open_if(!wrong.is_empty(), format!("{wrong:?}")))
}

/// More requests than anybody has use for: refused beyond a bound, and the guest goes on.
fn many_requests(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let standing = outside.stand(&work, Ground::Shared)?;
    let mut running = standing.sandbox.into_running();
    let (connection, _) = running.parts();
    let mut refused = 0;
    for _ in 0..2000 {
        let id = connection.fresh_id();
        connection.send(id, &Request::Listen { port: 0 }, &[]).map_err(|e| SuiteError::Sandbox(e.to_string()))?;
        if matches!(connection.answer_to(id, 1), Ok(Reply::Failed { .. })) {
            refused += 1;
            break;
        }
    }
    let id = connection.fresh_id();
    let alive = connection.send(id, &Request::Ping {}, &[]).is_ok() && connection.answer_to(id, 20).is_ok_and(|r| r == Reply::Pong {});
    if !alive {
        return Ok((Seen::Open, "the guest no longer answers".into()));
    }
    Ok(open_if(refused == 0, format!("refused: {refused}, alive: {alive}")))
}
