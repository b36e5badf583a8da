//! Watching for changes.

use stockade_wire::codec::Bytes;
use stockade_wire::message::{Change, ErrorKind, Reply, Request};

use crate::client::{Guest, Scratch};

fn start(guest: &mut Guest, scratch: &Scratch, recursive: bool) -> u32 {
    let id = guest.request(&Request::Watch { path: Bytes::from(scratch.0.to_str().unwrap()), recursive });
    assert_eq!(guest.reply(id), Reply::Started { pid: 0, program: "".into() });
    id
}

fn wait_for(guest: &mut Guest, id: u32, path: &Bytes, change: &Change) {
    let mut seen = Vec::new();
    loop {
        match guest.reply(id) {
            Reply::Changed { path: other, change: what } if other == *path && what == *change => return,
            Reply::Changed { path, change } => seen.push((path, change)),
            other => panic!("unexpected {other:?} after {seen:?}"),
        }
    }
}

#[test]
fn changes_are_reported_with_their_kind() {
    let scratch = Scratch::new("watch");
    let mut guest = Guest::start();
    let id = start(&mut guest, &scratch, false);
    let file = scratch.0.join("file");
    std::fs::write(&file, "contents").unwrap();
    wait_for(&mut guest, id, &scratch.path("file"), &Change::Created {});
    wait_for(&mut guest, id, &scratch.path("file"), &Change::Modified {});
    let mut permissions = std::fs::metadata(&file).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&file, permissions).unwrap();
    wait_for(&mut guest, id, &scratch.path("file"), &Change::Attributes {});
    std::fs::rename(&file, scratch.0.join("other")).unwrap();
    wait_for(&mut guest, id, &scratch.path("file"), &Change::Renamed {});
    wait_for(&mut guest, id, &scratch.path("other"), &Change::Created {});
    std::fs::remove_file(scratch.0.join("other")).unwrap();
    wait_for(&mut guest, id, &scratch.path("other"), &Change::Removed {});
    guest.send(id, &Request::Cancel {});
    assert_eq!(guest.reply(id), Reply::Done {});
    std::fs::write(&file, "unseen").unwrap();
    let ping = guest.request(&Request::Ping {});
    assert_eq!(guest.next_reply(), Some((ping, Reply::Pong {})));
}

#[test]
fn new_directories_are_watched_too_and_moved_ones_under_their_new_name() {
    let scratch = Scratch::new("watch-deep");
    std::fs::create_dir_all(scratch.0.join("old/inner")).unwrap();
    let mut guest = Guest::start();
    let id = start(&mut guest, &scratch, true);
    std::fs::write(scratch.0.join("old/inner/file"), "").unwrap();
    wait_for(&mut guest, id, &scratch.path("old/inner/file"), &Change::Created {});
    std::fs::create_dir_all(scratch.0.join("new/a/b")).unwrap();
    std::fs::write(scratch.0.join("new/a/b/quick"), "").unwrap();
    wait_for(&mut guest, id, &scratch.path("new/a/b/quick"), &Change::Created {});
    std::fs::rename(scratch.0.join("old"), scratch.0.join("moved")).unwrap();
    wait_for(&mut guest, id, &scratch.path("moved"), &Change::Created {});
    // What was in it is announced, which also says that it is watched.
    wait_for(&mut guest, id, &scratch.path("moved/inner/file"), &Change::Created {});
    std::fs::write(scratch.0.join("moved/inner/late"), "").unwrap();
    wait_for(&mut guest, id, &scratch.path("moved/inner/late"), &Change::Created {});
}

#[test]
fn a_watch_ends_with_what_it_watches() {
    let scratch = Scratch::new("watch-end");
    let mut guest = Guest::start();
    let id = start(&mut guest, &scratch, true);
    std::fs::remove_dir(&scratch.0).unwrap();
    wait_for(&mut guest, id, &Bytes::from(scratch.0.to_str().unwrap()), &Change::Removed {});
    assert_eq!(guest.reply(id), Reply::Done {});
    let missing = Request::Watch { path: scratch.path("none"), recursive: true };
    assert_eq!(guest.failure(&missing).0, ErrorKind::NotFound {});
}

#[test]
fn lost_events_are_said_to_be_lost() {
    let scratch = Scratch::new("watch-overflow");
    let mut guest = Guest::start();
    let id = start(&mut guest, &scratch, false);
    // More than the kernel queues, while the guest is stopped and cannot read.
    let pid = rustix::process::Pid::from_child(&guest.child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let limit: usize = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    for number in 0..limit {
        let path = scratch.0.join(format!("{}", number % 10));
        std::fs::write(&path, "").unwrap();
        std::fs::remove_file(&path).unwrap();
    }
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    wait_for(&mut guest, id, &Bytes::from(scratch.0.to_str().unwrap()), &Change::Overflow {});
}

#[test]
fn a_tree_with_too_many_directories_is_refused() {
    let scratch = Scratch::new("watch-many");
    for number in 0..8200 {
        std::fs::create_dir(scratch.0.join(number.to_string())).unwrap();
    }
    let mut guest = Guest::start();
    let (kind, _) = guest.failure(&Request::Watch { path: Bytes::from(scratch.0.to_str().unwrap()), recursive: true });
    assert_eq!(kind, ErrorKind::TooMany {});
}
