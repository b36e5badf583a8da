//! The guest's server, asked by a host that sends requests in any order, under any number, cut anywhere.
//!
//! Promises: the guest never panics or hangs; every byte it answers is a message that the host accepts; it sends no more of a stream than it had
//! credit for; a write that was not finished leaves nothing behind. Requests that would start programs, send signals, use the network or leave
//! the input's own directory are never made: the server would do as it is told.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown, socketpair};
use stockade_wire::codec::{self, Bytes};
use stockade_wire::frame::{self, FrameBuffer, GUEST_ID_BIT, WINDOW};
use stockade_wire::message::{Reply, Request, Stream};

use crate::input::Input;
use crate::scratch::Scratch;

/// The most requests of one input: what the socket holds without anybody reading.
const MOST: usize = 100;
/// Names in the input's directory.
const NAMES: [&str; 6] = ["a", "b", "dir", "dir/x", "dir/deep/y", "link"];
/// Turns that are left to the requests after the last one.
const TURNS: usize = 8;

/// A list of requests.
pub fn body(data: &[u8]) {
    let scratch = Scratch::new();
    let base = scratch.directory("guest");
    fs::create_dir(base.join("dir")).expect("room for a directory");
    fs::write(base.join("a"), vec![7; 5000]).expect("room for a file");
    std::os::unix::fs::symlink("dir/x", base.join("link")).expect("room for a link");
    let flags = SocketFlags::CLOEXEC;
    // Packets, so that the server takes a turn between them without another thread.
    let (host, guest) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket pair");
    let mut credit = BTreeMap::new();
    let mut input = Input(data);
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        let (id, payload) = message(&mut input, &base);
        if let Ok(Request::Credit { stream, bytes }) = codec::from_bytes(&payload) {
            *credit.entry((id, codec::to_bytes(&stream))).or_insert(0_u64) += u64::from(bytes);
        }
        let mut bytes = Vec::new();
        frame::push_frame(&mut bytes, id, &payload);
        let cut = usize::from(input.byte()).min(bytes.len());
        if !(say(&host, &bytes[..cut]) && say(&host, &bytes[cut..])) {
            break;
        }
    }
    for turn in 0..TURNS {
        let mut ping = Vec::new();
        frame::push_frame(&mut ping, 1000 + turn as u32, &codec::to_bytes(&Request::Ping {}));
        say(&host, &ping);
    }
    shutdown(&host, Shutdown::Write).expect("a connected socket");
    stockade_fuzz_guest::serve(guest);
    check_answers(&host, &credit);
    check_files(&base);
}

/// Whether there was room for it.
fn say(host: &OwnedFd, bytes: &[u8]) -> bool {
    bytes.is_empty() || send(host.as_fd(), bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) == Ok(bytes.len())
}

fn message(input: &mut Input<'_>, base: &Path) -> (u32, Vec<u8>) {
    let kind = input.byte();
    let id = match input.byte() {
        id @ 0..0xf0 => u32::from(id % 8),
        id => GUEST_ID_BIT | u32::from(id % 4),
    };
    let stream = |input: &mut Input<'_>| match input.byte() % 4 {
        0 | 1 => Stream::Input {},
        2 => Stream::Output {},
        _ => Stream::Errors {},
    };
    let request = match kind % 15 {
        0 => Request::ReadFile { path: path(input, base), offset: u64::from(input.byte()), limit: u64::from(input.byte()) },
        1 => Request::WriteFile { path: path(input, base), mode: u32::from(input.short()) & 0o7777, parents: input.byte() & 1 == 1 },
        2 => Request::Data { stream: stream(input), bytes: input.counted().into() },
        3 => Request::Eof { stream: stream(input) },
        4 => Request::Credit { stream: stream(input), bytes: input.word() },
        5 => Request::ListDir { path: path(input, base) },
        6 => Request::Stat { path: path(input, base) },
        7 => Request::Remove { path: path(input, base), recursive: input.byte() & 1 == 1 },
        8 => Request::Rename { from: path(input, base), to: path(input, base) },
        9 => Request::MakeDir { path: path(input, base), mode: u32::from(input.short()) & 0o7777, parents: input.byte() & 1 == 1 },
        10 => Request::Watch { path: path(input, base), recursive: input.byte() & 1 == 1 },
        11 => Request::Cancel {},
        12 => Request::Ping {},
        13 => Request::Resize { rows: input.short(), cols: input.short() },
        _ => return (id, harmless(input.counted())),
    };
    (id, codec::to_bytes(&request))
}

