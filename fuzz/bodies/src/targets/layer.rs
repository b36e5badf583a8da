//! What a sandbox wrote, held against the workspace, shown, kept and brought back: an overlay's upper directory in which anything may lie.
//!
//! Promises: nothing outside the two trees is touched or read into them, whatever links say; what a person sees on a terminal cannot mislead;
//! protected files are never changed unless named; what was applied without a word of complaint leaves nothing to apply; a layer that was
//! copied away says the same as the layer.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use stockade_sandbox::workspace::apply::{Baseline, Durability, apply};
use stockade_sandbox::workspace::change::{LayerChange, Moment};
use stockade_sandbox::workspace::diff::{Audience, render};
use stockade_sandbox::workspace::kept::{Ownership, copy_tree};
use stockade_sandbox::workspace::layer::Layer;
use stockade_sandbox::workspace::plan::Plan;
use stockade_sandbox::workspace::protected::is_protected;
use stockade_sandbox::workspace::remove::remove_tree;

use crate::input::Input;
use crate::scratch::Scratch;
use crate::shown::assert_honest;

/// Names that mean something to somebody.
const NAMES: [&str; 18] = [
    "a",
    "b",
    "d",
    "e",
    "x",
    ".git",
    "config",
    "hooks",
    "HEAD",
    "objects",
    "refs",
    "commondir",
    ".envrc",
    ".GIT",
    ".vscode",
    "tasks.json",
    "modules",
    "-rf",
];
/// Where links lead.
const TARGETS: [&str; 7] = ["/etc/passwd", "../outside/secret", "../outside", "a", "..", ".", "d/x"];
/// Attributes that overlayfs gives a meaning to.
const MARKS: [&str; 5] =
    ["user.overlay.opaque", "user.overlay.whiteout", "user.overlay.origin", "user.overlay.redirect", "user.overlay.metacopy"];
/// The most things that one input makes.
const MOST: usize = 48;

/// A list of things to make in the two trees.
pub fn body(data: &[u8]) {
    let scratch = Scratch::new();
    let [lower, upper, outside] = ["lower", "upper", "outside"].map(|name| scratch.directory(name));
    fs::write(outside.join("secret"), "keep out").expect("room for a file");
    let mut input = Input(data);
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        let how = input.byte();
        make(if how & 0x80 == 0 { &upper } else { &lower }, how & 0x7f, &mut input);
    }
    let untouched = tree(&outside);
    check(&scratch, &lower, &upper);
    assert_eq!(tree(&outside), untouched, "something outside the trees changed");
}

fn check(scratch: &Scratch, lower: &Path, upper: &Path) {
    let layer = Layer::new(upper, lower);
    let started = Moment::now();
    let changes = match layer.changes() {
        Ok(changes) => changes,
        Err(error) => return assert_honest(&error.to_string(), &[]),
    };
    check_list(&changes);
    show(&changes, &layer);
    keep(&changes, scratch, upper, lower);

    let before = protected(lower);
    let plan = Plan::from(&changes, &[]);
    let steps = plan.steps().len();
    let workspace = File::open(lower);
    // A workspace that its owner cannot read was found so by `changes`.
    let Ok(workspace) = workspace else { return };
    let report = apply(&plan, &layer, workspace.as_fd(), &Baseline::new(started), Durability::Lazy);
    for text in report.errors.iter().map(ToString::to_string).chain(report.conflicts.iter().map(|conflict| conflict.why.to_string())) {
        assert_honest(&text, &[]);
    }
    assert!(report.applied.len() + report.conflicts.len() + report.errors.len() >= steps, "a step was forgotten: {report:?}");
    assert_eq!(protected(lower), before, "a protected file changed");
    let clean = report.conflicts.is_empty() && report.errors.is_empty() && report.refused.is_empty() && report.skipped_protected.is_empty();
    // What the sandbox closed to its owner is closed on the host too, and cannot be compared there.
    if clean && !has_closed(lower) {
        let left = layer.changes().expect("what was listed once");
        assert!(left.is_empty(), "everything was applied, and yet {left:?} is left of {changes:?}");
    }
}

fn has_closed(root: &Path) -> bool {
    tree(root).values().any(|(mode, _)| {
        let needed = if FileType::from_raw_mode(*mode) == FileType::Directory { 0o700 } else { 0o400 };
        mode & needed != needed
    })
}

