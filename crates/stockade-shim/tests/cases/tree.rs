//! Names and directories.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use rustix::fs::{Mode, OFlags};
use stockade_wire::codec::Bytes;
use stockade_wire::message::{ErrorKind, FileKind, Reply, Request};

use crate::client::{Guest, Scratch};

#[test]
fn directories_are_listed_in_bounded_frames() {
    let scratch = Scratch::new("list");
    for number in 0..1000 {
        std::fs::write(scratch.0.join(format!("file-{number}")), "x".repeat(number)).unwrap();
    }
    std::fs::create_dir(scratch.0.join("directory")).unwrap();
    symlink("target of it", scratch.0.join("link")).unwrap();
    let mut guest = Guest::start();
    let id = guest.request(&Request::ListDir { path: scratch.path("") });
    let mut found = BTreeMap::new();
    let mut frames = 0;
    loop {
        match guest.reply(id) {
            Reply::Entries { entries } => {
                frames += 1;
                found.extend(entries.into_iter().map(|entry| (String::from_utf8(entry.name.0).unwrap(), entry.stat)));
            }
            Reply::Done {} => break,
            other => panic!("unexpected {other:?}"),
        }
    }
    assert!(frames >= 4, "{frames}");
    assert_eq!(found.len(), 1002);
    assert_eq!(found["file-999"].size, 999);
    assert_eq!(found["file-7"].kind, FileKind::File {});
    assert_eq!(found["directory"].kind, FileKind::Directory {});
    assert_eq!(found["link"].kind, FileKind::Symlink { target: Bytes::from("target of it") });
    assert_eq!(guest.failure(&Request::ListDir { path: scratch.path("file-1") }).0, ErrorKind::NotDirectory {});
    assert_eq!(guest.failure(&Request::ListDir { path: scratch.path("none") }).0, ErrorKind::NotFound {});
}

#[test]
fn a_path_is_described_without_following_it() {
    let scratch = Scratch::new("stat");
    std::fs::write(scratch.0.join("file"), "12345").unwrap();
    std::fs::set_permissions(scratch.0.join("file"), std::fs::Permissions::from_mode(0o4751)).unwrap();
    symlink("/nowhere", scratch.0.join("link")).unwrap();
    let mut guest = Guest::start();
    let Reply::Described { stat } = guest.ask(&Request::Stat { path: scratch.path("file") }) else { panic!("no stat") };
    assert_eq!((stat.kind, stat.size, stat.mode), (FileKind::File {}, 5, 0o4751));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    assert!((now - stat.modified.0).abs() < 60);
    let Reply::Described { stat } = guest.ask(&Request::Stat { path: scratch.path("link") }) else { panic!("no stat") };
    assert_eq!(stat.kind, FileKind::Symlink { target: Bytes::from("/nowhere") });
    assert_eq!(guest.failure(&Request::Stat { path: scratch.path("none") }).0, ErrorKind::NotFound {});
}

#[test]
fn directories_are_made_and_names_changed() {
    let scratch = Scratch::new("make");
    let mut guest = Guest::start();
    let make = |path: &str, parents| Request::MakeDir { path: scratch.path(path), mode: 0o777, parents };
    assert_eq!(guest.ask(&make("a", false)), Reply::Done {});
    assert_eq!(std::fs::metadata(scratch.0.join("a")).unwrap().permissions().mode() & 0o7777, 0o777);
    assert_eq!(guest.failure(&make("a", false)).0, ErrorKind::Exists {});
    assert_eq!(guest.ask(&make("a", true)), Reply::Done {});
    assert_eq!(guest.failure(&make("x/y", false)).0, ErrorKind::NotFound {});
    assert_eq!(guest.ask(&make("x/y//z/", true)), Reply::Done {});
    let rename = |from: &str, to: &str| Request::Rename { from: scratch.path(from), to: scratch.path(to) };
    assert_eq!(guest.ask(&rename("x/y", "a/b")), Reply::Done {});
    assert!(scratch.0.join("a/b/z").is_dir());
    assert_eq!(guest.failure(&rename("none", "other")).0, ErrorKind::NotFound {});
    let (_, message) = guest.failure(&rename("a", "none/there"));
    assert!(message.contains("none/there"), "{message}");
}

#[test]
fn removing_a_tree_does_not_follow_links() {
    let scratch = Scratch::new("remove");
    let outside = scratch.0.join("outside");
    std::fs::create_dir_all(outside.join("kept")).unwrap();
    std::fs::write(outside.join("kept/file"), "precious").unwrap();
    let tree = scratch.0.join("tree");
    std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
    for number in 0..700 {
        std::fs::write(tree.join(format!("a/b/file-{number}")), "").unwrap();
    }
    symlink(&outside, tree.join("link")).unwrap();
    symlink(outside.join("kept"), tree.join("a/b/link")).unwrap();
    symlink(&tree, scratch.0.join("to-tree")).unwrap();
    let mut guest = Guest::start();
    let remove = |path: &str, recursive| Request::Remove { path: scratch.path(path), recursive };
    assert_eq!(guest.failure(&remove("tree", false)).0, ErrorKind::Invalid {});
    // A link is removed itself, recursive or not.
    assert_eq!(guest.ask(&remove("to-tree", true)), Reply::Done {});
    assert!(tree.join("a/b/file-0").exists());
    assert_eq!(guest.ask(&remove("tree", true)), Reply::Done {});
    assert!(!tree.exists());
    assert_eq!(std::fs::read_to_string(outside.join("kept/file")).unwrap(), "precious");
    assert_eq!(guest.ask(&remove("outside/kept/file", false)), Reply::Done {});
    assert_eq!(guest.ask(&remove("outside/kept", false)), Reply::Done {});
    assert_eq!(guest.failure(&remove("outside/kept", true)).0, ErrorKind::NotFound {});
}

#[test]
fn a_very_deep_tree_is_removed_with_few_descriptors() {
    let scratch = Scratch::new("deep");
    // Deeper than a path can name, so made step by step from inside.
    let mut directory = rustix::fs::open(&scratch.0, OFlags::PATH, Mode::empty()).unwrap();
    for depth in 0..1100 {
        let name = if depth == 0 { "tree" } else { "dddd" };
        rustix::fs::mkdirat(&directory, name, Mode::RWXU).unwrap();
        directory = rustix::fs::openat(&directory, name, OFlags::PATH, Mode::empty()).unwrap();
    }
    let mut guest = Guest::start();
    guest.ask(&Request::Ping {});
    let before = guest.open_descriptors();
    assert_eq!(guest.ask(&Request::Remove { path: scratch.path("tree"), recursive: true }), Reply::Done {});
    assert!(!scratch.0.join("tree").exists());
    assert_eq!(guest.open_descriptors(), before);
}