/// A path in the input's directory, or one that is none.
fn path(input: &mut Input<'_>, base: &Path) -> Bytes {
    let choice = input.byte();
    let mut path = base.as_os_str().as_bytes().to_vec();
    path.push(b'/');
    match choice {
        0..0xc0 => path.extend_from_slice(NAMES[usize::from(choice) % NAMES.len()].as_bytes()),
        0xc0..0xf0 => {
            // Any bytes but those that lead elsewhere.
            let length = usize::from(choice - 0xc0) * 6;
            path.extend(input.piece(length).iter().map(|byte| if *byte == b'.' { b'_' } else { *byte }));
        }
        0xf0..0xf8 => path.extend(std::iter::repeat_n(b'n', usize::from(input.short()) % 5000)),
        _ => return b"not absolute".into(),
    }
    path.into()
}

/// Bytes that are no request, or one that does nothing to anybody.
fn harmless(bytes: &[u8]) -> Vec<u8> {
    match codec::from_bytes(bytes) {
        Ok(
            Request::Hello { .. }
            | Request::Begin { .. }
            | Request::Jail { .. }
            | Request::Enter { .. }
            | Request::Data { .. }
            | Request::Eof { .. }
            | Request::Ping {}
            | Request::Cancel {},
        )
        | Err(_) => bytes.to_vec(),
        Ok(_) => Vec::new(),
    }
}

fn check_answers(host: &OwnedFd, credit: &BTreeMap<(u32, Vec<u8>), u64>) {
    let mut frames = FrameBuffer::default();
    let mut buffer = vec![0; 1 << 20];
    let mut sent: BTreeMap<(u32, Vec<u8>), u64> = BTreeMap::new();
    let mut answered: BTreeMap<u32, u64> = BTreeMap::new();
    loop {
        match recv(host, buffer.as_mut_slice(), RecvFlags::DONTWAIT) {
            Ok((_, 0)) | Err(Errno::AGAIN | Errno::CONNRESET) => break,
            Ok((_, count)) => frames.extend(&buffer[..count]),
            Err(errno) => panic!("the guest's answers cannot be read: {errno}"),
        }
        while let Some((id, payload)) = frames.next_frame().expect("the guest's frames are short enough") {
            let reply = codec::from_bytes::<Reply>(payload).expect("the guest's answers are messages");
            match reply {
                Reply::Data { stream, bytes } => *sent.entry((id, codec::to_bytes(&stream))).or_default() += bytes.0.len() as u64,
                Reply::Done {} | Reply::Failed { .. } => *answered.entry(id).or_default() += 1,
                _ => {}
            }
        }
    }
    for ((id, stream), bytes) in sent {
        let granted = credit.get(&(id, stream)).copied().unwrap_or_default();
        // An id may be used again, each time with a window of its own.
        let windows = u64::from(WINDOW) * (answered.get(&id).copied().unwrap_or_default() + 1);
        assert!(bytes <= windows + granted, "{bytes} bytes for {id} on {granted} granted");
    }
}

/// Half-written files are gone.
fn check_files(base: &Path) {
    let mut left = vec![base.to_path_buf()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            assert!(!name.as_bytes().starts_with(b".stockade-"), "{name:?} was left behind");
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(entry.path());
            }
        }
    }
}

/// Reads, writes, listings and watches, whole and broken off.
pub fn seeds() -> Vec<Vec<u8>> {
    const WHOLE: u8 = 0xff;
    let write = |id: u8, name: u8, text: &str| {
        [vec![1, id, name, 0xa4, 1, 1, WHOLE, 2, id, 0], (text.len() as u16).to_le_bytes().to_vec(), text.as_bytes().to_vec(), vec![WHOLE]]
            .concat()
    };
    let end = |id: u8| vec![3, id, 0, WHOLE];
    let cancel = |id: u8| vec![11, id, WHOLE];
    vec![
        [write(1, 1, "contents"), end(1), vec![6, 2, 1, WHOLE], vec![0, 3, 1, 0, 0, WHOLE]].concat(),
        [vec![0, 1, 0, 0, 0, WHOLE], vec![4, 1, 2, 0, 0, 1, 0, WHOLE], vec![0, 1, 0, 9, 9, 3]].concat(),
        [write(1, 4, "half"), cancel(1), write(2, 3, "given up")].concat(),
        [vec![10, 1, 2, 1, WHOLE], vec![9, 2, 4, 0xed, 1, 1, WHOLE], write(3, 3, "seen"), end(3), vec![7, 4, 2, 1, WHOLE], cancel(1)]
            .concat(),
        [vec![5, 1, 2, WHOLE], vec![8, 2, 0, 5, WHOLE], vec![8, 3, 5, 1, 4], vec![12, 4, WHOLE], vec![13, 5, 1, 0, 1, 0, WHOLE]].concat(),
        [vec![14, 1, 4, 0, 0xff, 0xff, 0xff, 0xff, WHOLE], vec![5, 0xf1, 0, WHOLE], vec![2, 7, 2, 1, 0, 9, WHOLE]].concat(),
    ]
}