fn check_list(changes: &[LayerChange]) {
    assert!(changes.windows(2).all(|pair| pair[0].path < pair[1].path), "the list is not sorted, or has a path twice");
    for change in changes {
        for path in [Some(&change.path), change.from.as_ref()].into_iter().flatten() {
            assert!(path.components().all(|part| matches!(part, Component::Normal(_))) && path.components().count() > 0, "{path:?}");
        }
        assert!(change.protected.is_some() || is_protected(&change.path).is_none(), "{:?} is protected", change.path);
        assert_honest(&change.to_string(), &[]);
    }
}

fn show(changes: &[LayerChange], layer: &Layer) {
    let mut shown = Vec::new();
    let summary = render(changes, layer, &mut shown, Audience::Terminal).expect("memory takes everything");
    assert_eq!(summary.files, changes.len());
    let text = String::from_utf8(shown).expect("on a terminal everything is text");
    assert_honest(&text, &['\n', '\t']);
    let summary_again = render(changes, layer, &mut Vec::new(), Audience::Pipe).expect("memory takes everything");
    assert_eq!(summary, summary_again);
}

/// A copy of the upper tree is the same layer, but for what cannot be copied.
fn keep(changes: &[LayerChange], scratch: &Scratch, upper: &Path, lower: &Path) {
    let Ok(from) = File::open(upper) else { return };
    let to = scratch.path().join("kept");
    match copy_tree(from.as_fd(), &to, Ownership::Caller) {
        Ok(copied) if copied.left_out.is_empty() => {
            let again = Layer::new(&to, lower).changes().expect("what could be listed can be listed again");
            let words = |changes: &[LayerChange]| changes.iter().map(ToString::to_string).collect::<Vec<_>>();
            assert_eq!(words(&again), words(changes), "the copy says something else");
        }
        Ok(_) => {}
        Err(error) => assert_honest(&error.to_string(), &[]),
    }
    remove_tree(&to).expect("a copy can be removed");
}

/// Makes one thing beneath a tree. Links on the way are not followed: that is the sandbox's business to try, not ours.
fn make(root: &Path, what: u8, input: &mut Input<'_>) {
    let Some(path) = place(root, input) else { return };
    let mode = |input: &mut Input<'_>| Permissions::from_mode(u32::from(input.short()) & 0o7777);
    // Failures are left alone, here and below: a name may be too long, or taken by something else.
    let mark = |path: &Path, mark: &str, value: &[u8]| {
        let _ = rustix::fs::lsetxattr(path, mark, value, XattrFlags::empty());
    };
    match what % 9 {
        0 | 1 => drop(fs::create_dir(&path)),
        2 => drop(symlink(OsStr::from_bytes(&link(input)), &path)),
        3 => drop(rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)),
        4 => {
            if let Some(other) = place(root, input) {
                drop(fs::hard_link(other, &path));
            }
        }
        5 => {
            if !path.exists() {
                drop(fs::write(&path, ""));
            }
            mark(&path, "user.overlay.whiteout", b"y");
        }
        6 => mark(&path, "user.overlay.opaque", b"y"),
        7 => {
            let choice = input.byte();
            if choice & 0x80 == 0 {
                mark(&path, MARKS[usize::from(choice) % MARKS.len()], input.piece(2));
            } else if fs::symlink_metadata(&path).is_ok_and(|found| found.is_file() || found.is_dir()) {
                drop(fs::set_permissions(&path, mode(input)));
            }
        }
        _ => {
            let length = usize::from(input.byte()) % 80;
            let contents = input.piece(length);
            if fs::symlink_metadata(&path).map_or(true, |found| found.is_file()) {
                drop(fs::write(&path, contents));
            }
        }
    }
}

/// A path of up to three names, in directories that are there.
fn place(root: &Path, input: &mut Input<'_>) -> Option<PathBuf> {
    let mut path = root.to_path_buf();
    for left in (0..=input.byte() % 3).rev() {
        let choice = input.byte();
        if choice & 0x80 == 0 {
            path.push(NAMES[usize::from(choice) % NAMES.len()]);
        } else {
            let name = input.piece(usize::from(choice & 0x1f) + 1);
            if name.iter().any(|byte| matches!(byte, 0 | b'/')) || matches!(name, b"" | b"." | b"..") {
                return None;
            }
            path.push(OsStr::from_bytes(name));
        }
        if left > 0 {
            drop(fs::create_dir(&path));
            if !fs::symlink_metadata(&path).ok()?.is_dir() {
                return None;
            }
        }
    }
    Some(path)
}

fn link(input: &mut Input<'_>) -> Vec<u8> {
    match input.byte() {
        choice @ 0..0x80 => TARGETS[usize::from(choice) % TARGETS.len()].into(),
        choice => input.piece(usize::from(choice & 0x1f) + 1).iter().map(|byte| (*byte).max(1)).collect(),
    }
}

/// Everything beneath a directory that can be read: kind and mode, contents or link.
fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(data) = fs::symlink_metadata(&path) else { continue };
            let contents = if data.is_symlink() {
                fs::read_link(&path).map(|link| link.into_os_string().into_encoded_bytes()).unwrap_or_default()
            } else if data.is_file() {
                fs::read(&path).unwrap_or_default()
            } else {
                Vec::new()
            };
            if data.is_dir() {
                left.push(path.clone());
            }
            found.insert(path, (data.mode(), contents));
        }
    }
    found
}

/// The protected part of a workspace.
fn protected(lower: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = tree(lower);
    found.retain(|path, _| path.strip_prefix(lower).is_ok_and(|path| is_protected(path).is_some()));
    found
}

/// Trees in which everything happens that a program can do to a workspace.
pub fn seeds() -> Vec<Vec<u8>> {
    const LOWER: u8 = 0x80;
    let name = |name: &str| NAMES.iter().position(|known| *known == name).expect("a known name") as u8;
    let path = |names: &[&str]| [vec![names.len() as u8 - 1], names.iter().map(|part| name(part)).collect()].concat();
    let file =
        |tree: u8, names: &[&str], text: &str| [vec![tree | 8], path(names), vec![text.len() as u8], text.as_bytes().to_vec()].concat();
    let whiteout = |names: &[&str]| [vec![5], path(names)].concat();
    let opaque = |names: &[&str]| [vec![6], path(names)].concat();
    let directory = |tree: u8, names: &[&str]| [vec![tree], path(names)].concat();
    let link = |names: &[&str], target: u8| [vec![2], path(names), vec![target]].concat();
    let mode = |tree: u8, names: &[&str], mode: u16| [vec![tree | 7], path(names), vec![0x80], mode.to_le_bytes().to_vec()].concat();
    vec![
        [
            file(LOWER, &["a"], "one\ntwo\n"),
            file(0, &["a"], "one\n2\n"),
            file(0, &["b"], "new"),
            file(LOWER, &["d", "x"], "x"),
            whiteout(&["d", "x"]),
        ]
        .concat(),
        [directory(LOWER, &["d"]), file(LOWER, &["d", "a"], "gone"), directory(0, &["d"]), opaque(&["d"]), file(0, &["d", "b"], "come")]
            .concat(),
        [file(LOWER, &["d", "a"], "x"), link(&["d"], 2), link(&["x"], 0), link(&["e"], 1), [vec![3], path(&["b"])].concat()].concat(),
        [
            file(LOWER, &[".git", "config"], "[core]"),
            file(0, &[".git", "config"], "evil"),
            file(0, &[".git", "hooks", "x"], "evil"),
            whiteout(&[".envrc"]),
            link(&[".GIT"], 4),
        ]
        .concat(),
        [file(0, &["x", "HEAD"], "ref"), directory(0, &["x", "objects"]), directory(0, &["x", "refs"]), file(0, &["x", "config"], "evil")]
            .concat(),
        [file(LOWER, &["a"], "same"), file(0, &["b"], "same"), whiteout(&["a"]), [vec![4], path(&["x"]), path(&["b"])].concat()].concat(),
        [
            file(LOWER, &["a"], "m"),
            file(0, &["a"], "m"),
            mode(0, &["a"], 0o4755),
            directory(0, &["d"]),
            file(0, &["d", "x"], "locked"),
            mode(0, &["d"], 0),
        ]
        .concat(),
        [
            vec![8, 0, 0x83, b'\n', 0x1b, 0xff, 0x7f, 3],
            b"\x1b[2".to_vec(),
            file(0, &["a"], "\u{202e}\ttext\r\n"),
            [vec![7], path(&["a"]), vec![3, b'y', b'y']].concat(),
        ]
        .concat(),
    ]
}
